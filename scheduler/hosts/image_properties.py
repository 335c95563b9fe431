# SPDX-License-Identifier: Apache-2.0
"""An instance's image properties as (property, text) pairs, for counting."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ...objects import ImageMeta, ImageMetaProps, Instance

LOG = logging.getLogger(__name__)

#: A property's current name, and its value as text.
ImageProperty = tuple[str, str]
ImageProperties = frozenset[ImageProperty]

NO_PROPERTIES: Final[ImageProperties] = frozenset()

_PREFIX = "image_"

#: Structured data that nova neither stores with an instance nor reads there.
_SKIPPED = frozenset(
    {"mappings", "block_device_mapping", "img_mappings", "img_block_device_mapping"}
)


def properties_of_image(image: ImageMeta | None) -> ImageProperties:
    """Return an image's properties; none where there is no image."""
    if image is None or "properties" not in image:
        return NO_PROPERTIES
    return _pairs(image.properties)


def properties_of_instance(instance: Instance) -> ImageProperties | None:
    """Return the image properties that an instance has in its system metadata.

    None where the instance has no system metadata.
    """
    if "system_metadata" not in instance:
        return None
    metadata: Mapping[str, str | None] = instance.system_metadata
    found = {
        key.removeprefix(_PREFIX): value
        for key, value in metadata.items()
        if key.startswith(_PREFIX) and value is not None
    }
    kept = {key: value for key, value in found.items() if key not in _SKIPPED}
    try:
        return _pairs(ImageMetaProps.from_dict(kept))
    except ValueError as e:
        LOG.warning("The image properties of %s are not counted: %s", instance.uuid, e)
        return NO_PROPERTIES


def _pairs(properties: ImageMetaProps) -> ImageProperties:
    return frozenset(
        (name, str(_ordered(value))) for name, value in properties.to_dict().items()
    )


def _ordered(value: object) -> object:
    """Return a value whose text is the same for equal values; sets have no order."""
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return sorted(value) if isinstance(value, set | frozenset) else value
