# SPDX-License-Identifier: Apache-2.0
"""Image properties of instances in reports, each set of properties only once."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from ..hosts import ImageProperties
from ..hosts.columns import read_texts, read_uuids

#: The field of a report that has the image properties.
IMAGE_PROPERTIES: Final = "image_properties"
#: Different sets of properties that are kept, to share them between hosts.
_MAX_SHARED: Final = 4096


def write_image_properties(
    properties: Mapping[str, ImageProperties],
) -> list[dict[str, Any]]:
    """Return the image properties of instances in the form that a report has."""
    groups: defaultdict[ImageProperties, list[str]] = defaultdict(list)
    for uuid in sorted(properties):
        groups[properties[uuid]].append(uuid)
    return [
        {"properties": dict(sorted(properties)), "instances": uuids}
        for properties, uuids in groups.items()
    ]


def read_image_properties(value: object) -> dict[str, ImageProperties]:
    """Return a report's image properties by instance.

    Raises
    ------
    ValueError
        The value does not have the form that reports use.
    """
    if type(value) is not list or not all(type(group) is dict for group in value):
        raise ValueError("a list of properties with their instances is needed")
    by_instance: dict[str, ImageProperties] = {}
    for group in value:
        properties = _shared(frozenset(read_texts(group.get("properties")).items()))
        by_instance.update(
            dict.fromkeys(read_uuids(group.get("instances")), properties)
        )
    return by_instance


@functools.lru_cache(_MAX_SHARED)
def _shared(properties: ImageProperties) -> ImageProperties:
    """Return one object for equal properties: many hosts have the same images."""
    return properties
