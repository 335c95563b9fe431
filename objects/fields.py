# SPDX-License-Identifier: Apache-2.0
"""Field types for the declaration of objects: oslo's, and the few of nova."""

from __future__ import annotations

import json
import re
from typing import Any

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

# A default of None, which the type annotations of oslo's fields do not allow.
NONE: Any = None

Fields = dict[str, of.Field[Any]]

Compound = of.List[Any] | of.Set[Any] | of.Dict[Any]


def type_of(field: of.Field[Any]) -> of.FieldType[Any]:
    """Return the type of a field."""
    return field._type  # noqa: SLF001 - oslo.versionedobjects has no public name for it


def element_of(compound: Compound) -> of.Field[Any]:
    """Return the field of the elements of a list, set or dict."""
    return compound._element_type  # noqa: SLF001 - no public name either


def class_of(kind: of.Object) -> tuple[str, bool]:
    """Return the class of a nested object, and whether subclasses are accepted."""
    return kind._obj_name, kind._subclasses  # noqa: SLF001 - no public names either


def declare(**fields: of.Field[Any]) -> Fields:
    """Declare the fields of an object in the order in which they are written."""
    return fields


class ResourceClass(of.StringPattern[str]):
    """The name of a resource class, upper case."""

    PATTERN = "^[A-Z0-9_]+$"
    _FORM = re.compile(r"[A-Z0-9_]+\Z")

    def coerce(
        self,
        obj: ovo.VersionedObject | None,  # noqa: ARG002 - FieldType's signature
        attr: str,  # noqa: ARG002 - as above
        value: object,
    ) -> str:
        """Return the name in upper case; only letters, digits and underscores."""
        name = value.upper() if isinstance(value, str) else ""
        if not self._FORM.match(name):
            raise ValueError(f"{value!r} is not the name of a resource class")
        return name


class NetworkModel(of.FieldType[str]):
    """Neutron's network info of an instance: JSON that is not parsed."""

    def coerce(
        self,
        obj: ovo.VersionedObject | None,  # noqa: ARG002 - FieldType's signature
        attr: str,
        value: object,
    ) -> str:
        """Return the JSON, or the JSON of a list of ports."""
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return json.dumps(value)
        raise ValueError(f"{attr} is not a list of ports")


class ResourceClassField(of.AutoTypedField[str]):
    """A field with the name of a resource class."""

    AUTO_TYPE = ResourceClass()


class NetworkModelField(of.AutoTypedField[str]):
    """A field with the network info of an instance."""

    AUTO_TYPE = NetworkModel()
