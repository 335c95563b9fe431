# SPDX-License-Identifier: Apache-2.0
"""The envelope of an object on the wire: its keys and their checks."""

from __future__ import annotations

import functools
import re
from typing import Any

from .errors import MalformedObject

NAME = "nova_object.name"
NAMESPACE = "nova_object.namespace"
VERSION = "nova_object.version"
DATA = "nova_object.data"
CHANGES = "nova_object.changes"

_VERSION_FORM = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.\d{1,6})?\Z", re.ASCII)


@functools.lru_cache(maxsize=1024)
def version_tuple(version: str) -> tuple[int, int]:
    """Return major and minor; a third part of a version is ignored."""
    match = _VERSION_FORM.match(version)
    if match is None:
        raise MalformedObject("a version like 1.2", version)
    return int(match[1]), int(match[2])


_ENVELOPE: tuple[tuple[str, type], ...] = (
    (NAME, str),
    (NAMESPACE, str),
    (VERSION, str),
    (DATA, dict),
)


def check_envelope(primitive: object) -> None:
    """Raise MalformedObject unless all keys of an object are there with their types."""
    if type(primitive) is not dict:
        raise MalformedObject("an object", primitive)
    for key, kind in _ENVELOPE:
        if key not in primitive:
            raise MalformedObject(f"an object with {key!r}", primitive)
        if type(primitive[key]) is not kind:
            raise MalformedObject(f"a {kind.__name__}", primitive[key], key)
    if primitive[NAMESPACE] != "nova":
        raise MalformedObject("namespace 'nova'", primitive[NAMESPACE], NAMESPACE)
    version_tuple(primitive[VERSION])


def changed_names(primitive: dict[str, Any]) -> set[str]:
    """Return the names of the fields that the sender has changed."""
    changes = primitive.get(CHANGES, ())
    if type(changes) not in (list, tuple) or not all(type(c) is str for c in changes):
        raise MalformedObject("a list of field names", changes, CHANGES)
    return set(changes)
