# SPDX-License-Identifier: Apache-2.0
"""Ask for hosts that can serve remote-managed ports: those of a SmartNIC's DPU."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import os_traits
from oslo_utils import strutils

from ..placement.guest import set_field
from .base import PrefilterRequest

if TYPE_CHECKING:
    from ...objects import RequestSpec

_TAG = "remote_managed"
_VNIC_TYPE = "remote-managed"


def remote_managed_ports_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_REMOTE_MANAGED_PORTS`` where a port is of that kind.

    nova's API asks for a PCI device for each such port, and tells so in the request:
    nobody needs to be asked. Ports without one are asked of Neutron where that is
    configured, each once; nova 34 asks it for every port of every request.

    Raises
    ------
    NetworkError
        Neutron does not answer.
    """
    told = _told_by_pci_requests(request.spec_obj)
    if any(told.values()) or _is_any_remote(request, told.keys()):
        request.requirements.root_required.add(os_traits.COMPUTE_REMOTE_MANAGED_PORTS)


def _told_by_pci_requests(spec_obj: RequestSpec) -> dict[str | None, bool]:
    """Return, by port, whether it is managed remotely."""
    pci_requests = set_field(set_field(spec_obj, "pci_requests"), "requests") or ()
    told: dict[str | None, bool] = {}
    for each in pci_requests:
        if each.source == each.NEUTRON_PORT:
            port_id = set_field(each, "requester_id")
            told[port_id] = told.get(port_id, False) or any(
                strutils.bool_from_string(spec.get(_TAG)) for spec in each.spec
            )
    return told


def _is_any_remote(request: PrefilterRequest, told: Container[str | None]) -> bool:
    lookup = request.network
    if lookup is None:
        return False
    networks = set_field(request.spec_obj, "requested_networks") or ()
    ports = (n.port_id for n in networks if n.port_id and n.port_id not in told)
    return any(lookup.port(p).get("binding:vnic_type") == _VNIC_TYPE for p in ports)
