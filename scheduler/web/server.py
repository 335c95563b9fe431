# SPDX-License-Identifier: Apache-2.0
"""The server of the HTTP API: waitress, in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from oslo_config import cfg
from waitress.server import BaseWSGIServer, create_server
from waitress.wasyncore import close_all

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

LOG = logging.getLogger(__name__)

#: Seconds after which an idle client is disconnected.
_CLIENT_TIMEOUT_S: Final = 30
#: Bytes of a request's headers; names are bounded.
_MAX_HEADERS: Final = 64 * 1024
_MAX_BODY: Final = 1024 * 1024
_MAX_CONNECTIONS: Final = 100
_STOP_S: Final = 5


class WebServer:
    """Serves an application as ``[web]`` says, from `start` until `stop`.

    Parameters
    ----------
    app : WSGI application
        Restricted already; see `make_access`.

    Attributes
    ----------
    port : int
        The port that is listened on.

    Raises
    ------
    ConfigurationError
        The port is not set, or cannot be listened on.
    """

    def __init__(self, conf: cfg.ConfigOpts, app: WSGIApplication) -> None:
        options = conf.web
        if options.port is None:
            raise ConfigurationError(
                "[web] port is not set: set the port on which to serve the HTTP API"
            )
        listening = _listen(options.address, options.port)
        self.port: int = listening.getsockname()[1]
        # The listening socket, and all connections.
        self._open: dict[int, Any] = {}
        server = create_server(
            app,
            map=self._open,
            sockets=[listening],
            threads=options.threads,
            ident="moorage",
            channel_timeout=_CLIENT_TIMEOUT_S,
            connection_limit=_MAX_CONNECTIONS,
            max_request_header_size=_MAX_HEADERS,
            max_request_body_size=_MAX_BODY,
            clear_untrusted_proxy_headers=True,
        )
        assert isinstance(server, BaseWSGIServer)  # it has one socket
        self._server = server
        self._thread = threading.Thread(
            target=self._server.run, name="moorage web", daemon=True
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, and close all connections."""
        # In the server's thread, which waits for all of them.
        trigger: Any = self._server.trigger
        trigger.pull_trigger(lambda: close_all(self._open))
        self._thread.join(_STOP_S)
        self._server.task_dispatcher.shutdown(timeout=_STOP_S)


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
    except OSError as e:
        listening.close()
        raise ConfigurationError(
            f"[web] port {port} of address {address} cannot be listened on: {e}"
        ) from e
    return listening
