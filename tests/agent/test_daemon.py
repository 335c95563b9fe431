# SPDX-License-Identifier: Apache-2.0
"""moorage-agent as a process: what stops its start, and a broker that is away."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ..fixtures.agent_process import AgentProcess
from ..fixtures.waiting import wait_until

WAIT_S = 60.0


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["[agent]", "interval = often"], "interval"),
        (["[agent]", "disk_path = /nowhere"], "/nowhere"),
        (["[agent]", "instances_path = /nowhere"], "/nowhere"),
        (["[agent]", "node_uuid_file = /dev/null/uuid"], "node_uuid_file"),
        (["[DEFAULT]", "transport_url = pigeon://"], "pigeon"),
        (["[placement]", "auth_type = guess"], "auth_type"),
    ],
)
def test_wrong_option_stops_the_start(
    tmp_path: Path, lines: list[str], words: str
) -> None:
    file = tmp_path / "agent.conf"
    own = [] if "node_uuid_file" in words else [f"node_uuid_file = {tmp_path}/uuid"]
    parts = ["[DEFAULT]", "transport_url = fake://", "[agent]", *own, *lines]
    file.write_text("\n".join(parts))
    command = [sys.executable, "-W", "ignore", "-m", "moorage.agent.cmd"]
    ended = subprocess.run(
        [*command, "--config-file", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("moorage-agent: ")
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_agent_without_a_broker_goes_on_and_can_be_stopped(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    file = tmp_path / "agent.conf"
    file.write_text(
        "[DEFAULT]\n"
        f"transport_url = rabbit://guest:guest@127.0.0.1:{port}/\n"
        "[agent]\n"
        "interval = 0.1\n"
        f"node_uuid_file = {tmp_path}/uuid\n"
    )
    with AgentProcess(file) as agent:
        wait_until(
            lambda: any("bus does not do its part" in line for line in agent.log),
            describe=lambda: "".join(agent.log),
        )
        assert agent.stop() == 0
