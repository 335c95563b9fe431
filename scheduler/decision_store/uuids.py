# SPDX-License-Identifier: Apache-2.0
"""Write the UUIDs of msgpack as 16 bytes each, beside it.

Digits of a UUID cannot be compressed, and as text they need half as much again. A mark
replaces each, with its distance in the table of UUIDs from the one before it: 1 for
lists of new ones, and for lists in the same order, so that marks compress well.
"""

from __future__ import annotations

import re
from typing import Final

#: A string of 36 bytes that is a UUID.
_UUID: Final = re.compile(rb"\xd9\x24([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
#: Neither msgpack's types nor UTF-8 have its first byte; numbers may. No end of it is
#: also a beginning, so that what precedes a mark cannot be taken for one.
_MARK: Final = b"\xc1\xd9\x24"
_WIDTH: Final = 4
_MARKED: Final = re.compile(re.escape(_MARK) + rb"(.{%d})" % _WIDTH, re.DOTALL)
_BYTES: Final = 16
#: Of the digits.
_PARTS: Final = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))


def extract_uuids(packed: bytes) -> tuple[bytes, bytes]:
    """Return msgpack with marks, and the UUIDs that they replace.

    Bytes that contain a mark already are returned unchanged, with no UUIDs.
    """
    if _MARK in packed:
        return packed, b""
    places: dict[bytes, int] = {}
    last = -1

    def mark(found: re.Match[bytes]) -> bytes:
        nonlocal last
        before, last = last, places.setdefault(found[1], len(places))
        return _MARK + ((last - before) % (1 << 8 * _WIDTH)).to_bytes(_WIDTH)

    marked = _UUID.sub(mark, packed)
    return marked, bytes.fromhex(b"".join(places).replace(b"-", b"").decode())


def restore_uuids(marked: bytes, uuids: bytes) -> bytes:
    """Return the msgpack that `extract_uuids` was given.

    Raises
    ------
    ValueError
        It has not made these bytes.
    """
    if not uuids:
        return marked
    place = -1

    def text(found: re.Match[bytes]) -> bytes:
        nonlocal place
        place = (place + int.from_bytes(found[1])) % (1 << 8 * _WIDTH)
        digits = uuids[place * _BYTES : (place + 1) * _BYTES].hex()
        if len(digits) != 2 * _BYTES:
            raise ValueError(f"there is no UUID {place}")
        parts = (digits[a:b] for a, b in _PARTS)
        return b"\xd9\x24" + "-".join(parts).encode()

    return _MARKED.sub(text, marked)
