# SPDX-License-Identifier: Apache-2.0
"""Conversion of JSON to Python values: each field has one reader, created once.

A reader takes the JSON value, and whether the sender's version of the object is newer
than the version defined here (its enums may have more values). It returns the Python
value, or raises MalformedObject.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import netaddr  # type: ignore[import-untyped]  # ships no types
from oslo_utils import strutils, timeutils
from oslo_versionedobjects import fields as of

from .errors import MalformedObject
from .fields import element_of, type_of

Reader = Callable[[Any, bool], Any]
ObjectReader = Callable[[of.Object], Reader]


def _exact(kind: type, expected: str) -> Reader:
    """Return a reader that accepts this type only: no subclass, so no bool as int."""

    def read(value: object, _is_newer: bool) -> Any:
        if type(value) is kind:
            return value
        raise MalformedObject(expected, value)

    return read


def _float(value: object, _is_newer: bool) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise MalformedObject("a number", value)


def _flexible_boolean(value: object, _is_newer: bool) -> bool:
    if type(value) is bool:
        return value
    if type(value) in (str, int):
        try:
            return bool(strutils.bool_from_string(value, strict=True))
        except ValueError:
            pass
    raise MalformedObject("a boolean", value)


def _datetime(value: object, _is_newer: bool) -> datetime.datetime:
    if type(value) is not str:
        raise MalformedObject("an ISO 8601 time", value)
    try:
        parsed = datetime.datetime.fromisoformat(value)
    except ValueError:
        try:  # formats that only iso8601 parses
            parsed = timeutils.parse_isotime(value)
        except (ValueError, OverflowError) as error:
            raise MalformedObject("an ISO 8601 time", value) from error
    if parsed.tzinfo is None:
        return parsed.replace(tzinfo=datetime.UTC)
    try:
        return parsed.astimezone(datetime.UTC)
    except OverflowError as error:
        raise MalformedObject("a time in the years 1 to 9999", value) from error


def _address(version: int | None) -> Reader:
    expected = f"an IPv{version} address" if version else "an IP address"

    def read(value: object, _is_newer: bool) -> netaddr.IPAddress:
        if type(value) is not str:
            raise MalformedObject(expected, value)
        try:
            return netaddr.IPAddress(value, version)
        except (ValueError, TypeError, netaddr.AddrFormatError) as error:
            raise MalformedObject(expected, value) from error

    return read


def _enum(kind: of.Enum) -> Reader:
    values = frozenset(kind.valid_values)
    expected = "one of " + ", ".join(kind.valid_values)

    def read(value: object, is_newer: bool) -> str:
        if type(value) is not str:
            raise MalformedObject(expected, value)
        if value in values:
            return value
        try:  # an old spelling, which the field's type converts
            return str(kind.coerce(None, "", value))
        except ValueError as error:
            if is_newer:
                return value
            raise MalformedObject(expected, value) from error

    return read


def _coerced(kind: of.FieldType[Any], expected: str) -> Reader:
    """Return the reader of a string that oslo's type validates."""

    def read(value: object, _is_newer: bool) -> Any:
        if type(value) is not str:
            raise MalformedObject(expected, value)
        try:
            return kind.coerce(None, "", value)
        except ValueError as error:
            raise MalformedObject(expected, value) from error

    return read


def _list(element: Reader) -> Reader:
    def read(value: object, is_newer: bool) -> list[Any]:
        if type(value) is not list and type(value) is not tuple:
            raise MalformedObject("a list", value)
        items: list[Any] = []
        try:
            for item in value:
                items.append(element(item, is_newer))  # noqa: PERF401 - errors need the index
        except MalformedObject as error:
            error.prefix_path(f"[{len(items)}]")
            raise
        return items

    return read


def _set(element: Reader) -> Reader:
    items = _list(element)

    def read(value: object, is_newer: bool) -> set[Any]:
        # Objects that are passed within one process are not JSON: a set is still a set.
        return set(items(list(value) if type(value) is set else value, is_newer))

    return read


def _dict(element: Reader) -> Reader:
    def read(value: object, is_newer: bool) -> dict[str, Any]:
        if type(value) is not dict:
            raise MalformedObject("a dict", value)
        items: dict[str, Any] = {}
        key: object = None
        try:
            for key, item in value.items():
                if type(key) is not str:
                    raise MalformedObject("a string as key", key)
                items[key] = element(item, is_newer)
        except MalformedObject as error:
            error.prefix_path(f"[{key!r}]")
            raise
        return items

    return read


_SCALARS: dict[type, Reader] = {
    of.String: _exact(str, "a string"),
    of.UUID: _exact(str, "a UUID"),
    of.Integer: _exact(int, "an integer"),
    of.Boolean: _exact(bool, "a boolean"),
    of.Float: _float,
    of.FlexibleBoolean: _flexible_boolean,
    of.DateTime: _datetime,
    of.IPAddress: _address(None),
    of.IPV4Address: _address(4),
    of.IPV6Address: _address(6),
}


def _reader_of_type(kind: of.FieldType[Any], read_object: ObjectReader) -> Reader:
    if isinstance(kind, of.Object):
        return read_object(kind)
    if isinstance(kind, of.List):
        return _list(reader(element_of(kind), read_object))
    if isinstance(kind, of.Set):
        return _set(reader(element_of(kind), read_object))
    if isinstance(kind, of.Dict):
        return _dict(reader(element_of(kind), read_object))
    if isinstance(kind, of.Enum):
        return _enum(kind)
    scalar_reader = _SCALARS.get(type(kind))
    if scalar_reader is not None:
        return scalar_reader
    return _coerced(kind, f"a {type(kind).__name__}")


def reader(field: of.Field[Any], read_object: ObjectReader) -> Reader:
    """Return the reader of a field; `read_object` returns that of a nested object."""
    read = _reader_of_type(type_of(field), read_object)
    if field.nullable:

        def nullable(value: object, is_newer: bool) -> Any:
            return None if value is None else read(value, is_newer)

        return nullable
    return read
