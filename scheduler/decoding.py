# SPDX-License-Identifier: Apache-2.0
"""Decoding of JSON from Placement and nova's databases."""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Primitive(msgspec.Struct, Generic[T], gc=False):
    """A versioned object as nova writes it today; only its fields are read."""

    data: T = msgspec.field(name="nova_object.data")


_decode = msgspec.json.Decoder().decode


def loads(text: str | bytes) -> Any:  # noqa: ANN401 - JSON's own types
    """Return the content of a JSON text, in less than half the time of `json.loads`.

    Values that `json.loads` accepts and msgspec does not, such as NaN, are read, too.

    Raises
    ------
    json.JSONDecodeError
        The text is not JSON.
    """
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return json.loads(text)
