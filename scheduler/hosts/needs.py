# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells and PCI devices that a request needs."""

from __future__ import annotations

from ...objects import RequestSpec
from .fitting import Need
from .numa import Guest
from .pci import read_requests


def need_of(spec_obj: RequestSpec, *, is_packed: bool) -> Need:
    """Return what each instance of a request needs, before a host is selected.

    Parameters
    ----------
    is_packed : bool
        ``[compute] packing_host_numa_cells_allocation_strategy``.
    """
    topology = spec_obj.numa_topology if "numa_topology" in spec_obj else None
    requests = spec_obj.pci_requests if "pci_requests" in spec_obj else None
    return Need(
        guest=Guest.read(topology) if topology else None,
        requests=read_requests(requests),
        is_packed=is_packed,
    )
