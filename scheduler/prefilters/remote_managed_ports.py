# SPDX-License-Identifier: Apache-2.0
"""Require hosts that support remote-managed ports: those of a SmartNIC's DPU."""

from __future__ import annotations

from collections.abc import Container

import os_traits
from oslo_utils import strutils

from ..request import Request, set_field
from .base import PrefilterRequest

_TAG = "remote_managed"
_VNIC_TYPE = "remote-managed"


def remote_managed_ports_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_REMOTE_MANAGED_PORTS`` if a port is remote-managed.

    nova's API adds a PCI request for each such port, so that no query is needed for
    those. Ports without one are fetched from Neutron if it is configured, each once;
    nova 34 fetches every port of every request.

    Raises
    ------
    NetworkError
        Neutron does not answer.
    """
    known = _in_pci_requests(request.parsed)
    if any(known.values()) or _has_remote_port(request, known.keys()):
        request.requirements.root_required.add(os_traits.COMPUTE_REMOTE_MANAGED_PORTS)


def _in_pci_requests(request: Request) -> dict[str | None, bool]:
    """Return whether each port with a PCI request is remote-managed."""
    pci_requests = set_field(request.field("pci_requests"), "requests") or ()
    is_remote: dict[str | None, bool] = {}
    for each in pci_requests:
        if each.source == each.NEUTRON_PORT:
            port_id = set_field(each, "requester_id")
            is_remote[port_id] = is_remote.get(port_id, False) or any(
                strutils.bool_from_string(spec.get(_TAG)) for spec in each.spec
            )
    return is_remote


def _has_remote_port(request: PrefilterRequest, known: Container[str | None]) -> bool:
    lookup = request.network
    if lookup is None:
        return False
    networks = request.parsed.field("requested_networks") or ()
    ports = (n.port_id for n in networks if n.port_id and n.port_id not in known)
    return any(lookup.port(p).get("binding:vnic_type") == _VNIC_TYPE for p in ports)
