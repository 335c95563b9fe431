# SPDX-License-Identifier: Apache-2.0
"""Mappings of cells: cell, host and instance mappings."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .base import ObjectList, Timestamped, WireObject, register
from .fields import Since, declare


@register
class CellMapping(Timestamped, WireObject):
    """A cell: its name, its database, its message bus."""

    VERSION = "1.1"
    fields = declare(
        database_connection=of.StringField(),
        disabled=Since("1.1", of.BooleanField(default=False)),
        id=of.IntegerField(read_only=True),
        name=of.StringField(nullable=True),
        transport_url=of.StringField(),
        uuid=of.UUIDField(),
    )


@register
class CellMappingList(ObjectList):
    """A list of cell mappings."""

    VERSION = "1.1"
    fields = declare(objects=of.ListOfObjectsField("CellMapping"))


@register
class HostMapping(Timestamped, WireObject):
    """The cell a host is in."""

    VERSION = "1.0"
    fields = declare(
        cell_mapping=of.ObjectField("CellMapping"),
        host=of.StringField(),
        id=of.IntegerField(read_only=True),
    )


@register
class InstanceMapping(Timestamped, WireObject):
    """The cell an instance is in; None until it is scheduled."""

    VERSION = "1.2"
    fields = declare(
        cell_mapping=of.ObjectField("CellMapping", nullable=True),
        id=of.IntegerField(read_only=True),
        instance_uuid=of.UUIDField(),
        project_id=of.StringField(),
        queued_for_delete=Since("1.1", of.BooleanField(default=False)),
        user_id=Since("1.2", of.StringField()),
    )
