# SPDX-License-Identifier: Apache-2.0
"""Objects of an unknown class."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .envelope import NAME


class OpaqueObject:
    """An object of an unknown class, written back exactly as it was received.

    Only fields that accept subclasses have one (the devices of an instance).
    """

    # Unknown, so empty; oslo reads it for repr().
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
