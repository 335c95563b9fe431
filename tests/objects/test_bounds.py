# SPDX-License-Identifier: Apache-2.0
"""A message that is too deep or too large is refused before it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.objects import MalformedObject, Serializer
from moorage.objects.serializer import Bounds

NARROW = Serializer(Bounds(max_depth=3, max_values=10, max_text=5))


def nested(depth: int, kind: type = list) -> Any:
    """Lists or dicts in one another."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_depth_is_limited(kind: type) -> None:
    assert NARROW.deserialize_entity({}, nested(3, kind)) == nested(3, kind)
    with pytest.raises(MalformedObject, match="at most 3 levels"):
        NARROW.deserialize_entity({}, nested(4, kind))


def test_values_are_counted_over_all_lists_and_dicts() -> None:
    assert len(NARROW.deserialize_entity({}, [[1] * 4, [1] * 4])) == 2
    with pytest.raises(MalformedObject, match="at most 10 values"):
        NARROW.deserialize_entity({}, [[1] * 5, {str(i): 1 for i in range(5)}])


@pytest.mark.parametrize("message", ["x" * 6, ["x" * 6], {"x" * 6: 1}])
def test_texts_are_limited_and_not_repeated_whole(message: Any) -> None:
    with pytest.raises(MalformedObject, match="at most 5 characters"):
        NARROW.deserialize_entity({}, message)
    with pytest.raises(MalformedObject) as raised:
        Serializer(Bounds(max_text=1000)).deserialize_entity({}, "x" * 10_000)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("kind", [list, dict])
def test_any_depth_is_refused_in_time(kind: type) -> None:
    """Far beyond what Python could follow by recursion."""
    with pytest.raises(MalformedObject, match="at most 100 levels"):
        Serializer().deserialize_entity({}, nested(500_000, kind))


def test_message_with_a_million_values_is_refused() -> None:
    with pytest.raises(MalformedObject, match="at most 1000000 values"):
        Serializer().deserialize_entity({}, json.loads(f"[{'0,' * 1_000_000}0]"))


def test_nested_object_is_limited_too() -> None:
    deep = {
        "nova_object.name": "Aggregate",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.3",
        "nova_object.data": {"metadata": nested(200, dict)},
    }
    with pytest.raises(MalformedObject, match="at most 100 levels"):
        Serializer().deserialize_entity({}, [deep])
