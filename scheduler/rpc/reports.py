# SPDX-License-Identifier: Apache-2.0
"""Request host reports from agents, and receive the deletions of instances."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import oslo_messaging

from ...objects import Serializer
from ..hosts.columns import read_uuids
from .peers import NAMESPACE

LOG = logging.getLogger(__name__)


@runtime_checkable
class RequestsReports(Protocol):
    """An endpoint of a source that requests whole reports from agents."""

    def connect(self, send: Callable[[str, str, str], bool]) -> None:
        """Set the callback for requests: ``send(topic, server, node_uuid)``."""


def connect_agents(
    transport: oslo_messaging.Transport, endpoints: Iterable[object]
) -> None:
    """Connect the endpoints that request reports to the agents."""
    for endpoint in endpoints:
        if isinstance(endpoint, RequestsReports):
            endpoint.connect(AgentAPI(transport).report_wanted)


class MarksDeleted(Protocol):
    """The part of a source of hosts that receives the deletions of instances."""

    def mark_deleted(self, instance_uuids: Iterable[str]) -> None:
        """Record that these instances were deleted for good."""


class DeletionEndpoint:
    """Receives the deletions of instances, which conductors cast to all schedulers."""

    target = oslo_messaging.Target(namespace=NAMESPACE, version="1.2")

    def __init__(self, source: MarksDeleted) -> None:
        self._source = source

    def instances_deleted(self, context: object, instance_uuids: object) -> None:
        """Record instances that were deleted, or will never be built."""
        try:
            self._source.mark_deleted(read_uuids(instance_uuids))
        except ValueError as e:
            LOG.warning("instances_deleted: %s; the cast is ignored", e)


class IgnoredReports:
    """Ignores the reports of agents if the source of hosts does not use them.

    It must be the last endpoint, so that the endpoint of a source takes precedence.
    """

    target = oslo_messaging.Target(namespace=NAMESPACE, version="1.0")

    def __init__(self) -> None:
        self._is_warned = False

    def host_reports(self, context: object, reports: object) -> None:
        """Ignore reports; warn once."""
        if not self._is_warned:
            self._is_warned = True
            LOG.warning(
                "Ignoring the host reports of agents: [moorage] source is not push"
            )


class AgentAPI:
    """Calls agents over a message bus; a lost request is repeated by the source.

    Parameters
    ----------
    transport : oslo_messaging.Transport
    """

    def __init__(self, transport: oslo_messaging.Transport) -> None:
        target = oslo_messaging.Target(namespace=NAMESPACE, version="1.0")
        # Without a limit, an unreachable broker would block the caller forever.
        self._client = oslo_messaging.get_rpc_client(
            transport, target, serializer=Serializer(), retry=1
        )

    def report_wanted(self, topic: str, server: str, node_uuid: str) -> bool:
        """Request a whole report of a node from the agent that serves this topic.

        Return whether the broker accepted the request.
        """
        client = self._client.prepare(topic=topic, server=server)
        try:
            client.cast({}, "report_wanted", node_uuid=node_uuid)
        except Exception as e:  # a driver's library raises errors of its own, too
            LOG.warning("Requesting a report from agent %s failed: %r", server, e)
            return False
        return True
