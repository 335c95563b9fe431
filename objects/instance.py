# SPDX-License-Identifier: Apache-2.0
"""Instances and the objects nested in them; the scheduler uses little of them."""

from __future__ import annotations

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import ObjectList, Persistent, WireObject, register
from .fields import NetworkModelField, ResourceClassField, Since, declare


@register
class Instance(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """An instance, as its compute host reports it."""

    VERSION = "2.8"
    fields = declare(
        access_ip_v4=of.IPV4AddressField(nullable=True),
        access_ip_v6=of.IPV6AddressField(nullable=True),
        architecture=of.StringField(nullable=True),
        auto_disk_config=of.BooleanField(default=False),
        availability_zone=of.StringField(nullable=True),
        cell_name=of.StringField(nullable=True),
        cleaned=of.BooleanField(default=False),
        compute_id=Since("2.8", of.IntegerField(nullable=True)),
        config_drive=of.StringField(nullable=True),
        default_ephemeral_device=of.StringField(nullable=True),
        default_swap_device=of.StringField(nullable=True),
        device_metadata=Since(
            "2.3", of.ObjectField("InstanceDeviceMetadata", nullable=True)
        ),
        disable_terminate=of.BooleanField(default=False),
        display_description=of.StringField(nullable=True),
        display_name=of.StringField(nullable=True),
        ec2_ids=of.ObjectField("EC2Ids"),
        ephemeral_gb=of.IntegerField(nullable=True),
        ephemeral_key_uuid=of.UUIDField(nullable=True),
        fault=of.ObjectField("InstanceFault", nullable=True),
        flavor=of.ObjectField("Flavor"),
        hidden=Since("2.6", of.BooleanField(default=False)),
        host=of.StringField(nullable=True),
        hostname=of.StringField(nullable=True),
        id=of.IntegerField(),
        image_ref=of.StringField(nullable=True),
        info_cache=of.ObjectField("InstanceInfoCache", nullable=True),
        instance_type_id=of.IntegerField(nullable=True),
        kernel_id=of.StringField(nullable=True),
        key_data=of.StringField(nullable=True),
        key_name=of.StringField(nullable=True),
        keypairs=Since("2.2", of.ObjectField("KeyPairList")),
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
        resources=Since("2.7", of.ObjectField("ResourceList", nullable=True)),
        root_device_name=of.StringField(nullable=True),
        root_gb=of.IntegerField(nullable=True),
        security_groups=of.ObjectField("SecurityGroupList"),
        services=Since("2.1", of.ObjectField("ServiceList")),
        shutdown_terminate=of.BooleanField(default=False),
        system_metadata=of.DictOfNullableStringsField(),
        tags=of.ObjectField("TagList"),
        task_state=of.StringField(nullable=True),
        terminated_at=of.DateTimeField(nullable=True),
        trusted_certs=Since("2.4", of.ObjectField("TrustedCerts", nullable=True)),
        user_data=of.StringField(nullable=True),
        user_id=of.StringField(nullable=True),
        uuid=of.UUIDField(),
        vcpu_model=of.ObjectField("VirtCPUModel", nullable=True),
        vcpus=of.IntegerField(nullable=True),
        vm_mode=of.StringField(nullable=True),
        vm_state=of.StringField(nullable=True),
    )


@register
class InstanceList(ObjectList):
    """A list of instances."""

    VERSION = "2.6"
    fields = declare(objects=of.ListOfObjectsField("Instance"))


@register
class EC2Ids(WireObject):
    """The IDs of an instance in the EC2 API."""

    VERSION = "1.0"
    fields = declare(
        ami_id=of.StringField(nullable=True, read_only=True),
        instance_id=of.StringField(read_only=True),
        kernel_id=of.StringField(nullable=True, read_only=True),
        ramdisk_id=of.StringField(nullable=True, read_only=True),
    )


@register
class InstanceFault(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """The last error of an instance."""

    VERSION = "1.2"
    fields = declare(
        code=of.IntegerField(),
        details=of.StringField(nullable=True),
        host=of.StringField(nullable=True),
        id=of.IntegerField(),
        instance_uuid=of.UUIDField(),
        message=of.StringField(nullable=True),
    )


@register
class InstanceInfoCache(Persistent, WireObject):
    """The cached network info of an instance, from Neutron."""

    VERSION = "1.5"
    fields = declare(
        instance_uuid=of.UUIDField(),
        network_info=NetworkModelField(nullable=True),
    )


@register
class KeyPair(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """A public key."""

    VERSION = "1.4"
    fields = declare(
        fingerprint=of.StringField(nullable=True),
        id=of.IntegerField(),
        name=of.StringField(),
        public_key=of.StringField(nullable=True),
        type=Since("1.2", of.StringField()),
        user_id=of.StringField(nullable=True),
    )


@register
class KeyPairList(ObjectList):
    """A list of public keys."""

    VERSION = "1.3"
    fields = declare(objects=of.ListOfObjectsField("KeyPair"))


@register
class MigrationContext(Persistent, WireObject):
    """The claims of an instance before and after a move."""

    VERSION = "1.2"
    fields = declare(
        instance_uuid=of.UUIDField(),
        migration_id=of.IntegerField(),
        new_numa_topology=of.ObjectField("InstanceNUMATopology", nullable=True),
        new_pci_devices=Since("1.1", of.ObjectField("PciDeviceList", nullable=True)),
        new_pci_requests=Since(
            "1.1", of.ObjectField("InstancePCIRequests", nullable=True)
        ),
        new_resources=Since("1.2", of.ObjectField("ResourceList", nullable=True)),
        old_numa_topology=of.ObjectField("InstanceNUMATopology", nullable=True),
        old_pci_devices=Since("1.1", of.ObjectField("PciDeviceList", nullable=True)),
        old_pci_requests=Since(
            "1.1", of.ObjectField("InstancePCIRequests", nullable=True)
        ),
        old_resources=Since("1.2", of.ObjectField("ResourceList", nullable=True)),
    )


@register
class Tag(WireObject):
    """A tag of an instance."""

    VERSION = "1.1"
    fields = declare(
        resource_id=of.StringField(),
        tag=of.StringField(),
    )


@register
class TagList(ObjectList):
    """A list of tags."""

    VERSION = "1.1"
    fields = declare(objects=of.ListOfObjectsField("Tag"))


@register
class TrustedCerts(WireObject):
    """The certificates that validate the signature of an instance's image."""

    VERSION = "1.0"
    fields = declare(
        ids=of.ListOfStringsField(),
    )


@register
class DeviceBus(WireObject):
    """The bus of a device; each kind of bus is a subclass."""

    VERSION = "1.0"


@register
class DeviceMetadata(WireObject):
    """A device and its tags; each kind of device is a subclass."""

    VERSION = "1.0"
    fields = declare(
        bus=of.ObjectField("DeviceBus", subclasses=True),
        tags=of.ListOfStringsField(),
    )


@register
class InstanceDeviceMetadata(WireObject):
    """The tagged devices of an instance."""

    VERSION = "1.0"
    fields = declare(
        devices=of.ListOfObjectsField("DeviceMetadata", subclasses=True),
    )


@register
class ResourceMetadata(WireObject):
    """Details of a resource; each kind is a subclass."""

    VERSION = "1.0"


@register
class Resource(WireObject):
    """A resource that is assigned to an instance."""

    VERSION = "1.0"
    fields = declare(
        identifier=of.StringField(),
        metadata=of.ObjectField("ResourceMetadata", subclasses=True),
        provider_uuid=of.UUIDField(),
        resource_class=ResourceClassField(),
    )


@register
class ResourceList(ObjectList):
    """A list of resources."""

    VERSION = "1.0"
    fields = declare(objects=of.ListOfObjectsField("Resource"))
