# SPDX-License-Identifier: Apache-2.0
"""moorage-agent as a process: what stops its start, and a broker that is away."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.rpc import AgentAPI, get_transport

from ..fixtures.agent_process import AgentProcess
from ..fixtures.ports import free_port
from ..fixtures.rabbitmq import Broker
from ..fixtures.waiting import wait_until

WAIT_S = 60.0


@pytest.mark.deep
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
    port = free_port()
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
            lambda: any(f"127.0.0.1:{port}" in line for line in agent.log),
            describe=lambda: "".join(agent.log),
        )
        assert agent.stop() == 0


def test_signals_at_any_moment_do_not_hang_it(tmp_path: Path) -> None:
    with AgentProcess(_config(tmp_path, "fake://")) as agent:
        for _ in range(5_000):
            agent.reload()
        assert agent.stop() == 0


def _config(folder: Path, transport_url: str) -> Path:
    file = folder / "agent.conf"
    file.write_text(
        "[DEFAULT]\ndebug = true\n"
        f"host = {uuid.uuid4()}\ntransport_url = {transport_url}\n"
        f"[agent]\ninterval = 0.5\nnode_uuid_file = {folder}/uuid\n"
    )
    return file


@pytest.mark.deep
@pytest.mark.broker
@pytest.mark.parametrize(
    ("login", "virtual_host", "cause"),
    [
        ("guest:wrong-secret", "", "Login was refused.* Check user and password"),
        (
            "guest:guest",
            "/nowhere",
            "vhost nowhere not found.* Create the virt",
        ),
    ],
    ids=["password", "virtual host"],
)
def test_broker_that_refuses_is_one_line_and_no_traceback(
    tmp_path: Path, login: str, virtual_host: str, cause: str
) -> None:
    with Broker() as broker:
        url = broker.url_of(login)
        if virtual_host:
            url = url.rpartition("/")[0] + virtual_host
        line = rf"\[DEFAULT\] transport_url = rabbit://guest:\*\*\*@\S+: .*{cause}"
        with AgentProcess(_config(tmp_path, url)) as agent:
            wait_until(lambda: any(re.search(line, each) for each in agent.log))
            assert agent.stop() == 0
    log = "".join(agent.log)
    assert "Traceback" not in log
    assert "secret" not in log


@pytest.mark.deep
@pytest.mark.broker
def test_agent_answers_once_its_broker_user_exists(tmp_path: Path) -> None:
    name = f"agent-{uuid.uuid4().hex[:8]}"
    with Broker() as broker:
        file = _config(tmp_path, broker.url_of(f"{name}:secret"))
        conf = load([], config_files=[str(file)])
        transport = get_transport(conf, broker.transport_url)
        with AgentProcess(file) as agent:
            wait_until(lambda: any("Login was refused" in line for line in agent.log))
            broker.add_user(name, "secret")
            node_uuid = wait_until(lambda: (tmp_path / "uuid").read_text().strip())

            def answers() -> bool:
                return any(f"whole report of {node_uuid}" in line for line in agent.log)

            def is_requested() -> bool:
                AgentAPI(transport).report_wanted("moorage-agent", conf.host, node_uuid)
                return answers()

            wait_until(
                is_requested, interval_s=0.2, describe=lambda: "".join(agent.log)
            )
        transport.cleanup()
