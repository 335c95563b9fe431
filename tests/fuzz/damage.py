# SPDX-License-Identifier: Apache-2.0
"""Damage inputs at random: values of a document, and bytes of a file."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any, Final

#: A text that is no part of a page unless it was not escaped.
MARKER: Final = "'\"><x-fuzz a=b>"
_TEXTS: Final = (
    "", " ", "0", "-1", "1.5", "1e999", "nan", "true", "null", "=1+1", "..", "../../x",
    "/", "{{7*7}}", "%s%n", "[", "{", "(" * 300, "x" * 70_000, "\0", "\n\r\t",
    "\x1b[31m\x1b]0;t\x07", "\u202e\u2066", "\ud800", "\uffff", "\u0131", "ß" * 300,
    "9" * 5000, "<in> a <or> b", "s== 1", ">= x", "1:2:3:4:5:6:7:8", "0-9999999999",
    "2026-02-30T00:00:00", "9999-12-31T23:59:59-14:00", "00000000-0000-0000-0000-0",
    "resources:VCPU", "trait:HW_CPU_X86_AVX", "hw:numa_nodes", "hw:mem_page_size",
    '["and", ["=", "$x", 1]]', '["not", ["not", ["not", []]]]', MARKER,
)  # fmt: skip
_NUMBERS: Final = (
    0, 1, -1, 2, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63,
    -(2**63), 2**64, 10**20, 10**400, 0.0, -0.0, 0.1, 1.0, -1.5, 1e19, 1e300, 5e-324,
    float("nan"), float("inf"), -float("inf"),
)  # fmt: skip
_BYTES: Final = (
    b"\0", b"\xff", b"\xff\xfe", b"\n", b",", b'"', b"'", b"{", b"}", b"[", b"]", b":",
    b"- ", b"&a ", b"*a", b"<<: ", b"!!python/object:x ", b"!!binary x", b".nan", b"~",
    b"0" * 5000, b"9" * 5000, b"[" * 3000, b"\xed\xa0\x80", b"\x1b[0m", b"1e999",
    b"2026-99-99", b"0x", b"? ", b"|\n", b"\t", b"\r", b"\xef\xbb\xbf",
)  # fmt: skip


def damaged(rng: Random, document: Any) -> Any:
    """Return a copy of a document of JSON or msgpack with one to four damages."""
    holder = [copy.deepcopy(document)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        slots = list(_slots(holder))
        # The outermost value is one of very many, but damaged in one of 40 inputs.
        container, key = slots[0 if rng.random() < 0.025 else rng.randrange(len(slots))]
        _damage(rng, container, key, slots)
    return holder[0]


def _slots(container: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys or indices, the outer ones first."""
    containers = [container]
    for current in containers:
        keys = current.keys() if isinstance(current, dict) else range(len(current))
        for key in keys:
            yield current, key
            if isinstance(current[key], dict | list):
                containers.append(current[key])


def _damage(rng: Random, container: Any, key: Any, slots: list[Any]) -> None:
    kind = rng.randrange(10)
    value = container[key]
    if kind == 0 and container is not slots[0][0]:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[rng.choice([*map(str, container), *_TEXTS])] = container.pop(key)
    elif kind == 2 and isinstance(container, list):
        container.insert(key, copy.deepcopy(value))
    elif kind == 3:
        other, other_key = rng.choice(slots)
        # A copy: a document has no circles.
        container[key] = copy.deepcopy(other[other_key])
    elif kind == 4:
        for _ in range(rng.choice((1, 1, 2, 30, 150))):
            value = [value] if rng.random() < 0.5 else {rng.choice(_TEXTS): value}
        container[key] = value
    elif kind in (5, 6):
        container[key] = _like(rng, value)
    else:
        container[key] = _any(rng)


def _like(rng: Random, value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        text = rng.choice(_TEXTS)
        return value[:at] + text + value[at + rng.choice((0, 0, 1, 5)) :]
    if isinstance(value, bytes):
        return damaged_bytes(rng, value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice([-value, value + 1, value - 1, str(value), *_NUMBERS])
    return type(value)() if isinstance(value, dict | list) else _any(rng)


def _any(rng: Random) -> Any:
    values: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": {}}, [None])
    return copy.deepcopy(rng.choice(rng.choice((values, _TEXTS, _NUMBERS))))


def damaged_bytes(rng: Random, data: bytes) -> bytes:
    """Return bytes with one to four damages: changed, inserted, removed or repeated."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        begin = rng.randrange(len(changed) + 1)
        end = begin + rng.choice((0, 1, 2, 8, 100, len(changed)))
        kind = rng.randrange(5)
        if kind == 0:
            changed[begin:end] = b""
        elif kind == 1:
            changed[begin:begin] = changed[begin:end][:2000]
        elif kind == 2 and begin < len(changed):
            changed[begin] ^= 1 << rng.randrange(8)
        else:
            replaced = begin + rng.choice((0, 0, 1, 4))
            changed[begin:replaced] = rng.choice(_BYTES)
    return bytes(changed)
