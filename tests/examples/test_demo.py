# SPDX-License-Identifier: Apache-2.0
"""The demo, as `make demo` runs it, with fewer virtual machines."""

from __future__ import annotations

import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
import requests

from examples.conductor import Computes, Conductor
from examples.demo.commands import DATA
from examples.demo.failure import describe
from examples.demo.stream import RequestStream
from examples.demo.trace import read_vms
from moorage.objects import RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.failures import without_secrets
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from moorage.simulator.traces import read_trace
from moorage.tests.fixtures.rabbitmq import DedicatedBroker

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "examples.demo", "--transport-url", "fake://"]


@pytest.fixture(scope="module")
def demo() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, "--events", "20"],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1"},
        text=True,
        timeout=240,
    )


def test_the_demo_and_the_simulator_read_the_same_amounts() -> None:
    path = DATA / "traces" / "azure-packing-batched.csv"
    trace = read_trace(path).first(300)
    per_core, per_gib = trace.units.vcpus_per_core, trace.units.memory_per_gib
    assert [(vm.vcpus, vm.memory_mb) for vm in read_vms(path, 300)] == [
        (math.ceil(cores / per_core), ram * 1024 / per_gib)
        for cores, ram, _disk in trace.amounts().tolist()
    ]


def test_demo_succeeds_and_is_quiet(demo: subprocess.CompletedProcess[str]) -> None:
    assert demo.stderr == ""
    assert demo.returncode == 0, demo.stdout


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("26 recorded messages of a stock nova", id="wire"),
        pytest.param("20 instances of the trace", id="instances"),
        pytest.param("build failed, claim released", id="failed-build"),
        pytest.param("$ moorage explain 00000000", id="funnel"),
        pytest.param(">= 8000000   6002001", id="why-not"),
        pytest.param("$ moorage schedule --dry-run", id="dry-run"),
        pytest.param("and 206 more", id="hosts"),
        pytest.param("1 host(s) to empty: ", id="drain"),
        pytest.param("hosts without an instance", id="simulation"),
        pytest.param("RAMWeigher", id="weights"),
        pytest.param("moves: revert", id="moves"),
        pytest.param("cell2", id="usage"),
        pytest.param("--hint spread_level=rack", id="spread"),
        pytest.param("--hint near=row=b", id="near"),
        pytest.param("none is lost, none is leaked", id="consistent"),
    ],
)
def test_demo_shows(demo: subprocess.CompletedProcess[str], part: str) -> None:
    assert part in demo.stdout


def _hosts_by_place(
    demo: subprocess.CompletedProcess[str], title: str
) -> list[tuple[str, ...]]:
    """The lines of a table of places: room, row, rack and hosts."""
    lines = demo.stdout[demo.stdout.index(title) :].splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith("└"))
    cells = ([c.strip() for c in line.split("│")[1:-1]] for line in lines[:end])
    return [tuple(row) for row in cells if row]


def test_demo_spreads_a_group_over_the_racks_of_a_zone(
    demo: subprocess.CompletedProcess[str],
) -> None:
    table = _hosts_by_place(demo, "--hint spread_level=rack")
    hosts = {rack: len(names.split(", ")) for _, _, rack, names in table}
    assert sorted(hosts) == ["a1", "a2", "a3", "b1", "b2", "b3"]
    assert sorted(hosts.values()) == [1, 1, 1, 1, 2, 2]


def test_demo_fills_a_row_and_then_the_closest_one(
    demo: subprocess.CompletedProcess[str],
) -> None:
    table = _hosts_by_place(demo, "--hint near=row=b")
    hosts = [(row, name) for _, row, _, names in table for name in names.split(", ")]
    assert [row for row, _ in hosts] == ["b"] * 5 + ["c"] * 2


def test_demo_is_readable_in_100_columns(
    demo: subprocess.CompletedProcess[str],
) -> None:
    for title in ("--hint spread_level=rack", "--hint near=row=b"):
        lines = demo.stdout[demo.stdout.index(title) :].splitlines()
        assert max(map(len, lines[:9])) <= 100


