# SPDX-License-Identifier: Apache-2.0
"""systemd is notified of the state by sd_notify, if it is there."""

from __future__ import annotations

import configparser
import importlib.metadata
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.scheduler.cmd.systemd import SystemdState, notify


@pytest.fixture(params=["file", "abstract"])
def receiver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The socket of systemd."""
    path = str(tmp_path / "notify")
    is_file = request.param == "file"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path if is_file else f"\0{path}")
        listening.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", path if is_file else f"@{path}")
        yield listening


def test_states_are_reported(receiver: socket.socket) -> None:
    notify(SystemdState.READY, "4 workers serve")
    notify(SystemdState.RELOADING)
    notify(SystemdState.STOPPING)
    assert receiver.recv(512) == b"READY=1\nSTATUS=4 workers serve"
    reloading = receiver.recv(512).splitlines()
    assert reloading[0] == b"RELOADING=1"
    assert reloading[-1].startswith(b"MONOTONIC_USEC=")
    assert receiver.recv(512).splitlines()[0] == b"STOPPING=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify(SystemdState.READY)


def test_systemd_that_does_not_listen_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify(SystemdState.READY)
    assert "Notifying systemd of READY=1" in caplog.text


def test_each_service_has_a_unit_that_starts_it_and_is_installed() -> None:
    root = Path(__file__).parents[3]
    installed = configparser.ConfigParser(interpolation=None)
    installed.read(root / "setup.cfg")
    files = installed["options.data_files"]["share/moorage/systemd"].split()
    scripts = importlib.metadata.entry_points(group="console_scripts").names
    services = {name for name in scripts if name.startswith("moorage-")}
    started = set()
    for file in files:
        text = (root / file).read_text()
        [command] = re.findall(r"^ExecStart=/usr/local/bin/(\S+) ", text, re.M)
        assert file == f"etc/systemd/{command}.service"
        for line in ("ProtectSystem=strict", "NoNewPrivileges=yes", "User=nova"):
            assert f"\n{line}\n" in text
        started.add(command)
    assert started == services - {"moorage-status"}
