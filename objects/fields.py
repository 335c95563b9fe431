# SPDX-License-Identifier: Apache-2.0
"""The kinds of field that objects are declared with; oslo's, and nova's few own."""

from __future__ import annotations

import json
import re
from typing import Any

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

# A default of None, which the types of oslo's fields do not foresee.
NONE: Any = None

Fields = dict[str, of.Field[Any]]

Compound = of.List[Any] | of.Set[Any] | of.Dict[Any]


def type_of(field: of.Field[Any]) -> of.FieldType[Any]:
    """Return the type of a field."""
    return field._type  # noqa: SLF001 - oslo.versionedobjects has no public name for it


def element_of(compound: Compound) -> of.Field[Any]:
    """Return the field that each element of a list, set or dict is."""
    return compound._element_type  # noqa: SLF001 - no public name either


def class_of(kind: of.Object) -> tuple[str, bool]:
    """Return the class of a nested object, and whether its subclasses are taken."""
    return kind._obj_name, kind._subclasses  # noqa: SLF001 - no public names either


def declare(**fields: of.Field[Any]) -> Fields:
    """Declare the fields of an object, in the order they are written."""
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
        """Raise the case, refuse anything but letters, digits and underscores."""
        name = value.upper() if isinstance(value, str) else ""
        if not self._FORM.match(name):
            raise ValueError(f"{value!r} is not the name of a resource class")
        return name


class NetworkModel(of.FieldType[str]):
    """What Neutron told about an instance's ports: JSON, kept as the text it is."""

    def coerce(
        self,
        obj: ovo.VersionedObject | None,  # noqa: ARG002 - FieldType's signature
        attr: str,
        value: object,
    ) -> str:
        """Take the text, or a list of ports."""
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return json.dumps(value)
        raise ValueError(f"{attr} is not a list of ports")


class ResourceClassField(of.AutoTypedField[str]):
    """A field that names a resource class."""

    AUTO_TYPE = ResourceClass()


class NetworkModelField(of.AutoTypedField[str]):
    """A field that holds an instance's ports."""

    AUTO_TYPE = NetworkModel()
