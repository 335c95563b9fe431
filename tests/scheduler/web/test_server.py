# SPDX-License-Identifier: Apache-2.0
"""The server of the HTTP API ends with its connections."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.web import make_web_server


def _app(_environ: object, respond: Any) -> list[bytes]:
    respond("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def test_it_stops_while_a_browser_keeps_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    conf = moorage_conf.load([], config_files=[])
    conf.set_override("port", 0, group="web")
    server = make_web_server(conf, _app)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as kept:
        kept.settimeout(10)
        kept.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(1000).endswith(b"ok")
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 4
        assert kept.recv(1000) == b""
    assert failures == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
