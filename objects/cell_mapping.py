# SPDX-License-Identifier: Apache-2.0
"""Mappings of cells: cell, host and instance mappings."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .base import ObjectList, Timestamped, WireObject, register
from .fields import declare, since


@register
class CellMapping(Timestamped, WireObject):
    """A cell: its name, its database, its message bus."""

    VERSION = "1.1"
    fields = declare(
        database_connection=of.StringField(),
        disabled=of.BooleanField(default=False),
        id=of.IntegerField(read_only=True),
        name=of.StringField(nullable=True),
        transport_url=of.StringField(),
        uuid=of.UUIDField(),
    )
    CELL0_UUID = "00000000-0000-0000-0000-000000000000"
    ADDED = since(disabled="1.1")

    @property
    def identity(self) -> str:
        """UUID and name of the cell for log messages."""
        name: str | None = self.name if "name" in self else None
        return f"{self.uuid}({name})" if name else str(self.uuid)


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
        queued_for_delete=of.BooleanField(default=False),
        user_id=of.StringField(),
    )
    ADDED = since(queued_for_delete="1.1", user_id="1.2")
