# SPDX-License-Identifier: Apache-2.0
"""The commands of doc/how-to/report-hosts.rst, which try "push", select a host."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.placement.adapter import make_adapter
from moorage.scheduler.placement.client import PlacementClient

from ..fixtures.agent_process import AgentProcess
from ..fixtures.ports import free_port
from ..fixtures.rabbitmq import Broker
from ..fixtures.scheduler_process import SchedulerProcess
from ..fixtures.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("functional")]

EXAMPLES = Path(__file__).parents[2] / "doc/examples/push"
REPORTER = Path(__file__).parents[2] / "examples/reporter.py"
BROKER = "rabbit://guest:guest@127.0.0.1:5672/"
PORT = "8778"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the files that uses a broker and a free port for this test."""
    copy = tmp_path / "push"
    shutil.copytree(EXAMPLES, copy)
    monkeypatch.chdir(copy)
    with Broker() as broker:
        port = str(free_port())
        for file in copy.iterdir():
            text = file.read_text().replace(BROKER, broker.transport_url)
            file.write_text(text.replace(PORT, port))
        yield copy


@pytest.fixture
def _placement(folder: Path) -> Iterator[None]:
    port = int((folder / "scheduler.conf").read_text().strip().rpartition(":")[2])
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "placement_server.py"],
        env={**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(folder)},
        stderr=subprocess.DEVNULL,
    ) as process:

        def answers() -> bool:
            assert process.poll() is None, "Placement has ended"
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0

        wait_until(answers)
        yield
        process.terminate()


@pytest.mark.deep
@pytest.mark.usefixtures("_placement")
def test_this_machine_is_selected(folder: Path) -> None:
    python = [sys.executable, "-W", "ignore"]
    command = [*python, str(EXAMPLES.parent / "ask.py"), "scheduler.conf"]
    with (
        SchedulerProcess(folder / "scheduler.conf"),
        AgentProcess(folder / "agent.conf"),
    ):

        def answer() -> str:
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            return run.stdout

        wait_until(lambda: answer() == f"chosen: {socket.gethostname()}\n")
        _request_and_release(python)


@pytest.mark.deep
@pytest.mark.usefixtures("_placement")
def test_the_machine_of_the_example_reporter_is_selected(folder: Path) -> None:
    python = [sys.executable, "-W", "ignore"]
    command = [*python, str(EXAMPLES.parent / "ask.py"), "scheduler.conf"]
    reporter = [*python, str(REPORTER), "agent.conf"]
    with (
        SchedulerProcess(folder / "scheduler.conf"),
        subprocess.Popen(reporter, stderr=subprocess.PIPE, text=True) as process,
    ):

        def answer() -> str:
            assert process.poll() is None, process.communicate()[1]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            return run.stdout

        try:
            wait_until(lambda: answer() == "chosen: machine-1\n")
        finally:
            process.terminate()


def test_the_example_reporter_has_thirty_lines() -> None:
    assert len(REPORTER.read_text().splitlines()) <= 30


def _request_and_release(python: list[str]) -> None:
    command = [*python, "-m", "moorage.scheduler.cmd.cli", "--config-file"]
    sizes = ["--vcpus", "1", "--ram", "16", "--json"]
    run = subprocess.run(
        [*command, "scheduler.conf", "request", *sizes, "--release"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer = json.loads(run.stdout)
    hosts = {instance["host"] for instance in answer["instances"]}
    assert hosts == {socket.gethostname()}
    placement = PlacementClient(make_adapter(load(["--config-file=scheduler.conf"])))
    for instance in answer["instances"]:
        assert instance["uuid"] in run.stderr, "what is claimed for"
        assert placement.allocations(instance["uuid"]).resources == {}
    no_room = ["--vcpus", "100000", "--ram", "16"]
    failed = subprocess.run(
        [*command, "scheduler.conf", "request", *no_room, "--release"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert failed.returncode == 3
    assert "No valid host" in failed.stderr


def test_page_shows_the_files() -> None:
    page = (EXAMPLES.parents[1] / "how-to/report-hosts.rst").read_text()
    for file in EXAMPLES.iterdir():
        assert f"examples/push/{file.name}" in page
