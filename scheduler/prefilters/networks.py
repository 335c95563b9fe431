# SPDX-License-Identifier: Apache-2.0
"""What Neutron is asked for prefilters: each object at most once a request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from oslo_config import cfg

from ..errors import ConfigurationError


class NetworkClient(Protocol):
    """What is called of a Neutron client; python-neutronclient's has these methods."""

    def show_port(self, port: str) -> Mapping[str, Any]:
        """Return ``{"port": {…}}``."""
        ...

    def show_subnet(self, subnet: str) -> Mapping[str, Any]:
        """Return ``{"subnet": {…}}``."""
        ...

    def list_subnets(self, *, network_id: str) -> Mapping[str, Any]:
        """Return ``{"subnets": [{…}, …]}`` of one network."""
        ...


class NetworkLookup:
    """Answer one request's questions, each of them asked once.

    Parameters
    ----------
    client : NetworkClient
    provider_aggregates : callable
        Returns the UUIDs of the aggregates that Placement has a provider in; a
        segment of a network is a provider under its own UUID.
    """

    def __init__(
        self,
        client: NetworkClient,
        provider_aggregates: Callable[[str], frozenset[str]],
    ) -> None:
        self._client = client
        self.port = functools.cache(self._port)
        self.segments_of_subnet = functools.cache(self._segments_of_subnet)
        self.segments_of_network = functools.cache(self._segments_of_network)
        self.aggregates_of_segment = functools.cache(provider_aggregates)

    def _port(self, port_id: str) -> Mapping[str, Any]:
        port: Mapping[str, Any] = self._client.show_port(port_id)["port"]
        return port

    def _segments_of_subnet(self, subnet_id: str) -> frozenset[str]:
        """Return the segment of a subnet; none where it is not routed."""
        return _segments(self._client.show_subnet(subnet_id)["subnet"])

    def _segments_of_network(self, network_id: str) -> frozenset[str]:
        # Neutron's own list of segments has those of provider networks, too.
        return _segments(*self._client.list_subnets(network_id=network_id)["subnets"])


def _segments(*subnets: Mapping[str, Any]) -> frozenset[str]:
    # Without its segments extension, Neutron tells of no segment_id.
    return frozenset(s["segment_id"] for s in subnets if s.get("segment_id"))


def check_network(conf: cfg.ConfigOpts, client: NetworkClient | None) -> None:
    """Refuse options that need Neutron where there is no client of it.

    Raises
    ------
    ConfigurationError
        Routed networks are to be looked up, and Neutron is not configured.
    """
    gate = "query_placement_for_routed_network_aggregates"
    if client is None and conf.scheduler[gate]:
        raise ConfigurationError(
            f"[scheduler] {gate} is on, for which Neutron has to be asked: set "
            "auth_type, or endpoint_override, and what belongs to it in [neutron]"
        )
