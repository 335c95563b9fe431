# SPDX-License-Identifier: Apache-2.0
"""Devices and memory that are assigned to an instance."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .fields import ResourceClassField, declare


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
    fields = declare(
        objects=of.ListOfObjectsField("Resource"),
    )
