# SPDX-License-Identifier: Apache-2.0
"""The port that monitoring asks: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from ..errors import ConfigurationError

LOG = logging.getLogger(__name__)

TEXT: Final = "text/plain; charset=utf-8"

#: Seconds after which a reader that says or takes nothing is left.
_READER_S: Final = 10.0
#: Connections that wait to be taken, at most.
_BACKLOG: Final = 64
#: Seconds between two looks for the end.
_LOOK_EVERY_S: Final = 0.5

#: Status, content type and body of an answer.
Answered = tuple[HTTPStatus, str, bytes]
#: Answers a GET; is given the header Accept.
Answer = Callable[[str], Answered]


def listen(address: str, port: int) -> socket.socket:
    """Take the port, before any process is forked; all of them can serve it.

    Parameters
    ----------
    address : str
        An IPv4 or IPv6 address, or a name that has one.
    port : int
        0: any that is free.

    Raises
    ------
    ConfigurationError
        It cannot be taken.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except OSError as e:
        listening.close()
        raise ConfigurationError(
            f"[telemetry] http_port {port} of http_address {address} cannot be "
            f"listened on: {e}"
        ) from e
    # Of several processes that see a connection, one gets it; the others go on.
    listening.setblocking(False)
    return listening


class Probes:
    """Answer on a port that is taken, in threads.

    Parameters
    ----------
    listening : socket.socket
        Of `listen`. It stays open when this stops: other processes have it, too.
    pages : mapping of str to callable
        What answers each path.
    look : callable
        Is called every few seconds.
    look_every_s : float
    """

    def __init__(
        self,
        listening: socket.socket,
        pages: Mapping[str, Answer],
        look: Callable[[], None],
        look_every_s: float,
    ) -> None:
        self._server = _Server(listening, pages, look, look_every_s)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _LOOK_EVERY_S},
            name="telemetry",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        listening: socket.socket,
        pages: Mapping[str, Answer],
        look: Callable[[], None],
        look_every_s: float,
    ) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # the one that socketserver made
        self.socket = listening
        self.pages = pages
        self._look = look
        self._look_every_s = look_every_s
        self._look_at = time.monotonic() + look_every_s

    def service_actions(self) -> None:
        """Look, where it is time; called by `serve_forever` at least twice a second."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + self._look_every_s
        try:
            self._look()
        except Exception:
            # Else nobody would answer any more, and the service be thought dead.
            LOG.exception("The figures of this process are out of date")

    def handle_error(
        self,
        request: object,  # noqa: ARG002 - socketserver's signature
        client_address: object,  # noqa: ARG002 - as above
    ) -> None:
        """Tell of a reader that cannot be answered."""
        LOG.warning("A reader of http_port is not answered: %r", sys.exception())


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _READER_S
    protocol_version = "HTTP/1.0"  # no reader holds a thread

    def do_GET(self) -> None:
        """Answer a page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer a page's head."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        status, content_type, body = self._page()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _page(self) -> Answered:
        pages = self.server.pages
        page = pages.get(self.path.partition("?")[0])
        if page is None:
            known = f"There are {', '.join(pages)}.\n"
            return HTTPStatus.NOT_FOUND, TEXT, known.encode()
        try:
            return page(self.headers.get("Accept", ""))
        except Exception:
            LOG.exception("GET %s failed", self.path)
            failed = b"This failed; the log says why.\n"
            return HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, failed

    def version_string(self) -> str:
        """Return the header Server, which names no version."""
        return "moorage"

    def log_message(self, format: str, *args: object) -> None:
        """Log requests for people who look for them only."""
        LOG.debug(format, *args)
