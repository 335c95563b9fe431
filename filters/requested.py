# SPDX-License-Identifier: Apache-2.0
"""Fields of a request, with defaults for unset ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..objects import ImageMetaProps, RequestSpec


def extra_specs(spec_obj: RequestSpec) -> Mapping[str, str]:
    """Return the flavor's extra specs; empty if unset."""
    flavor = spec_obj.flavor
    specs: Mapping[str, str] | None = (
        flavor.extra_specs if "extra_specs" in flavor else None
    )
    return specs or {}


def image_properties(spec_obj: RequestSpec) -> ImageMetaProps:
    """Return the properties of the image; empty without an image."""
    image = spec_obj.image
    is_set = image is not None and "properties" in image
    return image.properties if is_set else ImageMetaProps()


def image_property(properties: ImageMetaProps, name: str) -> Any:  # noqa: ANN401 - of its field's type
    """Return one property; None if it is unset or unknown."""
    return getattr(properties, name) if name in properties else None


def image_id(spec_obj: RequestSpec) -> str | None:
    """Return the image's ID; None for a volume that was not created from an image."""
    image = spec_obj.image
    return image.id if image is not None and "id" in image else None


def hint_values(spec_obj: RequestSpec, name: str) -> list[str]:
    """Return the values of a scheduler hint; empty if it is unset or empty."""
    value = spec_obj.get_scheduler_hint(name)
    return [value] if isinstance(value, str) and value else list(value or ())
