# SPDX-License-Identifier: Apache-2.0
"""A compute node: its resources and their usage."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .envelope import version_tuple
from .fields import declare
from .mixins import Persistent


@register
class ComputeNode(Persistent, WireObject):
    """A compute node, as its host reported it."""

    VERSION = "1.19"
    fields = declare(
        cpu_allocation_ratio=of.FloatField(),
        cpu_info=of.StringField(nullable=True),
        current_workload=of.IntegerField(nullable=True),
        disk_allocation_ratio=of.FloatField(),
        disk_available_least=of.IntegerField(nullable=True),
        free_disk_gb=of.IntegerField(nullable=True),
        free_ram_mb=of.IntegerField(nullable=True),
        host=of.StringField(nullable=True),
        host_ip=of.IPAddressField(nullable=True),
        hypervisor_hostname=of.StringField(nullable=True),
        hypervisor_type=of.StringField(),
        hypervisor_version=of.IntegerField(),
        id=of.IntegerField(read_only=True),
        local_gb=of.IntegerField(),
        local_gb_used=of.IntegerField(),
        mapped=of.IntegerField(),
        memory_mb=of.IntegerField(),
        memory_mb_used=of.IntegerField(),
        metrics=of.StringField(nullable=True),
        numa_topology=of.StringField(nullable=True),
        pci_device_pools=of.ObjectField("PciDevicePoolList", nullable=True),
        ram_allocation_ratio=of.FloatField(),
        running_vms=of.IntegerField(nullable=True),
        service_id=of.IntegerField(nullable=True),
        stats=of.DictOfNullableStringsField(nullable=True),
        supported_hv_specs=of.ListOfObjectsField("HVSpec"),
        uuid=of.UUIDField(read_only=True),
        vcpus=of.IntegerField(),
        vcpus_used=of.IntegerField(),
    )
    ADDED = MappingProxyType(
        {
            "stats": "1.3",
            "host_ip": "1.4",
            "numa_topology": "1.5",
            "supported_hv_specs": "1.6",
            "host": "1.7",
            "pci_device_pools": "1.9",
            "cpu_allocation_ratio": "1.14",
            "ram_allocation_ratio": "1.14",
            "uuid": "1.15",
            "disk_allocation_ratio": "1.16",
            "mapped": "1.17",
        }
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
    fields = declare(
        objects=of.ListOfObjectsField("ComputeNode"),
    )
