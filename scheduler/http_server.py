# SPDX-License-Identifier: Apache-2.0
"""An HTTP server of a WSGI application: waitress, in a separate thread."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, Final, Self, cast

from waitress import wasyncore
from waitress.server import create_server
from waitress.trigger import trigger

from .errors import ConfigurationError

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

#: Seconds after which an idle client is disconnected, and between two searches for idle
#: clients.
_CLIENT_TIMEOUT_S: Final = 10
#: The maximum number of bytes of a request's headers.
_MAX_HEADERS: Final = 64 * 1024
#: The maximum number of bytes of a body; an application's own limit is lower, as it
#: answers in the form that its clients read.
_MAX_BODY: Final = 4 * 1024 * 1024
_MAX_CONNECTIONS: Final = 100
#: The maximum number of connections that wait to be accepted.
_BACKLOG: Final = 64
#: Seconds that `stop` waits for the requests in progress.
_STOP_S: Final = 5


def listen(address: str, port: int, *, option: str) -> socket.socket:
    """Listen on a port; processes that are forked afterwards can all serve it.

    Parameters
    ----------
    address : str
        An IPv4 or IPv6 address, or a name that has one.
    port : int
        0: any that is free.
    option : str
        The option that has the port, such as ``[web] port``.

    Raises
    ------
    ConfigurationError
        The port cannot be listened on.
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
            f"{option}: port {port} of address {address} cannot be listened on: {e}"
        ) from e
    return listening


class WebServer:
    """Serves an application on a port, from `start` until `stop`.

    The constructor starts threads: create a server after the process was forked.

    Parameters
    ----------
    listening : socket.socket
        From `listen`. `stop` closes it in this process only.
    app : WSGI application
        The application that answers the requests.
    threads : int
        How many requests are answered at the same time; other requests wait.
    name : str
        The name of the thread that accepts connections.

    Attributes
    ----------
    port : int
        The port that is listened on.
    """

    def __init__(
        self, listening: socket.socket, app: WSGIApplication, *, threads: int, name: str
    ) -> None:
        self.port: int = listening.getsockname()[1]
        self._connections: dict[Any, Any] = {}
        # Runs a function in the thread of the connections.
        self._trigger = trigger(self._connections)
        # The type hints of waitress lack parameters that are used here.
        self._server = cast(Any, create_server)(
            app,
            self._connections,
            sockets=[listening],
            threads=threads,
            ident="moorage",
            backlog=_BACKLOG,
            channel_timeout=_CLIENT_TIMEOUT_S,
            cleanup_interval=_CLIENT_TIMEOUT_S,
            connection_limit=_MAX_CONNECTIONS,
            max_request_header_size=_MAX_HEADERS,
            max_request_body_size=_MAX_BODY,
            clear_untrusted_proxy_headers=True,
            # select() fails in a process that has more than 1024 files open.
            asyncore_use_poll=True,
        )
        self._incomplete: dict[Any, tuple[Any, float]] = {}
        self._close_idle = self._server.maintenance
        self._server.maintenance = self._close_slow
        self._thread = threading.Thread(target=self._server.run, name=name, daemon=True)

    def _close_slow(self, now: float) -> None:
        """Close idle connections, and connections whose request arrives too slowly.

        waitress regards a connection as active when a byte arrives: a few clients that
        send single bytes now and then would occupy all connections.
        """
        self._close_idle(now)
        incomplete_before, self._incomplete = self._incomplete, {}
        for channel in self._server.active_channels.values():
            request = channel.request
            if request is None:
                continue
            request_before, since = incomplete_before.get(channel, (None, now))
            began = since if request_before is request else now
            self._incomplete[channel] = request, began
            if now - began >= _CLIENT_TIMEOUT_S:
                channel.will_close = True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Answer the requests in progress, and close all connections."""
        self._server.task_dispatcher.shutdown(timeout=_STOP_S)
        # The thread that serves the connections ends after the last one.
        self._trigger.pull_trigger(
            lambda *_: wasyncore.close_all(self._connections, ignore_all=True)
        )
        self._thread.join(_STOP_S)
