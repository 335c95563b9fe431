# SPDX-License-Identifier: Apache-2.0
"""nova's services, and when each was last seen."""

from __future__ import annotations

from types import MappingProxyType

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .fields import declare
from .mixins import Persistent


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
        forced_down=of.BooleanField(),
        host=of.StringField(nullable=True),
        id=of.IntegerField(read_only=True),
        last_seen_up=of.DateTimeField(nullable=True),
        report_count=of.IntegerField(),
        topic=of.StringField(nullable=True),
        uuid=of.UUIDField(),
        version=of.IntegerField(),
    )
    ADDED = MappingProxyType(
        {
            "last_seen_up": "1.13",
            "forced_down": "1.14",
            "version": "1.16",
            "uuid": "1.21",
        }
    )


@register
class ServiceList(ObjectList):
    """A list of services."""

    VERSION = "1.19"
    fields = declare(
        objects=of.ListOfObjectsField("Service"),
    )
