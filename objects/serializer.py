# SPDX-License-Identifier: Apache-2.0
"""The serializer for oslo.messaging: objects to JSON and back."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

from .base import WireObject, read_object
from .bounds import Bounds
from .envelope import NAME
from .errors import MalformedObject
from .writing import format_time

#: Types of values that need no conversion: nearly all of a message.
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


class Serializer:
    """Convert objects to primitives and back, at any depth.

    It has the methods of oslo.messaging's Serializer, without its base class.

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
            return {k: self.serialize_entity(context, v) for k, v in entity.items()}
        if isinstance(entity, list | tuple | set | frozenset):
            return [self.serialize_entity(context, item) for item in entity]
        if isinstance(entity, datetime.datetime):
            return format_time(entity)
        write = getattr(entity, "obj_to_primitive", None)
        # The primitives of third-party objects may have tuples for sets.
        return self.serialize_entity(context, write()) if callable(write) else entity

    def deserialize_entity(self, context: object, entity: object) -> Any:
        """Return the objects, or raise MalformedObject."""
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
                k: v if type(v) in _PLAIN else self._read(context, v)
                for k, v in entity.items()
            }
        if isinstance(entity, list | tuple | set):
            return [v if type(v) in _PLAIN else self._read(context, v) for v in entity]
        return entity

    def serialize_context(self, context: Any) -> dict[str, Any]:
        """Return the context's dict, without values that JSON cannot represent."""
        whole = context if isinstance(context, Mapping) else context.to_dict()
        return {k: v for k, v in whole.items() if isinstance(k, str) and _is_json(v)}

    def deserialize_context(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole dict; callers may need any of its keys."""
        return dict(context)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
