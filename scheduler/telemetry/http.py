# SPDX-License-Identifier: Apache-2.0
"""The HTTP port for monitoring: a WSGI application on a socket of several processes."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

LOG = logging.getLogger(__name__)

#: Seconds after which an idle client is disconnected.
_CLIENT_TIMEOUT_S: Final = 10.0
#: Connections that wait to be accepted, at most.
_BACKLOG: Final = 64


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


class MonitoringServer(ThreadingMixIn, WSGIServer):
    """Serves an application on a bound port, in threads, until `stop`.

    Parameters
    ----------
    listening : socket.socket
        From `listen`. It stays open when this stops: other processes use it, too.
    refresh : callable
        Called every `refresh_every_s`.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        listening: socket.socket,
        app: WSGIApplication,
        refresh: Callable[[], None],
        refresh_every_s: float,
    ) -> None:
        address = listening.getsockname()[:2]
        super().__init__(address, _Handler, bind_and_activate=False)
        self.socket.close()  # the one that socketserver creates
        self.socket = listening
        self.server_name, self.server_port = address
        self.setup_environ()
        self.set_app(app)
        self._refresh = refresh
        self._refresh_every_s = refresh_every_s
        self._refresh_due = time.monotonic() + refresh_every_s
        self._thread = threading.Thread(
            target=self.serve_forever, name="telemetry", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self.shutdown()
        self._thread.join()

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
        """Log a client that cannot be served; one that sends nothing is none."""
        if isinstance(sys.exception(), TimeoutError):
            return
        LOG.warning("Serving a client of http_port failed: %r", sys.exception())


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:
        """Log requests at the level DEBUG."""
        LOG.debug(format, *args)
