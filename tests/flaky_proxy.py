# SPDX-License-Identifier: Apache-2.0
"""A proxy before a Placement that loses, delays and doubles what was committed."""

from __future__ import annotations

import enum
import random
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fixtures
import requests

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "host"})


class Fault(enum.Enum):
    """What the proxy does to one request that Placement has answered."""

    LOSE = "break the connection before the answer"
    DELAY = "answer when the client has given up"
    DOUBLE = "send it twice, answer once"


class FlakyProxy(fixtures.Fixture):
    """Forward requests, and spoil a share of those that write.

    Parameters
    ----------
    target_url : str
    share : float
        Of the writes that are spoilt, 0 to 1.
    delay_s : float
        How long a delayed answer takes, unless it is let go.
    faults : sequence of Fault
        What is done, one as often as the other.

    Attributes
    ----------
    url : str
    n_faults : dict
        How often each was done.
    n_delayed : int
        How many writes are done, and not answered yet.
    """

    def __init__(
        self,
        target_url: str,
        *,
        share: float,
        delay_s: float,
        faults: Sequence[Fault] = tuple(Fault),
    ) -> None:
        super().__init__()
        self.target_url = target_url
        self._share = share
        self.delay_s = delay_s
        self._rng = random.Random(0)
        self._lock = threading.Lock()
        self._faults = faults
        self.n_faults = dict.fromkeys(Fault, 0)
        self.n_delayed = 0
        self._is_let_go = threading.Event()

    def _setUp(self) -> None:
        handler = type("_Proxied", (_Proxy,), {"owner": self})
        server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def fault_of(self, verb: str) -> Fault | None:
        """Choose what is done to the next request."""
        with self._lock:
            if verb == "GET" or self._rng.random() >= self._share:
                return None
            fault = self._rng.choice(self._faults)
            self.n_faults[fault] += 1
            return fault

    def delay(self) -> None:
        """Keep back an answer."""
        with self._lock:
            self.n_delayed += 1
        self._is_let_go.wait(self.delay_s)
        with self._lock:
            self.n_delayed -= 1

    def let_go(self) -> None:
        """Delay nothing any more, nor what is delayed now."""
        self._is_let_go.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    owner: FlakyProxy

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.owner.fault_of(self.command)
        answer = self._forwarded(body)
        if fault is Fault.DOUBLE:
            self._forwarded(body)
        if fault is Fault.DELAY:
            self.owner.delay()
        if fault is Fault.LOSE or answer is None:
            self.close_connection = True
            return
        self._say(answer)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any

    def _forwarded(self, body: bytes) -> requests.Response | None:
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in _HOP_BY_HOP
        }
        url = self.owner.target_url + self.path
        try:
            return requests.request(
                self.command, url, data=body, headers=headers, timeout=60
            )
        except requests.ConnectionError:
            return None

    def _say(self, answer: Any) -> None:
        try:
            self.send_response(answer.status_code)
            if kind := answer.headers.get("Content-Type"):
                self.send_header("Content-Type", kind)
            if answer.status_code != 204:
                self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)
        except OSError:
            self.close_connection = True  # the client has given up
