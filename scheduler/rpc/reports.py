# SPDX-License-Identifier: Apache-2.0
"""The way from a scheduler back to the agents that report to it."""

from __future__ import annotations

import logging

import oslo_messaging

from ...objects import Serializer

LOG = logging.getLogger(__name__)


class AgentAPI:
    """Ask agents over a message bus; a question may be lost and is asked again.

    Parameters
    ----------
    transport : oslo_messaging.Transport
    """

    def __init__(self, transport: oslo_messaging.Transport) -> None:
        target = oslo_messaging.Target(namespace="moorage", version="1.0")
        # Without a bound a broker that is away would hold the caller for good.
        self._client = oslo_messaging.get_rpc_client(
            transport, target, serializer=Serializer(), retry=1
        )

    def report_wanted(self, topic: str, server: str, node_uuid: str) -> None:
        """Ask the agent that listens there for a whole report of a node."""
        client = self._client.prepare(topic=topic, server=server)
        try:
            client.cast({}, "report_wanted", node_uuid=node_uuid)
        except oslo_messaging.MessagingException as e:
            LOG.warning("The agent %s cannot be asked for a report: %s", server, e)
