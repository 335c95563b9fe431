# SPDX-License-Identifier: Apache-2.0
"""A request's NUMA cells after placement: on the cells of the chosen host."""

from __future__ import annotations

from ...objects import InstanceNUMACell, InstanceNUMATopology
from ..hosts import Consumption, HostBatch
from ..hosts.numa import FittedCell


def placed_numa_topology(
    requested: InstanceNUMATopology | None,
    hosts: HostBatch,
    index: int,
    consumption: Consumption,
) -> InstanceNUMATopology | None:
    """Return what nova's ``HostState.consume_from_request`` leaves in the request.

    Parameters
    ----------
    requested : InstanceNUMATopology or None
        The requested cells; they are written to.
    hosts : HostBatch
        The hosts before the instance was placed.
    consumption : Consumption
        What the instance consumes of the host at `index`.

    Returns
    -------
    InstanceNUMATopology or None
        `requested` where the host reports no cells. None where there is nothing
        requested, or where the cells do not fit because the host was forced or
        NUMATopologyFilter is not enabled.
    """
    topology = hosts.value("numa_topology", index)
    if not requested or topology is None or not topology.cells:
        return requested
    taken = consumption.take(topology, hosts.value("pci_stats", index))
    if taken is None or taken.guest is None:
        return None
    for cell, fitted in zip(requested.cells, taken.guest.cells, strict=True):
        _write(cell, fitted)
    policy = requested.emulator_threads_policy
    return InstanceNUMATopology(cells=requested.cells, emulator_threads_policy=policy)


def _write(cell: InstanceNUMACell, fitted: FittedCell) -> None:
    cell.id = fitted.host_cell_id
    if fitted.page_size is not None:
        cell.pagesize = fitted.page_size
    if fitted.guest.is_pinned:
        cell.pin_vcpus(*fitted.pins)
        cell.cpuset_reserved = set(fitted.reserved) or None
