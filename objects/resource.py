# SPDX-License-Identifier: Apache-2.0
"""Devices and memory that an instance holds beside Placement's classes."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .fields import ResourceClassField, declare


@register
class ResourceMetadata(WireObject):
    """What else is known of a resource; each kind is a subclass of its own."""

    VERSION = "1.0"


@register
class Resource(WireObject):
    """One resource that an instance holds."""

    VERSION = "1.0"
    fields = declare(
        identifier=of.StringField(),
        metadata=of.ObjectField("ResourceMetadata", subclasses=True),
        provider_uuid=of.UUIDField(),
        resource_class=ResourceClassField(),
    )


@register
class ResourceList(ObjectList):
    """Resources."""

    VERSION = "1.0"
    fields = declare(
        objects=of.ListOfObjectsField("Resource"),
    )
