# SPDX-License-Identifier: Apache-2.0
"""Decoding of JSON from Placement and nova's databases, and of YAML files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import msgspec
import yaml

T = TypeVar("T")


class Primitive(msgspec.Struct, Generic[T], gc=False):
    """A versioned object as nova writes it today; only its fields are read."""

    data: T = msgspec.field(name="nova_object.data")


_decode = msgspec.json.Decoder().decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

#: What PyYAML raises for scalars such as 2026-99-99, `!!int ""` and `!!bool x`.
_OF_SCALARS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
#: Bytes that are decoded at once; this takes some 5 ms.
_MAX_AT_ONCE = 1_000_000


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


def load_yaml(data: bytes) -> Any:  # noqa: ANN401 - YAML's own types
    """Return the content of a file of YAML or JSON, which is not trusted.

    Anchors may make the content much larger than the file, or endless.

    Raises
    ------
    ValueError
        The file has neither, or is nested too deeply.
    """
    try:
        text = data.decode()
        if text.lstrip().startswith("{"):
            # A YAML document can begin with a brace, too; JSON is read far faster.
            with contextlib.suppress(ValueError):
                return json.loads(text)
        # CSafeLoader is ten times faster; it needs libyaml.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return yaml.load(text, Loader=loader)
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ValueError(f"not valid YAML or JSON: {e}") from e
    except _OF_SCALARS as e:
        raise ValueError(f"not valid YAML: a value is wrong: {e!r}") from e


def loads_lazily(content: bytes) -> Any:  # noqa: ANN401 - JSON's own types
    """Return what `loads` returns; the items of a large text are decoded when read.

    Decoding a large text at once would hold the interpreter for tens of milliseconds,
    and create so many objects that the garbage collector would hold it for longer. So
    the arrays and objects that are members of a large object are returned as a sequence
    and a mapping that decode their items, each time that they are read.

    Raises
    ------
    json.JSONDecodeError
        The text is not JSON. Items that are not JSON may only be noticed, with another
        ValueError, when they are read.
    """
    if len(content) <= _MAX_AT_ONCE:
        return loads(content)
    try:
        members = _decode_members(content)
        return {name: _lazily(value) for name, value in members.items()}
    except (msgspec.MsgspecError, UnicodeError):
        return loads(content)


def _lazily(value: msgspec.Raw) -> Any:  # noqa: ANN401 - JSON's own types
    match bytes(memoryview(value)[:1]):
        case b"[":
            return _LazyItems(_decode_items(value))
        case b"{":
            return _LazyMembers(_decode_members(value))
        case _:
            return loads(bytes(value))


class _LazyItems(Sequence[Any]):
    """The items of an array, which are decoded when they are read."""

    def __init__(self, items: list[msgspec.Raw]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...  # noqa: ANN401 - JSON's own types

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [loads(bytes(item)) for item in self._items[index]]
        return loads(bytes(self._items[index]))

    def __iter__(self) -> Iterator[Any]:
        return (loads(bytes(item)) for item in self._items)


class _LazyMembers(Mapping[str, Any]):
    """The members of an object, whose values are decoded when they are read."""

    def __init__(self, members: dict[str, msgspec.Raw]) -> None:
        self._members = members

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - JSON's own types
        return loads(bytes(self._members[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members
