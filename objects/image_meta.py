# SPDX-License-Identifier: Apache-2.0
"""The image an instance boots from."""

from __future__ import annotations

from typing import Any, Self

from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .fields import declare
from .image_props import ImageMetaProps

# Nullable in Glance, but not in this object.
_NULL_TEXTS = ("name", "checksum", "owner", "container_format", "disk_format")
_NULL_NUMBERS = ("size", "virtual_size")


@register
class ImageMeta(WireObject):
    """An image as Glance describes it."""

    VERSION = "1.8"
    fields = declare(
        checksum=of.StringField(),
        container_format=of.StringField(),
        created_at=of.DateTimeField(nullable=True),
        direct_url=of.StringField(),
        disk_format=of.StringField(),
        id=of.UUIDField(),
        min_disk=of.IntegerField(),
        min_ram=of.IntegerField(),
        name=of.StringField(),
        owner=of.StringField(),
        properties=of.ObjectField("ImageMetaProps"),
        protected=of.FlexibleBooleanField(),
        size=of.IntegerField(),
        status=of.StringField(),
        tags=of.ListOfStringsField(),
        updated_at=of.DateTimeField(nullable=True),
        virtual_size=of.IntegerField(),
        visibility=of.StringField(),
    )

    @classmethod
    def from_dict(cls, image_meta: dict[str, Any] | None) -> Self:
        """Create it from an image dict; Glance's nulls become empty values."""
        values = dict(image_meta or {})
        values["properties"] = ImageMetaProps.from_dict(values.get("properties") or {})
        for names, empty in ((_NULL_TEXTS, ""), (_NULL_NUMBERS, 0)):
            for name in names:
                if name in values and values[name] is None:
                    values[name] = empty
        return cls(**{k: v for k, v in values.items() if k in cls.fields})
