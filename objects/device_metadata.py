# SPDX-License-Identifier: Apache-2.0
"""What a guest is told of its devices."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .fields import declare


@register
class DeviceBus(WireObject):
    """Where a device sits; each kind of bus is a subclass of its own."""

    VERSION = "1.0"


@register
class DeviceMetadata(WireObject):
    """One device and its tags; each kind is a subclass of its own."""

    VERSION = "1.0"
    fields = declare(
        bus=of.ObjectField("DeviceBus", subclasses=True),
        tags=of.ListOfStringsField(),
    )


@register
class InstanceDeviceMetadata(WireObject):
    """All devices of an instance that have tags."""

    VERSION = "1.0"
    fields = declare(
        devices=of.ListOfObjectsField("DeviceMetadata", subclasses=True),
    )
