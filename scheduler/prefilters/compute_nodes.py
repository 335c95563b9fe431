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

    The trait is required only if every compute service reports it, that is, if the
    lowest version of a compute service is 73 or more. nova 34 reads that version from
    the databases of all cells for every request; here it is in the host table. If the
    source reports no versions, the trait is not required.

    A request that requires the trait already is not changed (nova's rule).
    """
    if request.min_service_version < _MIN_SERVICE_VERSION:
        return
    parsed = Request.of(request.spec_obj)
    if os_traits.OWNER_NOVA in parsed.root_required:
        return
    requirements = request.requirements
    requirements.root_required.add(os_traits.OWNER_NOVA)
    # The groups of PCI devices have the suffixes "<id of the PCI request>-<n>".
    pci_requests = set_field(request.spec_obj, "pci_requests")
    ids = {
        request_id
        for pci_request in set_field(pci_requests, "requests") or ()
        if (request_id := set_field(pci_request, "request_id"))
        and pci_request.source != pci_request.NEUTRON_PORT
    }
    for group in parsed.requested_groups:
        if group.suffix and group.suffix.rsplit("-", 1)[0] in ids:
            required = requirements.group_required.setdefault(group.suffix, set())
            required.add(os_traits.OWNER_NOVA)
