# SPDX-License-Identifier: Apache-2.0
"""The envelope of an object on the wire, and objects with known envelopes only."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
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
    """Raise MalformedObject if a key of an envelope is missing or has another type."""
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
    if type(changes) not in (list, tuple) or not all(
        type(name) is str for name in changes
    ):
        raise MalformedObject("a list of field names", changes, CHANGES)
    return set(changes)


class OpaqueObject:
    """An object of an unknown class, written back exactly as it was received.

    Only fields that accept subclasses can have an OpaqueObject, such as the devices of
    an instance.
    """

    # The fields are unknown, so that this is empty; oslo reads it for repr().
    fields: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, primitive: dict[str, Any]) -> None:
        """Store the wire form."""
        self.primitive = primitive

    def obj_name(self) -> str:
        """Return the name of the class."""
        return str(self.primitive[NAME])

    def obj_to_primitive(
        self,
        target_version: str | None = None,  # noqa: ARG002 - VersionedObject's signature
        version_manifest: dict[str, str] | None = None,  # noqa: ARG002 - as above
    ) -> dict[str, Any]:
        """Return the wire form as it was received; it is never downgraded."""
        return copy.deepcopy(self.primitive)

    def obj_reset_changes(
        self, fields: list[str] | None = None, recursive: bool = False
    ) -> None:
        """Do nothing: the fields are unknown."""

    def __repr__(self) -> str:
        """Return the name of the class."""
        return f"OpaqueObject({self.obj_name()})"
