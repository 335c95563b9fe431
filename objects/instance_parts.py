# SPDX-License-Identifier: Apache-2.0
"""Objects nested in an instance that the scheduler does not use."""

from __future__ import annotations

from types import MappingProxyType

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .fields import NetworkModelField, declare
from .mixins import Persistent


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
        type=of.StringField(),
        user_id=of.StringField(nullable=True),
    )
    ADDED = MappingProxyType({"type": "1.2"})


@register
class KeyPairList(ObjectList):
    """A list of public keys."""

    VERSION = "1.3"
    fields = declare(
        objects=of.ListOfObjectsField("KeyPair"),
    )


@register
class MigrationContext(Persistent, WireObject):
    """The claims of an instance before and after a move."""

    VERSION = "1.2"
    fields = declare(
        instance_uuid=of.UUIDField(),
        migration_id=of.IntegerField(),
        new_numa_topology=of.ObjectField("InstanceNUMATopology", nullable=True),
        new_pci_devices=of.ObjectField("PciDeviceList", nullable=True),
        new_pci_requests=of.ObjectField("InstancePCIRequests", nullable=True),
        new_resources=of.ObjectField("ResourceList", nullable=True),
        old_numa_topology=of.ObjectField("InstanceNUMATopology", nullable=True),
        old_pci_devices=of.ObjectField("PciDeviceList", nullable=True),
        old_pci_requests=of.ObjectField("InstancePCIRequests", nullable=True),
        old_resources=of.ObjectField("ResourceList", nullable=True),
    )
    ADDED = MappingProxyType(
        {
            "old_pci_devices": "1.1",
            "new_pci_devices": "1.1",
            "old_pci_requests": "1.1",
            "new_pci_requests": "1.1",
            "old_resources": "1.2",
            "new_resources": "1.2",
        }
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
    fields = declare(
        objects=of.ListOfObjectsField("Tag"),
    )


@register
class TrustedCerts(WireObject):
    """The certificates that validate the signature of an instance's image."""

    VERSION = "1.0"
    fields = declare(
        ids=of.ListOfStringsField(),
    )
