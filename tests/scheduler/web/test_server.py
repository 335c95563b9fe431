# SPDX-License-Identifier: Apache-2.0
"""The server of the HTTP API ends with its connections."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
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
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    with contextlib.closing(kept):
        kept.request("GET", "/")
        assert kept.getresponse().read() == b"ok"
        server.stop()
        # It would end with the connection, and `stop` would give up waiting for it.
        assert not [t for t in threading.enumerate() if t.name == "moorage web"]
        assert kept.sock.recv(1000) == b""
    assert failures == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
