# SPDX-License-Identifier: Apache-2.0
"""Convert values to JSON: one writer for each field whose values are not JSON already.

Sets and tuples become lists and times become ISO strings, so that a reply is the same
before and after the broker.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .fields import element_of, type_of

Writer = Callable[[Any], Any]


def format_time(value: datetime.datetime) -> str:
    """Format a time as nova does: UTC, with a Z."""
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value.isoformat() + "Z"


def _object(value: ovo.VersionedObject) -> Any:
    return value.obj_to_primitive()


def _each(element: Writer | None) -> Writer:
    if element is None:
        return list
    return lambda value: [None if item is None else element(item) for item in value]


def _ordered(element: Writer | None) -> Writer:
    # Sorted, so that equal sets have equal JSON.
    items = _each(element)
    return lambda value: sorted(items(value))


def _values(element: Writer | None) -> Writer:
    if element is None:
        return dict
    return lambda value: {
        key: None if item is None else element(item) for key, item in value.items()
    }


def _of_type(kind: of.FieldType[Any]) -> Writer | None:
    if isinstance(kind, of.Object):
        return _object
    if isinstance(kind, of.List):
        return _each(_of_type(type_of(element_of(kind))))
    if isinstance(kind, of.Set):
        return _ordered(_of_type(type_of(element_of(kind))))
    if isinstance(kind, of.Dict):
        return _values(_of_type(type_of(element_of(kind))))
    if isinstance(kind, of.DateTime):
        return format_time
    if isinstance(kind, of.IPAddress):
        return str
    return None


def writer(field: of.Field[Any]) -> Writer | None:
    """Return the writer of a field; None if the value needs no conversion."""
    return _of_type(type_of(field))
