# SPDX-License-Identifier: Apache-2.0
"""Instances; the scheduler uses little more than the UUID."""

from __future__ import annotations

from types import MappingProxyType

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .fields import declare
from .mixins import Persistent


@register
class Instance(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """An instance, as its compute host reports it."""

    VERSION = "2.8"
    obj_extra_fields = ("name",)
    fields = declare(
        access_ip_v4=of.IPV4AddressField(nullable=True),
        access_ip_v6=of.IPV6AddressField(nullable=True),
        architecture=of.StringField(nullable=True),
        auto_disk_config=of.BooleanField(default=False),
        availability_zone=of.StringField(nullable=True),
        cell_name=of.StringField(nullable=True),
        cleaned=of.BooleanField(default=False),
        compute_id=of.IntegerField(nullable=True),
        config_drive=of.StringField(nullable=True),
        default_ephemeral_device=of.StringField(nullable=True),
        default_swap_device=of.StringField(nullable=True),
        device_metadata=of.ObjectField("InstanceDeviceMetadata", nullable=True),
        disable_terminate=of.BooleanField(default=False),
        display_description=of.StringField(nullable=True),
        display_name=of.StringField(nullable=True),
        ec2_ids=of.ObjectField("EC2Ids"),
        ephemeral_gb=of.IntegerField(nullable=True),
        ephemeral_key_uuid=of.UUIDField(nullable=True),
        fault=of.ObjectField("InstanceFault", nullable=True),
        flavor=of.ObjectField("Flavor"),
        hidden=of.BooleanField(default=False),
        host=of.StringField(nullable=True),
        hostname=of.StringField(nullable=True),
        id=of.IntegerField(),
        image_ref=of.StringField(nullable=True),
        info_cache=of.ObjectField("InstanceInfoCache", nullable=True),
        instance_type_id=of.IntegerField(nullable=True),
        kernel_id=of.StringField(nullable=True),
        key_data=of.StringField(nullable=True),
        key_name=of.StringField(nullable=True),
        keypairs=of.ObjectField("KeyPairList"),
        launch_index=of.IntegerField(nullable=True),
        launched_at=of.DateTimeField(nullable=True),
        launched_on=of.StringField(nullable=True),
        locked=of.BooleanField(default=False),
        locked_by=of.StringField(nullable=True),
        memory_mb=of.IntegerField(nullable=True),
        metadata=of.DictOfStringsField(),
        migration_context=of.ObjectField("MigrationContext", nullable=True),
        new_flavor=of.ObjectField("Flavor", nullable=True),
        node=of.StringField(nullable=True),
        numa_topology=of.ObjectField("InstanceNUMATopology", nullable=True),
        old_flavor=of.ObjectField("Flavor", nullable=True),
        os_type=of.StringField(nullable=True),
        pci_devices=of.ObjectField("PciDeviceList", nullable=True),
        pci_requests=of.ObjectField("InstancePCIRequests", nullable=True),
        power_state=of.IntegerField(nullable=True),
        progress=of.IntegerField(nullable=True),
        project_id=of.StringField(nullable=True),
        ramdisk_id=of.StringField(nullable=True),
        reservation_id=of.StringField(nullable=True),
        resources=of.ObjectField("ResourceList", nullable=True),
        root_device_name=of.StringField(nullable=True),
        root_gb=of.IntegerField(nullable=True),
        security_groups=of.ObjectField("SecurityGroupList"),
        services=of.ObjectField("ServiceList"),
        shutdown_terminate=of.BooleanField(default=False),
        system_metadata=of.DictOfNullableStringsField(),
        tags=of.ObjectField("TagList"),
        task_state=of.StringField(nullable=True),
        terminated_at=of.DateTimeField(nullable=True),
        trusted_certs=of.ObjectField("TrustedCerts", nullable=True),
        user_data=of.StringField(nullable=True),
        user_id=of.StringField(nullable=True),
        uuid=of.UUIDField(),
        vcpu_model=of.ObjectField("VirtCPUModel", nullable=True),
        vcpus=of.IntegerField(nullable=True),
        vm_mode=of.StringField(nullable=True),
        vm_state=of.StringField(nullable=True),
    )
    ADDED = MappingProxyType(
        {
            "services": "2.1",
            "keypairs": "2.2",
            "device_metadata": "2.3",
            "trusted_certs": "2.4",
            "hidden": "2.6",
            "resources": "2.7",
            "compute_id": "2.8",
        }
    )

    @property
    def name(self) -> str:
        """The instance's name with nova's default name template."""
        return f"instance-{self.id:08x}"


@register
class InstanceList(ObjectList):
    """A list of instances."""

    VERSION = "2.6"
    fields = declare(
        objects=of.ListOfObjectsField("Instance"),
    )
