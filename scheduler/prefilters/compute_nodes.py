# SPDX-License-Identifier: Apache-2.0
"""Prefilters by traits that nova-compute sets on its providers."""

from __future__ import annotations

import os_traits

from ..request import Request, set_field
from .base import PrefilterRequest

#: The first nova-compute service version that reports OWNER_NOVA.
_MIN_SERVICE_VERSION = 73


def compute_status_filter(request: PrefilterRequest) -> None:
    """Forbid the trait that a disabled compute service sets on its compute nodes."""
    request.requirements.root_forbidden.add(os_traits.COMPUTE_STATUS_DISABLED)


def owner_nova_filter(request: PrefilterRequest) -> None:
    """Require ``OWNER_NOVA`` of the compute node and of PCI devices.

    Only if every compute service reports the trait: if the lowest known version of a
    host is 73 or more. nova 34 reads it from the databases of all cells at every
    request; here it is a column of the host table. If the source reports no versions,
    nothing is required.

    A request that has the trait already is not changed (nova's rule).
    """
    if os_traits.OWNER_NOVA in request.parsed.request_level("root_required"):
        return
    if request.min_service_version < _MIN_SERVICE_VERSION:
        return
    requirements = request.requirements
    requirements.root_required.add(os_traits.OWNER_NOVA)
    for suffix in _pci_groups(request.parsed):
        required = requirements.group_required.setdefault(suffix, set())
        required.add(os_traits.OWNER_NOVA)


def _pci_groups(request: Request) -> list[str]:
    """Return the suffixes of PCI device groups: "<id of the PCI request>-<n>"."""
    ids = {
        request_id
        for each in set_field(request.field("pci_requests"), "requests") or ()
        if (request_id := set_field(each, "request_id"))
        and each.source != each.NEUTRON_PORT
    }
    groups = request.field("requested_resources") or ()
    suffixes = [group.requester_id for group in groups]
    return [s for s in suffixes if s and s.rsplit("-", 1)[0] in ids]
