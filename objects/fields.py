# SPDX-License-Identifier: Apache-2.0
"""Declare the fields of objects: with oslo's field types, and the few of nova's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

# A default of None, which the type annotations of oslo's fields do not allow.
NONE: Any = None

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


class Since(NamedTuple):
    """A field, and the version of its object that added it."""

    version: str
    field: of.Field[Any]


class Fields(dict[str, of.Field[Any]]):
    """The fields of an object, and the versions that added the newer ones."""

    def __init__(self, declared: Mapping[str, of.Field[Any] | Since]) -> None:
        super().__init__(
            (name, field.field if isinstance(field, Since) else field)
            for name, field in declared.items()
        )
        self.added = {
            name: field.version
            for name, field in declared.items()
            if isinstance(field, Since)
        }


def declare(**fields: of.Field[Any] | Since) -> Fields:
    """Declare the fields of an object in the order in which they are written."""
    return Fields(fields)


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


class Enumeration(of.Enum):
    """The values that a field may have.

    Parameters
    ----------
    name : str
        nova's name of the enumeration.
    values : str
        The values, separated by spaces.
    any_case : bool
        Accept upper and lower case when a field is set.
    old : mapping
        Current values by old values, which are accepted as well.
    """

    def __init__(
        self,
        name: str,
        values: str,
        *,
        any_case: bool = False,
        old: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(tuple(values.split()))
        self.name = name
        self._any_case = any_case
        self._old = old

    def coerce(self, obj: ovo.VersionedObject | None, attr: str, value: object) -> str:
        """Return the current name of the value."""
        if self._any_case:
            value = str(value).lower()
            value = self._old.get(value, value)
        coerced: str = super().coerce(obj, attr, value)
        return coerced

    def stringify(self, value: str) -> str:
        """Quote the value, without a check: a newer nova may have further values."""
        return f"'{value}'"


class EnumField(of.BaseEnumField):
    """A field with one of an enumeration's values."""

    def __init__(self, kind: Enumeration, **kwargs: Any) -> None:
        """Set the enumeration; `kwargs` are those of every field."""
        self.AUTO_TYPE = kind
        self._name = kind.name
        super().__init__(**kwargs)

    def __repr__(self) -> str:
        """Return nova's representation, from which fingerprints are computed."""
        return (
            f"{self._name}(default={self.default},nullable={self.nullable},"
            f"valid_values={self.valid_values})"
        )
