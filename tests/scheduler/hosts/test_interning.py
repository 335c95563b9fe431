# SPDX-License-Identifier: Apache-2.0
"""A value has a stable code, and survives compaction."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from moorage.scheduler.hosts.interning import Interner, compacted

VALUES = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.tuples(st.text(max_size=2)),
    st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
)


@given(st.lists(VALUES))
def test_value_is_found_under_its_code(values: list[object]) -> None:
    interner = Interner()
    codes = [interner.code(value) for value in values]
    assert [interner.values[code] for code in codes] == values
    assert [interner.find(value) for value in values] == codes


@given(st.lists(VALUES), st.lists(VALUES))
def test_codes_of_many_are_those_of_each(
    before: list[object], values: list[object]
) -> None:
    one, many = Interner(), Interner()
    for interner in (one, many):
        interner.codes(before)
    assert many.codes(values) == [one.code(value) for value in values]


def test_mappings_are_known_by_content_not_order() -> None:
    interner = Interner()
    assert interner.code({"a": "1", "b": "2"}) == interner.code({"b": "2", "a": "1"})
    assert interner.find({"a": "1"}) is None


@given(st.lists(VALUES, min_size=1), st.data())
def test_compaction_keeps_what_the_rows_hold(
    values: list[object], data: st.DataObject
) -> None:
    interner = Interner()
    codes = [interner.code(value) for value in values]
    rows = data.draw(st.lists(st.sampled_from(codes), max_size=10))
    renamed, smaller = compacted(np.array(rows, np.int32), interner.values)
    assert [smaller.values[c] for c in renamed] == [interner.values[c] for c in rows]
    assert len(smaller.values) == len(set(rows))
