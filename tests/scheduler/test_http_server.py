# SPDX-License-Identifier: Apache-2.0
"""A server answers, whatever its clients do, and stops at once."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from moorage.scheduler import http_server
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.http_server import WebServer, listen

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

OPTION = "[web] port"
#: A limit, not an expectation.
TIMEOUT_S = 60.0


def _hello(_environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
    respond("200 OK", [("Content-Length", "5")])
    return [b"hello"]


@contextlib.contextmanager
def _serving(
    app: WSGIApplication = _hello, threads: int = 2
) -> Iterator[http.client.HTTPConnection]:
    listening = listen("127.0.0.1", 0, option=OPTION)
    with WebServer(listening, app, threads=threads, name="served") as server:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        with contextlib.closing(client):
            yield client


def _get(client: http.client.HTTPConnection) -> bytes:
    client.request("GET", "/")
    return client.getresponse().read()


def test_port_in_use_stops_the_start() -> None:
    with listen("127.0.0.1", 0, option=OPTION) as used:
        port = used.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"\[web\] port: port {port} of"):
            listen("127.0.0.1", port, option=OPTION)


def test_ipv6_can_be_listened_on() -> None:
    with listen("::1", 0, option=OPTION) as listening:
        assert listening.family == socket.AF_INET6


def test_a_stop_does_not_wait_for_idle_connections() -> None:
    with _serving() as client:
        assert _get(client) == b"hello"
    # It would end with the connection, and `stop` would give up waiting for it.
    assert not [t for t in threading.enumerate() if t.name == "served"]


def test_the_port_is_closed_after_a_stop() -> None:
    with _serving() as client:
        pass
    with pytest.raises(ConnectionRefusedError):
        client.connect()


def test_a_request_in_progress_is_answered_by_a_server_that_stops() -> None:
    is_called, may_answer = threading.Event(), threading.Event()

    def slow(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        is_called.set()
        may_answer.wait(30)
        return _hello(environ, respond)

    listening = listen("127.0.0.1", 0, option=OPTION)
    server = WebServer(listening, slow, threads=1, name="served")
    server.start()
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(client):
        client.request("GET", "/")
        is_called.wait(30)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        may_answer.set()
        assert client.getresponse().read() == b"hello"
        stopping.join(30)


@pytest.fixture
def many_files() -> Iterator[None]:
    """More open files than select() can watch."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"a process may open only {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with contextlib.ExitStack() as opened:
        for _ in range(1100):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_process_with_many_open_files_serves() -> None:
    with _serving() as client:
        assert _get(client) == b"hello"


def test_silent_clients_do_not_block_others() -> None:
    with _serving(threads=1) as client, contextlib.ExitStack() as silent:
        for _ in range(20):
            address = ("127.0.0.1", client.port)
            silent.enter_context(socket.create_connection(address, timeout=30))
        assert _get(client) == b"hello"


def test_a_request_that_arrives_too_slowly_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_CLIENT_TIMEOUT_S", 1)
    with _serving() as client:
        address = ("127.0.0.1", client.port)
        with socket.create_connection(address, timeout=0.1) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nX: ")
            end = time.monotonic() + TIMEOUT_S
            while time.monotonic() < end:
                try:
                    slow.sendall(b"a")
                    if not slow.recv(1):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            assert time.monotonic() < end
        assert _get(client) == b"hello"
