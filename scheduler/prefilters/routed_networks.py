# SPDX-License-Identifier: Apache-2.0
"""Require hosts in the segments of the requested routed networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from .base import PrefilterRequest, no_valid_host
from .networks import NetworkLookup

if TYPE_CHECKING:
    from ...objects import NetworkRequest

_GATE = "query_placement_for_routed_network_aggregates"

#: Not network IDs: "use one of the project's", "use none".
_NO_NETWORK = frozenset({"auto", "none"})


def routed_networks_filter(request: PrefilterRequest) -> None:
    """Require, for each network, the aggregates of its segments in Placement.

    A port with an address is bound to the segment of its subnet; any other port, and a
    network without a port, may use every segment of the network. A network that is not
    routed restricts nothing. Enabled by
    ``[scheduler] query_placement_for_routed_network_aggregates``.

    An entry with neither port nor network is skipped; nova 34 fails on it, or requires
    the aggregates of the previous entry again.

    Raises
    ------
    NoValidHost
        A segment is in no aggregate.
    NetworkError, PlacementError
        Neutron or Placement do not answer.
    """
    if not request.conf.scheduler[_GATE]:
        return
    if request.network is None:
        raise ConfigurationError(f"[scheduler] {_GATE} needs a Neutron client")
    for requested in request.parsed.field("requested_networks") or ():
        if uuids := _aggregates(request.network, requested):
            request.requirements.member_of.append(uuids)


def _aggregates(network: NetworkLookup, requested: NetworkRequest) -> frozenset[str]:
    network_id = requested.network_id
    if requested.port_id:
        port = network.port(requested.port_id)
        if port.get("fixed_ips"):
            subnet_id = port["fixed_ips"][0]["subnet_id"]
            segments = network.segments_of_subnet(subnet_id)
            return _in_aggregates(network, segments, f"subnet {subnet_id}")
        network_id = port["network_id"]
    if not network_id or network_id in _NO_NETWORK:
        return frozenset()
    segments = network.segments_of_network(network_id)
    return _in_aggregates(network, segments, f"network {network_id}")


def _in_aggregates(
    network: NetworkLookup, segments: frozenset[str], of: str
) -> frozenset[str]:
    found = [network.aggregates_of_segment(segment) for segment in sorted(segments)]
    if not all(found):
        raise no_valid_host(f"Aggregates not found for the {of}")
    return frozenset().union(*found)
