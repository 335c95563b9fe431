# SPDX-License-Identifier: Apache-2.0
"""The port of metrics and probes."""

from __future__ import annotations

import logging
import socket

from oslo_config import cfg

from ..http_server import listen

LOG = logging.getLogger(__name__)


def listen_for_telemetry(conf: cfg.ConfigOpts) -> socket.socket | None:
    """Return a socket that listens on ``[telemetry] http_port``; None: it is not set.

    Raises
    ------
    ConfigurationError
        The port cannot be bound.
    """
    options = conf.telemetry
    if options.http_port is None:
        return None
    listening = listen(
        options.http_address, options.http_port, option="[telemetry] http_port"
    )
    LOG.info(
        "Serving /metrics, /healthz and /readyz on port %d of %s",
        listening.getsockname()[1], options.http_address,
    )  # fmt: skip
    return listening
