# SPDX-License-Identifier: Apache-2.0
"""Prefilters that look up the requested ports and networks in Neutron."""

from __future__ import annotations

from typing import TYPE_CHECKING

import os_traits
from oslo_utils import strutils

from ..errors import ConfigurationError
from ..request import Request, get_field
from .base import PrefilterRequest, no_valid_host
from .networks import NetworkLookup

if TYPE_CHECKING:
    from ...objects import NetworkRequest

_GATE = "query_placement_for_routed_network_aggregates"
#: Values in place of a network ID: "auto" requests a network of the project, "none"
#: requests no network.
_NO_NETWORK = frozenset({"auto", "none"})
#: The tag in the spec of the PCI request for a port that a SmartNIC's DPU manages.
_REMOTE_TAG = "remote_managed"
#: The VNIC type of such a port.
_REMOTE_VNIC_TYPE = "remote-managed"


def remote_managed_ports_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_REMOTE_MANAGED_PORTS`` if a port is remote-managed.

    nova's API adds a PCI request for each remote-managed port, so that ports with a PCI
    request are not looked up. Ports without a PCI request are fetched from Neutron if
    it is configured, each once; nova 34 fetches every port of every request.

    Raises
    ------
    NetworkError
        Neutron does not answer.
    """
    pci_requests = get_field(request.spec_obj, "pci_requests")
    ports, is_remote = set[str | None](), False
    for pci_request in get_field(pci_requests, "requests") or ():
        if pci_request.source == pci_request.NEUTRON_PORT:
            ports.add(get_field(pci_request, "requester_id"))
            is_remote |= any(
                strutils.bool_from_string(spec.get(_REMOTE_TAG))
                for spec in pci_request.spec
            )
    if not is_remote and (lookup := request.network) is not None:
        networks = Request.of(request.spec_obj).requested_networks
        is_remote = any(
            lookup.port(network.port_id).get("binding:vnic_type") == _REMOTE_VNIC_TYPE
            for network in networks
            if network.port_id and network.port_id not in ports
        )
    if is_remote:
        request.requirements.root_required.add(os_traits.COMPUTE_REMOTE_MANAGED_PORTS)


def routed_networks_filter(request: PrefilterRequest) -> None:
    """Require, for each network, the aggregates of its segments in Placement.

    A port with an address is bound to the segment of its subnet; any other port, and a
    network without a port, may use every segment of the network. A network that is not
    routed restricts nothing. The prefilter is enabled by
    ``[scheduler] query_placement_for_routed_network_aggregates``.

    A requested network with neither port nor network ID is skipped; nova 34 fails on
    it, or requires the aggregates of the previous one again.

    Raises
    ------
    ConfigurationError
        Neutron is not configured.
    NoValidHost
        A segment is in no aggregate.
    NetworkError, PlacementError
        Neutron or Placement does not answer.
    """
    if request.network is None:
        raise ConfigurationError(f"[scheduler] {_GATE} needs a Neutron client")
    for requested in Request.of(request.spec_obj).requested_networks:
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
    aggregates = [network.aggregates_of_segment(uuid) for uuid in sorted(segments)]
    if not all(aggregates):
        raise no_valid_host(f"Aggregates not found for the {of}")
    return frozenset().union(*aggregates)