@pytest.mark.deep
def test_demo_can_be_interrupted() -> None:
    with subprocess.Popen(
        DEMO,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the first table: the cloud runs
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_request_without_an_answer_is_one_line() -> None:
    transport = get_transport(load([], config_files=[]), "fake://")
    api: Any = SchedulerAPI(transport, timeout_s=1)  # no server
    placement: Any = None  # nothing is built
    lines: list[str] = []
    conductor = Conductor(api, placement, Computes())
    stream = RequestStream(conductor, random.Random(1), lines.append)
    assert list(stream.fill(1)) == [(1, 1)]
    assert lines == [
        "A request was not answered in time: the machine may be busy. The demo goes on."
    ]
    transport.cleanup()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("fake://", "the machine was suspended or is too busy"),
        (
            "rabbit://u:secret@h/",
            "check the broker of --transport-url rabbit://u:***@h/",
        ),
    ],
)
def test_a_timeout_that_ends_the_demo_is_one_line(url: str, expected: str) -> None:
    transport = get_transport(load([], config_files=[]), "fake://")
    api = SchedulerAPI(transport, timeout_s=1)  # no server
    with pytest.raises(oslo_messaging.MessagingTimeout) as raised:
        api.select_destinations({}, RequestSpec(), [])
    assert expected in describe(raised.value, url)
    transport.cleanup()


def test_queues_of_another_scheduler_are_one_line() -> None:
    refused = (
        "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'scheduler'"
    )
    error = oslo_messaging.MessageDeliveryFailure(refused)
    line = describe(error, "rabbit://u:secret@h/")
    assert line.startswith(f"--transport-url rabbit://u:***@h/: {refused}; ")
    assert line.endswith("a virtual host of its own (rabbitmqctl add_vhost)")


def test_an_unexpected_error_is_one_line_and_its_traceback_is_in_a_file() -> None:
    try:
        raise KeyError("node\n7")
    except KeyError as e:
        line = describe(e, "fake://")
    [name] = re.findall(r"KeyError: 'node\\n7'; (\S+) has details$", line)
    log = Path(name)
    assert "Traceback" in log.read_text()
    log.unlink()


def _failure(*arguments: str) -> str:
    """Run a demo that cannot start; return its only line of errors."""
    run = subprocess.run(
        [*DEMO, *arguments],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
        timeout=240,
    )
    assert run.returncode == 1
    [line] = run.stderr.splitlines()
    return line


@pytest.mark.deep
def test_a_broker_that_does_not_answer_is_one_line() -> None:
    line = _failure("--transport-url", "rabbit://u:secret@127.0.0.1:1/")
    assert line == (
        "demo: --transport-url (MOORAGE_TRANSPORT_URL) = rabbit://u:***@127.0.0.1:1/: "
        "[Errno 111] Connection refused. Check that the server runs, and its host and "
        "port."
    )


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize(
    ("is_interrupted", "status", "limit_s"),
    [
        pytest.param(False, 1, 45, id="by-itself"),
        pytest.param(True, 130, 10, id="by-ctrl-c"),
    ],
)
def test_the_demo_ends_although_its_broker_has_frozen(
    tmp_path: Path, is_interrupted: bool, status: int, limit_s: float
) -> None:
    with (
        DedicatedBroker() as broker,
        subprocess.Popen(
            [*DEMO, "--transport-url", broker.transport_url],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()  # the first table: the cloud runs
        broker.freeze()
        if is_interrupted:
            process.send_signal(signal.SIGINT)
        try:
            _out, err = process.communicate(timeout=limit_s)
        finally:
            process.kill()
    [line] = err.splitlines()
    assert process.returncode == status
    assert (without_secrets(broker.transport_url) in line) is not is_interrupted
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
def test_a_port_of_the_page_that_is_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        line = _failure("--page", str(port))
    assert line.startswith(f"demo: --page (make demo-page PAGE_PORT): port {port} of ")


@pytest.mark.deep
def test_the_page_of_the_demo_ends_cleanly() -> None:
    with subprocess.Popen(
        [*DEMO, "--page", "--events", "10"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = (re.search(r"http://\S+/", line) for line in process.stdout)
        [url] = [next(found[0] for found in lines if found)]
        with requests.Session() as kept:
            page = kept.get(url, timeout=30)
            process.send_signal(signal.SIGINT)
            _out, err = process.communicate(timeout=60)
    assert "211" in page.text
    assert (process.returncode, err) == (0, "")
