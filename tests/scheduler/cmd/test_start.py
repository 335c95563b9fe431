# SPDX-License-Identifier: Apache-2.0
"""An operator's mistake ends the start of moorage-scheduler with one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...fixtures.clouds import host, write_inventory
from ...fixtures.forked_starts import Start, forked_starts

PLACEMENT = "[placement]\nauth_type = none\nendpoint_override = http://127.0.0.1:1\n"
STORE = f"{PLACEMENT}[moorage]\nsource = push\nstore_connection = "
DATABASE = f"{PLACEMENT}[moorage]\nsource = nova_db\n[api_database]\nconnection = "


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with forked_starts("daemon") as start:
        yield start


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("[DEFAULT]\nlog_file = /proc/none/x.log", "log_file = ", id="log"),
        pytest.param(
            "[DEFAULT]\nlog_config_append = /proc/none", "append = /proc", id="append"
        ),
        pytest.param(
            "[DEFAULT]\ntransport_url = rabbit://u:secret@h:56x/",
            "[DEFAULT] transport_url = rabbit://u:***@h:56x/: ",
            id="broker's port",
        ),
        pytest.param(
            "[oslo_messaging_notifications]\ndriver = messagingv2\n"
            "transport_url = rabbit://u:secret@h:56x/",
            "[oslo_messaging_notifications] transport_url = rabbit://u:***@h:56x/: ",
            id="notifications' port",
        ),
        pytest.param(
            "[oslo_messaging_rabbit]\nheartbeat_rate = x",
            "[oslo_messaging_rabbit] heartbeat_rate = x: ",
            id="option of oslo.messaging",
        ),
        pytest.param(
            "[moorage]\nsource = nowhere\n" + PLACEMENT,
            "[moorage] source = nowhere: ",
            id="source",
        ),
        pytest.param(
            "[moorage]\nsource = nowhere\n",
            "[moorage] source = nowhere: ",
            id="source without a Placement",
        ),
        pytest.param(
            "[moorage]\nsource = push\n",
            "the embedded Placement would be used, which has no hosts",
            id="embedded",
        ),
        pytest.param(f"{STORE}sqlite:////proc/x/y", "No such file", id="directory"),
        pytest.param(f"{STORE}mysql://u:secret@h:x/d", ":***@h:x/d", id="store"),
        pytest.param(
            f"{DATABASE}mysql+pymysql://u:secret@h:x/d",
            "[api_database] connection = mysql+pymysql://u:***@h:x/d: ",
            id="API database",
        ),
        pytest.param(
            "[placement]\nauth_section = nowhere",
            "auth_section = nowhere: there is no auth_type in [nowhere]",
            id="auth_section",
        ),
        pytest.param(
            "[neutron]\nauth_type = guess", "[neutron] auth_type", id="neutron"
        ),
    ],
)
def test_mistake_is_one_line(
    start: Start, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "moorage.conf"
    inventory = write_inventory(tmp_path, host("h1"))
    file.write_text(f"[moorage]\ninventory_file = {inventory}\n{text}\n")
    status, printed = start(file)
    assert status == 1
    lines = [line for line in printed.splitlines() if " WARNING " not in line]
    assert [line for line in lines if " INFO " not in line] == [lines[-1]]
    assert lines[-1].startswith("moorage-scheduler: ")
    assert words in lines[-1]
    assert "secret" not in printed


@pytest.mark.deep
@pytest.mark.parametrize("module", ["scheduler.cmd.scheduler", "scheduler.cmd.status"])
def test_shell_completion_that_oslo_config_lacks_is_one_line(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", f"moorage.{module}", "--shell_completion", "bash"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    # Some packages of oslo.config have its templates.
    if ended.returncode != 0:
        assert len(ended.stderr.splitlines()) == 1
        assert "--shell_completion cannot be used" in ended.stderr


@pytest.mark.deep
def test_eventlet_is_not_warned_of() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import moorage.scheduler.service"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stderr == ""
