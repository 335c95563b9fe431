# SPDX-License-Identifier: Apache-2.0
"""One compute node as a source reports it; its fields are the columns of the table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from .fitting import Need, NumaPciUsage
from .image_properties import NO_PROPERTIES, ImageProperties
from .numa import HostTopology
from .pci import NO_POOLS, HostPools

NO_STATS: Mapping[str, str] = MappingProxyType({})

#: One [architecture, hypervisor type, VM mode] triple.
SupportedInstance = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """The state of one compute node, under the names of nova's HostState.

    A field of type int becomes a column of int64, float one of float64, bool one of
    bool; every other field becomes a column of interned values.

    Attributes
    ----------
    host, nodename : str
        The compute service's host and the node's hypervisor_hostname.
    uuid, cell_uuid : str
        The UUID of the compute node, which is its root resource provider's UUID as
        well, and that of its cell.
    free_ram_mb, free_disk_mb, disk_mb_used : int
        MiB; the free amounts may be negative.
    num_io_ops, failed_builds : int
        As in the keys ``io_workload`` and ``failed_builds`` of a compute node's stats.
    hypervisor_version : int
        In libvirt's form: 6002001 is 6.2.1.
    cpu_info : str
        The driver's JSON text.
    metrics : mapping
        Number by name, reported by monitors on the host; None: there are no monitors.
    last_seen_up : float
        The compute service's heartbeat, seconds since the epoch. Infinite: the source
        vouches for the service. NaN: never seen.
    numa_topology : HostTopology or None
        The NUMA cells with their CPUs, memory and pages, and their usage.
    pci_stats : HostPools
        The free PCI devices, in pools.
    service_version : int
        The compute service's version number in nova; 0: unknown.
    """

    host: str
    nodename: str
    uuid: str
    cell_uuid: str

    total_usable_ram_mb: int
    free_ram_mb: int
    total_usable_disk_gb: int
    free_disk_mb: int
    disk_mb_used: int
    vcpus_total: int
    vcpus_used: int
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0

    num_instances: int = 0
    num_io_ops: int = 0
    failed_builds: int = 0
    stats: Mapping[str, str] = dataclasses.field(default_factory=lambda: NO_STATS)

    hypervisor_type: str | None = None
    hypervisor_version: int = 0
    hypervisor_hostname: str | None = None
    supported_instances: tuple[SupportedInstance, ...] = ()
    cpu_info: str | None = None
    metrics: Mapping[str, float] | None = None
    host_ip: str | None = None
    numa_topology: HostTopology | None = None
    pci_stats: HostPools = NO_POOLS

    disabled: bool = False
    forced_down: bool = False
    last_seen_up: float = math.inf
    service_version: int = 0


#: The NumPy type of each column of numbers; all others are interned.
_DTYPES: Mapping[str, type[np.generic]] = {
    "int": np.int64,
    "float": np.float64,
    "bool": np.bool_,
}
NUMBERS: Mapping[str, np.dtype[np.generic]] = MappingProxyType(
    {
        field.name: np.dtype(_DTYPES[str(field.type)])
        for field in dataclasses.fields(HostRecord)
        if field.type in _DTYPES
    }
)
INTERNED: tuple[str, ...] = tuple(
    field.name for field in dataclasses.fields(HostRecord) if field.type not in _DTYPES
)

#: Columns that nova's HostState does not have: extra specs cannot refer to them.
MOORAGE_COLUMNS = frozenset(
    {"disabled", "forced_down", "last_seen_up", "revision", "service_version"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Consumption:
    """The amounts of a host's columns that one instance consumes once it is claimed.

    The rule is nova's ``HostState.consume_from_request``: swap and the root disk of a
    volume-backed instance are counted as nova counts them.

    Attributes
    ----------
    io_ops : int
        1 while the instance is built, 0 once its host reports it.
    image_properties : frozenset of (property, text)
        Not an amount: the properties by which a host's instances are counted.
    need : Need or None
        What it needs of NUMA cells and PCI devices; None: nothing.
    """

    memory_mb: int
    disk_mb: int
    vcpus: int
    io_ops: int = 1
    image_properties: ImageProperties = NO_PROPERTIES
    need: Need | None = None

    def take(
        self, topology: HostTopology | None, pools: HostPools
    ) -> NumaPciUsage | None:
        """Return its usage of a host's cells and devices; None: nothing."""
        return None if self.need is None else self.need.take(topology, pools)

    def deltas(self) -> tuple[tuple[str, int], ...]:
        """Return (column, change) pairs."""
        return (
            ("free_ram_mb", -self.memory_mb),
            ("free_disk_mb", -self.disk_mb),
            ("vcpus_used", self.vcpus),
            ("num_instances", 1),
            ("num_io_ops", self.io_ops),
        )
