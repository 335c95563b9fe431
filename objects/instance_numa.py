# SPDX-License-Identifier: Apache-2.0
"""The NUMA topology of a guest, requested or placed."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Self

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import EphemeralObject, WireObject, register
from .enums import (
    CPUAllocationPolicy,
    CPUEmulatorThreadsPolicy,
    CPUThreadAllocationPolicy,
    EnumField,
)
from .envelope import version_tuple
from .fields import NONE, declare


@register
class InstanceNUMACell(EphemeralObject, ovo.VersionedObjectDictCompat):
    """A NUMA cell of a guest."""

    VERSION = "1.6"
    fields = declare(
        cpu_pinning_raw=of.DictOfIntegersField(nullable=True, default=NONE),
        cpu_policy=EnumField(CPUAllocationPolicy(), nullable=True, default=NONE),
        cpu_thread_policy=EnumField(
            CPUThreadAllocationPolicy(), nullable=True, default=NONE
        ),
        cpu_topology=of.ObjectField("VirtCPUTopology", nullable=True),
        cpuset=of.SetOfIntegersField(),
        cpuset_reserved=of.SetOfIntegersField(nullable=True, default=NONE),
        id=of.IntegerField(),
        memory=of.IntegerField(),
        pagesize=of.IntegerField(nullable=True, default=NONE),
        pcpuset=of.SetOfIntegersField(),
    )
    ADDED = MappingProxyType(
        {
            "pagesize": "1.1",
            "cpu_pinning_raw": "1.2",
            "cpu_topology": "1.2",
            "cpu_policy": "1.3",
            "cpu_thread_policy": "1.3",
            "cpuset_reserved": "1.4",
            "pcpuset": "1.5",
        }
    )
    ADDED_VALUES = MappingProxyType({"cpu_policy": {"mixed": "1.6"}})
    # Before 1.5 pinned CPUs were in cpuset; nova reads such cells as they are.
    UNSET = MappingProxyType({"pcpuset": set, "cpu_topology": lambda: None})

    # The keys as integers; in JSON they are strings.
    cpu_pinning: Any = of.DictProxyField("cpu_pinning_raw")

    def __len__(self) -> int:
        """Return the number of guest CPUs in this cell."""
        return len(self.total_cpus)

    @property
    def total_cpus(self) -> set[int]:
        """All guest CPUs of this cell, pinned and floating."""
        return set(self.cpuset | self.pcpuset)

    @property
    def siblings(self) -> list[set[int]]:
        """The guest CPUs grouped by core; empty without threads."""
        topology = self.cpu_topology
        n_threads = topology.threads if topology else 0
        if not n_threads or n_threads == 1:
            return []
        cpus = iter(sorted(self.total_cpus))
        return [set(threads) for threads in zip(*[cpus] * n_threads, strict=False)]

    def pin(self, vcpu: int, pcpu: int) -> None:
        """Pin a guest CPU to a host CPU; a floating one is not changed."""
        if vcpu in self.pcpuset:
            self.cpu_pinning = {**(self.cpu_pinning or {}), vcpu: pcpu}

    def pin_vcpus(self, *cpu_pairs: tuple[int, int]) -> None:
        """Pin guest CPUs to host CPUs."""
        for vcpu, pcpu in cpu_pairs:
            self.pin(vcpu, pcpu)

    def clear_host_pinning(self) -> Self:
        """Clear the host cell and the pinned CPUs."""
        self.id = -1
        self.cpu_pinning = {}
        return self

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
        emulator_threads_policy=EnumField(CPUEmulatorThreadsPolicy(), nullable=True),
        id=of.IntegerField(),
        instance_uuid=of.UUIDField(),
    )
    ADDED = MappingProxyType({"emulator_threads_policy": "1.3"})
    UNSET = MappingProxyType({"emulator_threads_policy": lambda: None})

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.cells)

    @property
    def cpu_pinning(self) -> set[int]:
        """All host CPUs that guest CPUs are pinned to."""
        pinned = (cell.cpu_pinning or {} for cell in self.cells)
        return {cpu for pins in pinned for cpu in pins.values()}

    @property
    def cpu_pinning_requested(self) -> bool:
        """Whether all CPUs must be pinned."""
        return all(cell.cpu_policy == "dedicated" for cell in self.cells)

    @property
    def emulator_threads_isolated(self) -> bool:
        """Whether the emulator threads get a CPU of their own."""
        return bool(self.emulator_threads_policy == "isolate")

    def clear_host_pinning(self) -> Self:
        """Clear the host cells and the pinned CPUs."""
        for cell in self.cells:
            cell.clear_host_pinning()
        return self
