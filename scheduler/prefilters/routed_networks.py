# SPDX-License-Identifier: Apache-2.0
"""Ask for hosts in the segments of the routed networks that a request names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from ..placement.guest import set_field
from .base import PrefilterRequest, fits_nowhere
from .networks import NetworkLookup

if TYPE_CHECKING:
    from ...objects import NetworkRequest

_GATE = "query_placement_for_routed_network_aggregates"

#: Not networks: "take one of the project's", "take none".
_SPECIAL = frozenset({"auto", "none"})


def routed_networks_filter(request: PrefilterRequest) -> None:
    """Require, for each network, the aggregates that Placement has its segments in.

    A port with an address is bound to the segment of that subnet; any other port, and a
    network without a port, may be in every segment of the network. What is not routed
    restricts nothing. On with that option of ``[scheduler]``.

    An entry that names neither port nor network is passed over; nova 34 fails on it, or
    asks once more for the aggregates of the entry before.

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
        raise ConfigurationError(f"[scheduler] {_GATE} is on without a Neutron client")
    for wanted in set_field(request.spec_obj, "requested_networks") or ():
        if uuids := _aggregates(request.network, wanted):
            request.requirements.member_of.append(uuids)


def _aggregates(network: NetworkLookup, wanted: NetworkRequest) -> frozenset[str]:
    network_id = wanted.network_id
    if wanted.port_id:
        port = network.port(wanted.port_id)
        if port.get("fixed_ips"):
            subnet_id = port["fixed_ips"][0]["subnet_id"]
            segments = network.segments_of_subnet(subnet_id)
            return _in_aggregates(network, segments, f"subnet {subnet_id}")
        network_id = port["network_id"]
    if not network_id or network_id in _SPECIAL:
        return frozenset()
    segments = network.segments_of_network(network_id)
    return _in_aggregates(network, segments, f"network {network_id}")


def _in_aggregates(
    network: NetworkLookup, segments: frozenset[str], of: str
) -> frozenset[str]:
    found = [network.aggregates_of_segment(segment) for segment in sorted(segments)]
    if not all(found):
        raise fits_nowhere(f"Aggregates not found for the {of}")
    return frozenset().union(*found)
