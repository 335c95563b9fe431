# SPDX-License-Identifier: Apache-2.0
"""Objects whose class only others know."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .envelope import NAME


class OpaqueObject:
    """An object of a class that we do not know, written back exactly as it came.

    Only fields that take subclasses hold one (the devices of an instance).
    """

    # None that anybody here can name; oslo looks for them when it prints.
    fields: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, primitive: dict[str, Any]) -> None:
        """Hold what came."""
        self.primitive = primitive

    def obj_name(self) -> str:
        """Name the class it is of, elsewhere."""
        return str(self.primitive[NAME])

    def obj_to_primitive(
        self,
        target_version: str | None = None,  # noqa: ARG002 - VersionedObject's signature
        version_manifest: dict[str, str] | None = None,  # noqa: ARG002 - as above
    ) -> dict[str, Any]:
        """Give back what came; there is nothing to go back from."""
        return copy.deepcopy(self.primitive)

    def obj_reset_changes(
        self, fields: list[str] | None = None, recursive: bool = False
    ) -> None:
        """Leave everything as it is."""

    def __repr__(self) -> str:
        """Name the class."""
        return f"OpaqueObject({self.obj_name()})"
