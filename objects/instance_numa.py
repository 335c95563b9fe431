# SPDX-License-Identifier: Apache-2.0
"""The NUMA topology an instance asks for, or has."""

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
    """One NUMA cell of a guest."""

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

    # JSON has texts for keys; here they are the numbers again.
    cpu_pinning: Any = of.DictProxyField("cpu_pinning_raw")

    def __len__(self) -> int:
        """Count the guest's CPUs in this cell."""
        return len(self.total_cpus)

    @property
    def total_cpus(self) -> set[int]:
        """All guest CPUs of this cell, pinned and floating."""
        return set(self.cpuset | self.pcpuset)

    @property
    def siblings(self) -> list[set[int]]:
        """The guest CPUs by the core they are threads of; empty without threads."""
        topology = self.cpu_topology
        n_threads = topology.threads if topology else 0
        if not n_threads or n_threads == 1:
            return []
        cpus = iter(sorted(self.total_cpus))
        return [set(threads) for threads in zip(*[cpus] * n_threads, strict=False)]

    def pin(self, vcpu: int, pcpu: int) -> None:
        """Pin one guest CPU to one host CPU; a floating one is left alone."""
        if vcpu in self.pcpuset:
            self.cpu_pinning = {**(self.cpu_pinning or {}), vcpu: pcpu}

    def pin_vcpus(self, *cpu_pairs: tuple[int, int]) -> None:
        """Pin guest CPUs to host CPUs."""
        for vcpu, pcpu in cpu_pairs:
            self.pin(vcpu, pcpu)

    def clear_host_pinning(self) -> Self:
        """Forget which host cell and CPUs were chosen."""
        self.id = -1
        self.cpu_pinning = {}
        return self

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Put pinned CPUs back into cpuset for those who look there."""
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
        """Count the cells."""
        return len(self.cells)

    @property
    def cpu_pinning(self) -> set[int]:
        """All host CPUs that guest CPUs are pinned to."""
        pinned = (cell.cpu_pinning or {} for cell in self.cells)
        return {cpu for pins in pinned for cpu in pins.values()}

    @property
    def cpu_pinning_requested(self) -> bool:
        """Tell whether all CPUs are to be pinned."""
        return all(cell.cpu_policy == "dedicated" for cell in self.cells)

    @property
    def emulator_threads_isolated(self) -> bool:
        """Tell whether the emulator gets a CPU of its own."""
        return bool(self.emulator_threads_policy == "isolate")

    def clear_host_pinning(self) -> Self:
        """Forget which host cells and CPUs were chosen."""
        for cell in self.cells:
            cell.clear_host_pinning()
        return self
