# SPDX-License-Identifier: Apache-2.0
"""What instances consume, and claims that no report of their host includes yet."""

from __future__ import annotations

import dataclasses

from .fitting.need import Need, NumaPciUsage
from .instances import NO_PROPERTIES, ImageProperties
from .numa import HostTopology
from .pci import HostPools


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

    def fits(self, topology: HostTopology | None, pools: HostPools) -> bool:
        """Return whether a host's cells and devices have what it needs."""
        if not self.need:
            return True
        usage = self.take(topology, pools)
        return usage is not None and usage.is_complete

    def deltas(self) -> tuple[tuple[str, int], ...]:
        """Return (column, change) pairs."""
        return (
            ("free_ram_mb", -self.memory_mb),
            ("free_disk_mb", -self.disk_mb),
            ("vcpus_used", self.vcpus),
            ("num_instances", 1),
            ("num_io_ops", self.io_ops),
        )


@dataclasses.dataclass(slots=True)
class PendingClaim:
    """What an instance was granted, and which of the host's devices it uses.

    Attributes
    ----------
    claimed_at : float
        Seconds since the epoch.
    is_reserved : bool
        Whether it is not granted yet.
    """

    consumption: Consumption
    claimed_at: float
    usage: NumaPciUsage | None = None
    is_reserved: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether it has the cells and devices that it needs."""
        if not self.consumption.need:
            return True
        return self.usage is not None and self.usage.is_complete


@dataclasses.dataclass(frozen=True, slots=True)
class UnreportedClaim:
    """A claim that no report of its compute node includes yet.

    Attributes
    ----------
    host : str
        The service host.
    claimed_at : float
        Seconds since the epoch.
    is_reserved : bool
        Whether it is not granted yet, so that Placement may hold nothing.
    """

    node_uuid: str
    host: str
    instance_uuid: str
    claimed_at: float
    is_reserved: bool = False
