# SPDX-License-Identifier: Apache-2.0
"""The HTTP port for monitoring: `/metrics`, `/healthz`, `/readyz`."""

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

#: Seconds after which an idle client is disconnected.
_CLIENT_TIMEOUT_S: Final = 10.0
#: Connections that wait to be accepted, at most.
_BACKLOG: Final = 64
#: Seconds between two checks for shutdown.
_SHUTDOWN_POLL_S: Final = 0.5

#: Status, content type and body.
PageResponse = tuple[HTTPStatus, str, bytes]
#: Returns the response to a GET; the argument is the header Accept.
Page = Callable[[str], PageResponse]


def listen(address: str, port: int) -> socket.socket:
    """Bind the port before any process is forked, so that all of them can serve it.

    Parameters
    ----------
    address : str
        An IPv4 or IPv6 address, or a name that has one.
    port : int
        0: any that is free.

    Raises
    ------
    ConfigurationError
        The port cannot be bound.
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
    # Several processes wake for a connection; the one that gets it serves it, and the
    # others must not block.
    listening.setblocking(False)
    return listening


class MonitoringServer:
    """Serve pages on a bound port, in threads.

    Parameters
    ----------
    listening : socket.socket
        From `listen`. It stays open when this stops: other processes use it, too.
    pages : mapping of str to callable
        The pages by path.
    refresh : callable
        Called every `refresh_every_s`.
    refresh_every_s : float
    """

    def __init__(
        self,
        listening: socket.socket,
        pages: Mapping[str, Page],
        refresh: Callable[[], None],
        refresh_every_s: float,
    ) -> None:
        self._server = _Server(listening, pages, refresh, refresh_every_s)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _SHUTDOWN_POLL_S},
            name="telemetry",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        listening: socket.socket,
        pages: Mapping[str, Page],
        refresh: Callable[[], None],
        refresh_every_s: float,
    ) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # the one that socketserver creates
        self.socket = listening
        self.pages = pages
        self._refresh = refresh
        self._refresh_every_s = refresh_every_s
        self._refresh_due = time.monotonic() + refresh_every_s

    def service_actions(self) -> None:
        """Refresh if due; called by `serve_forever` at least twice a second."""
        if time.monotonic() < self._refresh_due:
            return
        self._refresh_due = time.monotonic() + self._refresh_every_s
        try:
            self._refresh()
        except Exception:
            # An exception would end the thread, and probes would find the port dead.
            LOG.exception("Refreshing this process's metrics failed; they are stale")

    def handle_error(
        self,
        request: object,  # noqa: ARG002 - socketserver's signature
        client_address: object,  # noqa: ARG002 - as above
    ) -> None:
        """Log a client that cannot be served."""
        LOG.warning("Serving a client of http_port failed: %r", sys.exception())


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_TIMEOUT_S
    protocol_version = "HTTP/1.0"  # no client holds a thread

    def do_GET(self) -> None:
        """Send a page."""
        self._send_page(with_body=True)

    def do_HEAD(self) -> None:
        """Send the headers of a page."""
        self._send_page(with_body=False)

    def _send_page(self, *, with_body: bool) -> None:
        status, content_type, body = self._page()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _page(self) -> PageResponse:
        pages = self.server.pages
        page = pages.get(self.path.partition("?")[0])
        if page is None:
            known = f"Not found; available: {', '.join(pages)}.\n"
            return HTTPStatus.NOT_FOUND, TEXT, known.encode()
        try:
            return page(self.headers.get("Accept", ""))
        except Exception:
            LOG.exception("GET %s failed", self.path)
            failed = b"Internal error; see the log.\n"
            return HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, failed

    def version_string(self) -> str:
        """Return the header Server, without a version."""
        return "moorage"

    def log_message(self, format: str, *args: object) -> None:
        """Log requests at the level DEBUG."""
        LOG.debug(format, *args)
