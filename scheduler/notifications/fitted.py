# SPDX-License-Identifier: Apache-2.0
"""A request's NUMA cells once an instance has its host: on that host's cells."""

from __future__ import annotations

from ...objects import InstanceNUMACell, InstanceNUMATopology
from ..hosts import Consumption, HostBatch
from ..hosts.numa import FittedCell


def fitted(
    asked: InstanceNUMATopology | None,
    hosts: HostBatch,
    index: int,
    consumption: Consumption,
) -> InstanceNUMATopology | None:
    """Return what nova's ``HostState.consume_from_request`` leaves in the request.

    Parameters
    ----------
    asked : InstanceNUMATopology or None
        The cells as they were asked for; they are written to.
    hosts : HostBatch
        As the instance found them.
    consumption : Consumption
        What the instance takes of the host at `index`.

    Returns
    -------
    InstanceNUMATopology or None
        `asked` where the host tells of no cells; None, too, where they do not fit: the
        host was forced, or NUMATopologyFilter is not enabled.
    """
    topology = hosts.value("numa_topology", index)
    if not asked or topology is None or not topology.cells:
        return asked
    taken = consumption.take(topology, hosts.value("pci_stats", index))
    if taken is None or taken.guest is None:
        return None
    for cell, on in zip(asked.cells, taken.guest.cells, strict=True):
        _put(cell, on)
    policy = asked.emulator_threads_policy
    return InstanceNUMATopology(cells=asked.cells, emulator_threads_policy=policy)


def _put(cell: InstanceNUMACell, on: FittedCell) -> None:
    cell.id = on.host_cell_id
    if on.page_size is not None:
        cell.pagesize = on.page_size
    if on.guest.is_pinned:
        cell.pin_vcpus(*on.pins)
        cell.cpuset_reserved = set(on.reserved) or None
