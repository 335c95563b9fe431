# SPDX-License-Identifier: Apache-2.0
"""The NUMA topology of a host."""

from __future__ import annotations

from types import MappingProxyType

from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .fields import declare


@register
class NUMAPagesTopology(WireObject):
    """The memory pages of one size in a cell."""

    VERSION = "1.1"
    fields = declare(
        reserved=of.IntegerField(default=0),
        size_kb=of.IntegerField(),
        total=of.IntegerField(),
        used=of.IntegerField(default=0),
    )
    ADDED = MappingProxyType({"reserved": "1.1"})

    @property
    def free(self) -> int:
        """Pages that are neither used nor reserved."""
        return int(self.total - self.used - self.reserved)

    @property
    def free_kb(self) -> int:
        """Free pages in KiB."""
        return int(self.free * self.size_kb)

    @property
    def total_kb(self) -> int:
        """All pages in KiB."""
        return int(self.total * self.size_kb)


@register
class NUMACell(WireObject):
    """A NUMA cell of a host: CPUs, memory, pages, networks."""

    VERSION = "1.5"
    fields = declare(
        cpu_usage=of.IntegerField(default=0),
        cpuset=of.SetOfIntegersField(),
        id=of.IntegerField(read_only=True),
        memory=of.IntegerField(),
        memory_usage=of.IntegerField(default=0),
        mempages=of.ListOfObjectsField("NUMAPagesTopology"),
        network_metadata=of.ObjectField("NetworkMetadata"),
        pcpuset=of.SetOfIntegersField(),
        pinned_cpus=of.SetOfIntegersField(),
        siblings=of.ListOfSetsOfIntegersField(),
        socket=of.IntegerField(nullable=True),
    )
    ADDED = MappingProxyType(
        {
            "pinned_cpus": "1.1",
            "siblings": "1.1",
            "mempages": "1.2",
            "network_metadata": "1.3",
            "pcpuset": "1.4",
            "socket": "1.5",
        }
    )
    # Defaults for cells of older versions.
    UNSET = MappingProxyType({"pcpuset": set, "socket": lambda: None})

    @property
    def free_pcpus(self) -> set[int]:
        """The CPUs for pinning that are free."""
        return set(self.pcpuset - self.pinned_cpus)

    @property
    def avail_pcpus(self) -> int:
        """The number of free CPUs for pinning."""
        return len(self.free_pcpus)

    @property
    def avail_memory(self) -> int:
        """The free memory, MiB."""
        return int(self.memory - self.memory_usage)

    @property
    def has_threads(self) -> bool:
        """Whether the host's cores have more than one thread."""
        return any(len(threads) > 1 for threads in self.siblings)


@register
class NUMATopology(WireObject):
    """The NUMA cells of a host."""

    VERSION = "1.2"
    fields = declare(
        cells=of.ListOfObjectsField("NUMACell"),
    )

    def __len__(self) -> int:
        """Return the number of cells, so that an empty topology is false."""
        return len(self.cells)

    @property
    def has_threads(self) -> bool:
        """Whether the host's cores have more than one thread."""
        return any(cell.has_threads for cell in self.cells)


@register
class NUMATopologyLimits(WireObject):
    """The overcommit limits of a cell."""

    VERSION = "1.1"
    fields = declare(
        cpu_allocation_ratio=of.FloatField(),
        network_metadata=of.ObjectField("NetworkMetadata"),
        ram_allocation_ratio=of.FloatField(),
    )
    ADDED = MappingProxyType({"network_metadata": "1.1"})
