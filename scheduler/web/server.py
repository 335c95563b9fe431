# SPDX-License-Identifier: Apache-2.0
"""The server of the HTTP API, as ``[web]`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oslo_config import cfg

from ..errors import ConfigurationError
from ..http_server import WebServer, listen
from ..placement.allocations.limits import WEB_THREADS

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication


def make_web_server(conf: cfg.ConfigOpts, app: WSGIApplication) -> WebServer:
    """Return a server that listens already.

    Parameters
    ----------
    app : WSGI application
        Restricted already; see `make_access`.

    Raises
    ------
    ConfigurationError
        The port is not set, or cannot be listened on.
    """
    options = conf.web
    if options.port is None:
        raise ConfigurationError(
            "[web] port is not set: set the port on which to serve the HTTP API"
        )
    listening = listen(options.address, options.port, option="[web] port")
    return WebServer(listening, app, threads=WEB_THREADS, name="moorage web")
