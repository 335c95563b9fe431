# SPDX-License-Identifier: Apache-2.0
"""Look up ports, networks and subnets for prefilters, each at most once a request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from oslo_config import cfg

from ..errors import ConfigurationError


class NetworkClient(Protocol):
    """The methods of a Neutron client that prefilters need.

    Names and answers are those of python-neutronclient.
    """

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
    """Fetch ports, subnets and aggregates for one request, and cache each of them.

    Parameters
    ----------
    client : NetworkClient
    provider_aggregates : callable
        Returns the UUIDs of the aggregates of a resource provider. A segment of a
        network is a provider with the UUID of the segment.
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
        """Return the segment of a subnet; no segment if the subnet is not routed."""
        return _segments(self._client.show_subnet(subnet_id)["subnet"])

    def _segments_of_network(self, network_id: str) -> frozenset[str]:
        # Segments are read from the subnets: Neutron's list of a network's segments
        # also has segments of provider networks, which are not routed.
        return _segments(*self._client.list_subnets(network_id=network_id)["subnets"])


def _segments(*subnets: Mapping[str, Any]) -> frozenset[str]:
    # Without the segments extension, Neutron's subnets have no segment_id.
    return frozenset(
        subnet["segment_id"] for subnet in subnets if subnet.get("segment_id")
    )


def check_network(conf: cfg.ConfigOpts, client: NetworkClient | None) -> None:
    """Raise if an enabled prefilter needs Neutron and there is no client.

    Raises
    ------
    ConfigurationError
        Routed networks are enabled, and Neutron is not configured.
    """
    gate = "query_placement_for_routed_network_aggregates"
    if client is None and conf.scheduler[gate]:
        raise ConfigurationError(
            f"[scheduler] {gate} is enabled and needs Neutron: set auth_type, or "
            "endpoint_override, and the options that go with it in [neutron]"
        )
