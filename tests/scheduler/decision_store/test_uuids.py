# SPDX-License-Identifier: Apache-2.0
"""Bytes come back as they were, and each UUID among them needs 16 bytes once."""

from __future__ import annotations

import uuid

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.decision_store.uuids import extract_uuids, restore_uuids

MARK = b"\xc1\xd9\x24"
SOME = [str(uuid.UUID(int=n << 100 | n)) for n in range(1, 100)]
_packed = msgspec.msgpack.encode

#: Parts of marks, and what resembles UUIDs.
_parts = st.one_of(
    st.sampled_from([MARK[:1], MARK[:2], MARK[1:], MARK, bytes(3), b"\xc1" * 7]),
    st.sampled_from([_packed(each) for each in SOME[:3]]),
    st.sampled_from([_packed(SOME[0])[:-1], _packed(SOME[0].upper()), b"\xd9\x24"]),
    st.binary(max_size=5),
)


@given(st.lists(_parts, max_size=12).map(b"".join))
def test_any_bytes_come_back(packed: bytes) -> None:
    assert restore_uuids(*extract_uuids(packed)) == packed


def test_each_uuid_is_stored_once() -> None:
    marked, uuids = extract_uuids(_packed([SOME, SOME[::2], {"again": SOME[5]}]))
    assert uuids == b"".join(uuid.UUID(each).bytes for each in SOME)
    assert SOME[5].encode() not in marked


def test_a_number_with_the_bytes_of_a_mark_changes_nothing() -> None:
    packed = _packed([int.from_bytes(bytes(5) + MARK), SOME[0]])
    assert extract_uuids(packed) == (packed, b"")


@pytest.mark.parametrize("place", [2, 255, (1 << 32) - 1])
def test_a_uuid_that_is_missing_is_an_error(place: int) -> None:
    with pytest.raises(ValueError, match="there is no UUID"):
        restore_uuids(MARK + place.to_bytes(4), bytes(16))
