# SPDX-License-Identifier: Apache-2.0
"""The metadata of devices that a guest can read."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .fields import declare


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
