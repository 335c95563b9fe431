# SPDX-License-Identifier: Apache-2.0
"""Hosts as nova stores them: compute nodes, services, aggregates, metrics."""

from __future__ import annotations

from typing import Any

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from . import enums
from .base import ObjectList, Persistent, WireObject, register
from .envelope import version_tuple
from .fields import EnumField, Since, declare


@register
class ComputeNode(Persistent, WireObject):
    """A compute node, as its host reported it."""

    VERSION = "1.19"
    fields = declare(
        cpu_allocation_ratio=Since("1.14", of.FloatField()),
        cpu_info=of.StringField(nullable=True),
        current_workload=of.IntegerField(nullable=True),
        disk_allocation_ratio=Since("1.16", of.FloatField()),
        disk_available_least=of.IntegerField(nullable=True),
        free_disk_gb=of.IntegerField(nullable=True),
        free_ram_mb=of.IntegerField(nullable=True),
        host=Since("1.7", of.StringField(nullable=True)),
        host_ip=Since("1.4", of.IPAddressField(nullable=True)),
        hypervisor_hostname=of.StringField(nullable=True),
        hypervisor_type=of.StringField(),
        hypervisor_version=of.IntegerField(),
        id=of.IntegerField(read_only=True),
        local_gb=of.IntegerField(),
        local_gb_used=of.IntegerField(),
        mapped=Since("1.17", of.IntegerField()),
        memory_mb=of.IntegerField(),
        memory_mb_used=of.IntegerField(),
        metrics=of.StringField(nullable=True),
        numa_topology=Since("1.5", of.StringField(nullable=True)),
        pci_device_pools=Since(
            "1.9", of.ObjectField("PciDevicePoolList", nullable=True)
        ),
        ram_allocation_ratio=Since("1.14", of.FloatField()),
        running_vms=of.IntegerField(nullable=True),
        service_id=of.IntegerField(nullable=True),
        stats=Since("1.3", of.DictOfNullableStringsField(nullable=True)),
        supported_hv_specs=Since("1.6", of.ListOfObjectsField("HVSpec")),
        uuid=Since("1.15", of.UUIDField(read_only=True)),
        vcpus=of.IntegerField(),
        vcpus_used=of.IntegerField(),
    )

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Set a service ID where `target_version` requires one."""
        super().obj_make_compatible(primitive, target_version)
        is_needed = version_tuple(target_version) < (1, 13)
        if is_needed and primitive.get("service_id") is None:
            primitive["service_id"] = -1  # nova's value if there is no service


@register
class ComputeNodeList(ObjectList):
    """A list of compute nodes."""

    VERSION = "1.17"
    fields = declare(objects=of.ListOfObjectsField("ComputeNode"))


@register
class HVSpec(WireObject):
    """A supported combination of architecture, hypervisor type and guest mode."""

    VERSION = "1.2"
    fields = declare(
        arch=EnumField(enums.ARCHITECTURE),
        hv_type=EnumField(enums.HV_TYPE),
        vm_mode=EnumField(enums.VM_MODE),
    )

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Restore the old name of vz, parallels."""
        super().obj_make_compatible(primitive, target_version)
        if version_tuple(target_version) < (1, 1) and primitive.get("hv_type") == "vz":
            primitive["hv_type"] = "parallels"


@register
class Service(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """A nova service on a host."""

    VERSION = "1.22"
    fields = declare(
        availability_zone=of.StringField(nullable=True),
        binary=of.StringField(nullable=True),
        compute_node=of.ObjectField("ComputeNode"),
        disabled=of.BooleanField(),
        disabled_reason=of.StringField(nullable=True),
        forced_down=Since("1.14", of.BooleanField()),
        host=of.StringField(nullable=True),
        id=of.IntegerField(read_only=True),
        last_seen_up=Since("1.13", of.DateTimeField(nullable=True)),
        report_count=of.IntegerField(),
        topic=of.StringField(nullable=True),
        uuid=Since("1.21", of.UUIDField()),
        version=Since("1.16", of.IntegerField()),
    )


@register
class ServiceList(ObjectList):
    """A list of services."""

    VERSION = "1.19"
    fields = declare(objects=of.ListOfObjectsField("Service"))


@register
class Aggregate(Persistent, WireObject):
    """A group of hosts; an availability zone if its metadata names one."""

    VERSION = "1.3"
    obj_extra_fields = ("availability_zone",)
    fields = declare(
        hosts=of.ListOfStringsField(nullable=True),
        id=of.IntegerField(),
        metadata=of.DictOfStringsField(nullable=True),
        name=of.StringField(),
        uuid=Since("1.2", of.UUIDField()),
    )

    @property
    def availability_zone(self) -> str | None:
        """The availability zone of this aggregate, or None."""
        zone: str | None = (self.metadata or {}).get("availability_zone")
        return zone


@register
class AggregateList(ObjectList):
    """A list of aggregates."""

    VERSION = "1.3"
    fields = declare(objects=of.ListOfObjectsField("Aggregate"))


@register
class MonitorMetric(WireObject):
    """A metric."""

    VERSION = "1.1"
    fields = declare(
        name=EnumField(enums.MONITOR_METRIC_TYPE),
        numa_membw_values=Since("1.1", of.DictOfIntegersField(nullable=True)),
        source=of.StringField(),
        timestamp=of.DateTimeField(),
        value=of.IntegerField(),
    )


@register
class MonitorMetricList(ObjectList):
    """A list of metrics."""

    VERSION = "1.1"
    fields = declare(objects=of.ListOfObjectsField("MonitorMetric"))
