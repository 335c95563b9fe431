# SPDX-License-Identifier: Apache-2.0
"""The flavor of an instance: its size and its extra specs."""

from __future__ import annotations

from types import MappingProxyType

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .fields import declare
from .mixins import Persistent


@register
class Flavor(Persistent, WireObject, ovo.VersionedObjectDictCompat):
    """The size of an instance and its extra specs."""

    VERSION = "1.2"
    fields = declare(
        description=of.StringField(nullable=True),
        disabled=of.BooleanField(),
        ephemeral_gb=of.IntegerField(),
        extra_specs=of.DictOfStringsField(),
        flavorid=of.StringField(),
        id=of.IntegerField(),
        is_public=of.BooleanField(),
        memory_mb=of.IntegerField(),
        name=of.StringField(nullable=True),
        projects=of.ListOfStringsField(),
        root_gb=of.IntegerField(),
        rxtx_factor=of.FloatField(nullable=True, default=1.0),
        swap=of.IntegerField(),
        vcpu_weight=of.IntegerField(nullable=True),
        vcpus=of.IntegerField(),
    )
    ADDED = MappingProxyType({"description": "1.2"})
