# SPDX-License-Identifier: Apache-2.0
"""Receive what agents cast, for a source with endpoints, such as push."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence

from oslo_config import cfg

from ..rpc import (
    PEERS_TOPIC,
    SchedulerRPCServer,
    connect_agents,
    get_server,
    get_transport,
    start_all,
)
from ..rpc.broker import broker_failure, retry_until_done

LOG = logging.getLogger(__name__)


class AgentListener:
    """Serves a source's endpoints on the message bus until `stop`.

    Raises
    ------
    ConfigurationError
        The options of the message bus are invalid.
    """

    def __init__(self, conf: cfg.ConfigOpts, endpoints: Sequence[object]) -> None:
        self._conf = conf
        self._endpoints = endpoints
        self._transport = get_transport(conf)
        connect_agents(self._transport, endpoints)
        self._stopping = threading.Event()
        self._server: SchedulerRPCServer | None = None
        #: Why no reports are received; "": they are.
        self.trouble = "The message bus of the agents is not connected yet."

    def start(self) -> None:
        """Start listening in the background, once the broker is reachable."""
        threading.Thread(
            target=retry_until_done,
            args=(self._begin, self._stopping),
            name="starting",
            daemon=True,
        ).start()

    def _begin(self) -> bool:
        server = get_server(
            self._conf, self._transport, list(self._endpoints), PEERS_TOPIC
        )
        if (error := start_all([server])) is not None:
            self.trouble = f"{broker_failure(self._conf, error)}"
            LOG.warning("Listening to agents failed, retrying: %s", self.trouble)
            return False
        self._server, self.trouble = server, ""
        return True

    def stop(self) -> None:
        """Stop listening, and close the connections."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop()
            self._server.wait()
        # The broker's library may raise anything.
        with contextlib.suppress(Exception):
            self._transport.cleanup()
