# SPDX-License-Identifier: Apache-2.0
"""The serializer for oslo.messaging, and the bounds of incoming messages."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

from .base import WireObject, read_object
from .envelope import NAME
from .errors import MalformedObject
from .writing import format_time


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one argument of an RPC message, far above what nova sends.

    Of 400 recorded messages of nova 34 the largest has 511 values, 15 levels and a
    string of 2,336 characters; a compute service sends all its instances in one list.

    Attributes
    ----------
    max_depth : int
        Levels of nested lists and dicts.
    max_values : int
        Values of all lists and dicts together.
    max_text : int
        Characters of one string.
    """

    max_depth: int = 100
    max_values: int = 1_000_000
    max_text: int = 4 << 20

    def check(self, entity: object) -> None:
        """Check a message before any object is created from it.

        Raises
        ------
        MalformedObject
            A bound is exceeded; the text of the error names it.
        """
        level: list[Any] = [entity]
        max_text = self.max_text
        n_values = depth = 0
        while level:
            next_level: list[Any] = []
            for value in level:
                kind = type(value)
                if kind is str:
                    if len(value) > max_text:
                        raise _beyond(
                            f"a string of at most {max_text} characters", value
                        )
                elif kind is dict:
                    next_level += value  # the keys: their length is checked as well
                    n_values += len(value)
                    next_level += value.values()
                elif kind is list or kind is tuple or kind is set:
                    n_values += len(value)
                    next_level += value
                if n_values > self.max_values:
                    raise _beyond(f"at most {self.max_values} values")
            depth += 1
            if next_level and depth > self.max_depth:
                raise _beyond(f"at most {self.max_depth} levels")
            level = next_level


def _beyond(expected: str, value: str = "…") -> MalformedObject:
    return MalformedObject(expected, value[:100], "message")


#: Types of values that need no conversion; nearly all values of a message have them.
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


class Serializer:
    """Convert objects to primitives and back, at any depth.

    It has the methods of oslo.messaging's Serializer, but not that base class.

    Parameters
    ----------
    bounds : Bounds, optional
        Bounds of incoming messages.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = Bounds() if bounds is None else bounds

    def serialize_entity(self, context: object, entity: object) -> Any:
        """Return the JSON form; anything with ``obj_to_primitive`` is an object."""
        if isinstance(entity, WireObject):
            return entity.obj_to_primitive()
        if isinstance(entity, dict):
            return {
                key: self.serialize_entity(context, value)
                for key, value in entity.items()
            }
        if isinstance(entity, list | tuple | set | frozenset):
            return [self.serialize_entity(context, item) for item in entity]
        if isinstance(entity, datetime.datetime):
            return format_time(entity)
        write = getattr(entity, "obj_to_primitive", None)
        # In the primitives of third-party objects, a set may be a tuple.
        return self.serialize_entity(context, write()) if callable(write) else entity

    def deserialize_entity(self, context: object, entity: object) -> Any:
        """Return the entity with its objects read, or raise MalformedObject."""
        self._bounds.check(entity)
        try:
            return self._read(context, entity)
        except RecursionError as error:
            raise MalformedObject("a shallower message", "…", "message") from error

    def _read(self, context: object, entity: object) -> Any:
        if isinstance(entity, dict):
            if NAME in entity:
                return read_object(entity, context=context)
            return {
                key: value if type(value) in _PLAIN else self._read(context, value)
                for key, value in entity.items()
            }
        if isinstance(entity, list | tuple | set):
            return [
                value if type(value) in _PLAIN else self._read(context, value)
                for value in entity
            ]
        return entity

    def serialize_context(self, context: Any) -> dict[str, Any]:
        """Return the context's dict, without values that JSON cannot represent."""
        values = context if isinstance(context, Mapping) else context.to_dict()
        return {
            name: value
            for name, value in values.items()
            if isinstance(name, str) and _is_json(value)
        }

    def deserialize_context(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole dict; callers may need any of its keys."""
        return dict(context)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
