# SPDX-License-Identifier: Apache-2.0
"""Host aggregates: groups of hosts with metadata."""

from __future__ import annotations

from types import MappingProxyType

from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .fields import declare
from .mixins import Persistent


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
        uuid=of.UUIDField(),
    )
    ADDED = MappingProxyType({"uuid": "1.2"})

    @property
    def availability_zone(self) -> str | None:
        """The availability zone of this aggregate, or None."""
        zone: str | None = (self.metadata or {}).get("availability_zone")
        return zone


@register
class AggregateList(ObjectList):
    """A list of aggregates."""

    VERSION = "1.3"
    fields = declare(
        objects=of.ListOfObjectsField("Aggregate"),
    )
