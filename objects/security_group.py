# SPDX-License-Identifier: Apache-2.0
"""Security groups, which the scheduler does not use."""

from __future__ import annotations

from types import MappingProxyType

from oslo_versionedobjects import fields as of

from .base import ObjectList, WireObject, register
from .fields import declare
from .mixins import Persistent


@register
class SecurityGroup(Persistent, WireObject):
    """A security group."""

    VERSION = "1.2"
    fields = declare(
        description=of.StringField(),
        id=of.IntegerField(),
        name=of.StringField(),
        project_id=of.StringField(),
        user_id=of.StringField(),
        uuid=of.UUIDField(),
    )
    ADDED = MappingProxyType({"uuid": "1.2"})


@register
class SecurityGroupList(ObjectList):
    """A list of security groups."""

    VERSION = "1.1"
    fields = declare(
        objects=of.ListOfObjectsField("SecurityGroup"),
    )
