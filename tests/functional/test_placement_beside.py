# SPDX-License-Identifier: Apache-2.0
"""The lines of doc/how-to/choose-a-driver.rst for a cloud without Placement work."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.placement.adapter import make_adapter
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory

from ..fixtures.clouds import CONTEXT, new_uuids, request
from ..fixtures.ports import free_port
from ..fixtures.waiting import wait_until

_DOC = Path(__file__).parents[2] / "doc"
_PORT = "8778"


def _section() -> str:
    page = (_DOC / "how-to/choose-a-driver.rst").read_text("utf-8")
    return page.partition(".. _without-placement:")[2]


def _block(kind: str) -> str:
    [block] = re.findall(rf"code-block:: {kind}\n\n((?: {{3}}.*\n|\n)+)", _section())
    return textwrap.dedent(block).strip()


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """The configuration of a scheduler whose Placement the lines of the page run."""
    [_, *lines] = _block("console").replace("$ ", "").splitlines()
    assert len(lines) == 4
    port = str(free_port())
    script = "\n".join(lines).replace(_PORT, port)
    script, n_replaced = re.subn(
        r"mysql\+pymysql:\S+", f"sqlite:///{tmp_path}/placement.sqlite", script
    )
    assert n_replaced == 1
    # SQLite loses writes of concurrent threads.
    script = script.replace("waitress-serve", "exec waitress-serve --threads=1")
    bin_ = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    bash = shutil.which("bash")
    assert bash is not None
    path = tmp_path / "moorage.conf"
    path.write_text(_block("ini").replace(_PORT, port))
    with subprocess.Popen(
        [bash, "-e", "-c", script],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:

        def answers() -> bool:
            assert process.poll() is None, "Placement has ended"
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", int(port))) == 0

        try:
            wait_until(answers)
            yield path
        finally:
            process.terminate()


def _select(scheduler: Scheduler) -> tuple[str, str]:
    [uuid] = new_uuids()
    answer = scheduler.select_destinations(
        CONTEXT, request(memory_mb=64, root_gb=0), [uuid], True, True
    )
    return uuid, answer[0][0].compute_node_uuid  # type: ignore[index]


@pytest.mark.deep
def test_scheduler_claims_in_the_placement_beside_it(config: Path) -> None:
    conf = load(config_files=[str(config)])
    hosts = _DOC / "examples/hosts.yaml"
    conf.set_override("inventory_file", str(hosts), group="moorage")
    client = PlacementClient(make_adapter(conf))
    # What agents do for the hosts that they report.
    seed(client, providers(read_inventory(hosts)))
    scheduler = build(conf)
    scheduler.start()
    try:
        uuid, node = _select(scheduler)
    finally:
        scheduler.stop()
    assert list(client.allocations(uuid).resources) == [node]


def test_single_process_needs_no_more_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(_DOC / "examples/hosts.yaml", tmp_path / "hosts.yaml")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Scheduler] = {}
    exec(_block("python"), names)
    scheduler = names["scheduler"]
    try:
        uuid, node = _select(scheduler)
        held = scheduler.placement.allocations(uuid).resources
    finally:
        scheduler.stop()
    assert list(held) == [node]
