# SPDX-License-Identifier: Apache-2.0
"""NUMA topologies: of a host, and of a guest, requested or placed."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from . import enums
from .base import EphemeralObject, WireObject, register
from .envelope import version_tuple
from .fields import NONE, EnumField, Since, declare


@register
class NUMAPagesTopology(WireObject):
    """The memory pages of one size in a cell."""

    VERSION = "1.1"
    fields = declare(
        reserved=Since("1.1", of.IntegerField(default=0)),
        size_kb=of.IntegerField(),
        total=of.IntegerField(),
        used=of.IntegerField(default=0),
    )

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
        mempages=Since("1.2", of.ListOfObjectsField("NUMAPagesTopology")),
        network_metadata=Since("1.3", of.ObjectField("NetworkMetadata")),
        pcpuset=Since("1.4", of.SetOfIntegersField()),
        pinned_cpus=Since("1.1", of.SetOfIntegersField()),
        siblings=Since("1.1", of.ListOfSetsOfIntegersField()),
        socket=Since("1.5", of.IntegerField(nullable=True)),
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
        network_metadata=Since("1.1", of.ObjectField("NetworkMetadata")),
        ram_allocation_ratio=of.FloatField(),
    )


@register
class VirtCPUTopology(WireObject):
    """Sockets, cores and threads of a guest."""

    VERSION = "1.0"
    fields = declare(
        cores=of.IntegerField(nullable=True, default=1),
        sockets=of.IntegerField(nullable=True, default=1),
        threads=of.IntegerField(nullable=True, default=1),
    )


@register
class VirtCPUFeature(WireObject):
    """A CPU feature and the guest's policy for it."""

    VERSION = "1.0"
    fields = declare(
        name=of.StringField(),
        policy=EnumField(enums.CPU_FEATURE_POLICY, nullable=True),
    )


@register
class VirtCPUModel(WireObject):
    """The CPU model of a guest."""

    VERSION = "1.0"
    fields = declare(
        arch=EnumField(enums.ARCHITECTURE, nullable=True),
        features=of.ListOfObjectsField("VirtCPUFeature", default=[]),
        match=EnumField(enums.CPU_MATCH, nullable=True),
        mode=EnumField(enums.CPU_MODE, nullable=True),
        model=of.StringField(nullable=True),
        topology=of.ObjectField("VirtCPUTopology", nullable=True),
        vendor=of.StringField(nullable=True),
    )


@register
class InstanceNUMACell(EphemeralObject, ovo.VersionedObjectDictCompat):
    """A NUMA cell of a guest."""

    VERSION = "1.6"
    fields = declare(
        cpu_pinning_raw=Since(
            "1.2", of.DictOfIntegersField(nullable=True, default=NONE)
        ),
        cpu_policy=Since(
            "1.3", EnumField(enums.CPU_ALLOCATION_POLICY, nullable=True, default=NONE)
        ),
        cpu_thread_policy=Since(
            "1.3",
            EnumField(enums.CPU_THREAD_ALLOCATION_POLICY, nullable=True, default=NONE),
        ),
        cpu_topology=Since("1.2", of.ObjectField("VirtCPUTopology", nullable=True)),
        cpuset=of.SetOfIntegersField(),
        cpuset_reserved=Since(
            "1.4", of.SetOfIntegersField(nullable=True, default=NONE)
        ),
        id=of.IntegerField(),
        memory=of.IntegerField(),
        pagesize=Since("1.1", of.IntegerField(nullable=True, default=NONE)),
        pcpuset=Since("1.5", of.SetOfIntegersField()),
    )
    ADDED_VALUES = MappingProxyType({"cpu_policy": {"mixed": "1.6"}})
    # Before 1.5 pinned CPUs were in cpuset; nova reads such cells as they are.
    UNSET = MappingProxyType({"pcpuset": set, "cpu_topology": lambda: None})

    # The keys as integers; in JSON they are strings.
    cpu_pinning: Any = of.DictProxyField("cpu_pinning_raw")

    def __len__(self) -> int:
        """Return the number of guest CPUs in this cell."""
        return len(self.cpuset | self.pcpuset)

    @property
    def total_cpus(self) -> set[int]:
        """The guest's CPUs of this cell, shared and dedicated."""
        return set(self.cpuset | self.pcpuset)

    def pin_vcpus(self, *cpu_pairs: tuple[int, int]) -> None:
        """Pin guest CPUs to host CPUs; floating guest CPUs are not changed."""
        pinned = {vcpu: pcpu for vcpu, pcpu in cpu_pairs if vcpu in self.pcpuset}
        if pinned:
            self.cpu_pinning = {**(self.cpu_pinning or {}), **pinned}

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Move pinned CPUs back to cpuset, where old versions have them."""
        is_older = version_tuple(target_version) < (1, 5)
        if is_older and primitive.get("cpu_policy") == "dedicated":
            primitive["cpuset"] = primitive.get("pcpuset", primitive.get("cpuset"))
        super().obj_make_compatible(primitive, target_version)


@register
class InstanceNUMATopology(WireObject, ovo.VersionedObjectDictCompat):
    """The NUMA cells of a guest."""

    VERSION = "1.3"
    fields = declare(
        cells=of.ListOfObjectsField("InstanceNUMACell"),
        emulator_threads_policy=Since(
            "1.3", EnumField(enums.CPU_EMULATOR_THREADS_POLICY, nullable=True)
        ),
        id=of.IntegerField(),
        instance_uuid=of.UUIDField(),
    )
    UNSET = MappingProxyType({"emulator_threads_policy": lambda: None})

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.cells)

    @property
    def cpu_pinning_requested(self) -> bool:
        """Whether all CPUs of the guest are dedicated."""
        return all(cell.cpu_policy == "dedicated" for cell in self.cells)

    @property
    def emulator_threads_isolated(self) -> bool:
        """Whether the emulator's threads get a separate CPU."""
        return bool(self.emulator_threads_policy == "isolate")
