# SPDX-License-Identifier: Apache-2.0
"""Require providers that nova created, not for example Cyborg."""

from __future__ import annotations

from typing import TYPE_CHECKING

import os_traits

from ..request.flavor_and_image import set_field
from .base import PrefilterRequest

if TYPE_CHECKING:
    from ...objects import RequestSpec

#: The first nova-compute service version that reports the trait.
_MIN_SERVICE_VERSION = 73


def owner_nova_filter(request: PrefilterRequest) -> None:
    """Require ``OWNER_NOVA`` of the compute node and of PCI devices.

    Only if every compute service reports the trait: if the lowest known version of a
    host is 73 or more. nova 34 reads it from the databases of all cells at every
    request; here it is a column of the host table. If the source reports no versions,
    nothing is required.

    A request that has the trait already is not changed (nova's rule).
    """
    level = set_field(request.spec_obj, "request_level_params")
    if os_traits.OWNER_NOVA in (set_field(level, "root_required") or ()):
        return
    if request.min_service_version < _MIN_SERVICE_VERSION:
        return
    requirements = request.requirements
    requirements.root_required.add(os_traits.OWNER_NOVA)
    for suffix in _pci_groups(request.spec_obj):
        required = requirements.group_required.setdefault(suffix, set())
        required.add(os_traits.OWNER_NOVA)


def _pci_groups(spec_obj: RequestSpec) -> list[str]:
    """Return the suffixes of PCI device groups: "<id of the PCI request>-<n>"."""
    pci_requests = set_field(set_field(spec_obj, "pci_requests"), "requests") or ()
    ids = {
        request_id
        for each in pci_requests
        if (request_id := set_field(each, "request_id"))
        and each.source != each.NEUTRON_PORT
    }
    groups = set_field(spec_obj, "requested_resources") or ()
    suffixes = [group.requester_id for group in groups]
    return [s for s in suffixes if s and s.rsplit("-", 1)[0] in ids]
