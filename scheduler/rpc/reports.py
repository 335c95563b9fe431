# SPDX-License-Identifier: Apache-2.0
"""The way from a scheduler back to the agents that report to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import oslo_messaging

from ...objects import Serializer
from .peers import NAMESPACE

LOG = logging.getLogger(__name__)


@runtime_checkable
class AsksAgents(Protocol):
    """An endpoint of a source that may ask an agent for a whole report."""

    def connect(self, ask: Callable[[str, str, str], bool]) -> None:
        """Take the way to agents: ``ask(topic, server, node_uuid)``."""


def connect_agents(
    transport: oslo_messaging.Transport, endpoints: Iterable[object]
) -> None:
    """Give the way to agents to the endpoints that ask them."""
    for endpoint in endpoints:
        if isinstance(endpoint, AsksAgents):
            endpoint.connect(AgentAPI(transport).report_wanted)


class UnusedReports:
    """Take the reports of agents where the source of hosts does not.

    It is the last one that is asked.
    """

    target = oslo_messaging.Target(namespace=NAMESPACE, version="1.0")

    def __init__(self) -> None:
        self._is_warned = False

    def host_reports(self, context: object, reports: object) -> None:
        """Leave reports out; warn once."""
        if not self._is_warned:
            self._is_warned = True
            LOG.warning(
                "Agents report hosts, and the reports are ignored: [moorage] source is "
                "not push"
            )


class AgentAPI:
    """Ask agents over a message bus; a question may be lost and is asked again.

    Parameters
    ----------
    transport : oslo_messaging.Transport
    """

    def __init__(self, transport: oslo_messaging.Transport) -> None:
        target = oslo_messaging.Target(namespace=NAMESPACE, version="1.0")
        # Without a bound a broker that is away would hold the caller for good.
        self._client = oslo_messaging.get_rpc_client(
            transport, target, serializer=Serializer(), retry=1
        )

    def report_wanted(self, topic: str, server: str, node_uuid: str) -> bool:
        """Ask the agent that listens there for a whole report of a node.

        Return whether the broker took the question.
        """
        client = self._client.prepare(topic=topic, server=server)
        try:
            client.cast({}, "report_wanted", node_uuid=node_uuid)
        except Exception as e:  # a driver's library raises errors of its own, too
            LOG.warning("The agent %s cannot be asked for a report: %r", server, e)
            return False
        return True
