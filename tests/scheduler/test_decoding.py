# SPDX-License-Identifier: Apache-2.0
"""JSON is read as Python's own decoder reads it."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moorage.scheduler.decoding import loads, loads_lazily

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


#: So many bytes are decoded at once.
LARGE = 1_000_001


@given(st.lists(VALUES), st.dictionaries(st.text("ab"), VALUES), VALUES)
def test_items_of_a_large_text_are_read_as_python_reads_them(
    items: list[object], members: dict[str, object], value: object
) -> None:
    text = json.dumps({"items": items, "members": members, "value": value})
    expected = json.loads(text)

    read = loads_lazily(text.ljust(LARGE).encode())

    assert [*read] == ["items", "members", "value"]
    # As text, since NaN does not equal itself.
    assert repr(list(read["items"])) == repr(expected["items"])
    assert repr(read["items"][1:]) == repr(expected["items"][1:])
    assert repr([read["items"][i] for i in range(len(items))]) == repr(items)
    assert repr(dict(read["members"])) == repr(expected["members"])
    if not isinstance(value, list | dict):
        assert repr(read["value"]) == repr(expected["value"])


@pytest.mark.parametrize("text", ["", "{", "[1,]", "<html>", '{"a": [1, }'])
def test_no_large_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads_lazily(text.ljust(LARGE).encode())


def test_items_that_are_no_utf_8_are_refused_when_they_are_read() -> None:
    read = loads_lazily(b'{"items": [1, "\xff"]}'.ljust(LARGE))

    assert read["items"][0] == 1
    with pytest.raises(ValueError, match="utf-8"):
        list(read["items"])


@pytest.mark.parametrize("text", ['"\\ud800"', "[NaN, -Infinity]", "9" * 40, "1e999"])
def test_what_only_python_reads_is_read(text: str) -> None:
    assert repr(loads(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", "[1,]", "<html>", b'"\xff"'])
def test_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)
