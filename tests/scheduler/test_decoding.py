# SPDX-License-Identifier: Apache-2.0
"""JSON is read as Python's own decoder reads it."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moorage.scheduler.decoding import loads

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec="utf-8")),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text("ab"), children)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_what_python_wrote_is_read_as_python_reads_it(value: object) -> None:
    text = json.dumps(value)
    assert repr(loads(text)) == repr(loads(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("text", ['"\\ud800"', "[NaN, -Infinity]", "9" * 40, "1e999"])
def test_what_only_python_reads_is_read(text: str) -> None:
    assert repr(loads(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", "[1,]", "<html>", b'"\xff"'])
def test_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)
