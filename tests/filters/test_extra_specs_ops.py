# SPDX-License-Identifier: Apache-2.0
"""The operators of extra specs mean what they mean to nova."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from moorage.filters.extra_specs_ops import match, match_numbers

OPERATORS = (
    "=", "==", "!=", ">=", "<=",
    "s==", "s!=", "s<", "s<=", "s>", "s>=", "<in>", "<all-in>", "<or>",
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "required", "matches"),
    [
        ("1", "1", True),
        ("", "1", False),
        ("3", "1", False),
        ("222", "2", False),
        ("4", "> 2", False),
        ("a b", "a b", True),
        ("", "", True),
        (" ", " ", True),
        ("x", "", False),
        # = is at least
        ("123", "= 123", True),
        ("124", "= 123", True),
        ("34", "= 234", False),
        ("34", "=", False),
        # numbers
        ("123", "== 123", True),
        ("123.0", "== 123", True),
        ("1e2", "== 100", True),
        ("34", "== 234", False),
        ("123", "!= 123", False),
        ("34", "!= 234", True),
        ("123", "<= 200", True),
        ("1000", "<= 200", False),
        ("20", "<= 20", True),
        ("2", ">= 2", True),
        ("11", ">= 2", True),
        ("1.1", ">= 2", False),
        (" 2 ", "== 2", True),
        ("-1", "<= -1", True),
        ("inf", ">= 1", True),
        ("nan", "!= nan", True),
        ("2", "== 2 3", True),
        # text
        ("1.2.3", "s== 1.2.3", True),
        ("1.2.4", "s== 1.2.3", False),
        ("1.2.3", "s!= 1.2.3", False),
        ("12", "s< 2", True),
        ("2", "s< 12", False),
        ("2", "s<= 2", True),
        ("3", "s> 12", True),
        ("1", "s>= 12", False),
        ("12", "s==12", False),
        # part of it
        ("12311321", "<in> 11", True),
        ("12310321", "<in> 11", False),
        ("12310321", "<in> 11 <in>", False),
        ("x", "<in>", False),
        ("aes mmx aux", "<all-in> aes mmx", True),
        ("aes mmx aux", "<all-in> aes txt", False),
        ("x", "<all-in>", False),
        # one of them
        ("12", "<or> 11 <or> 12", True),
        ("13", "<or> 11 <or> 12", False),
        ("13", "<or> 11 <or> 12 <or>", False),
        ("<or>", "<or> 11 <or> 12", False),
        ("12", "<or> 11 x 12", True),
    ],
)
def test_match(value: str, required: str, matches: bool) -> None:
    assert match(value, required) is matches


@pytest.mark.parametrize("required", ["1", "", "== 1", "s!= 1", "<in> 1", "<or> None"])
def test_nothing_matches_no_value(required: str) -> None:
    assert match(None, required) is False


@pytest.mark.parametrize(
    ("value", "required"),
    [
        pytest.param("x", ">= 1", id="text against a number"),
        pytest.param("1", ">= x", id="number against text"),
        pytest.param("1", "!= x", id="not equal to text"),
        pytest.param("1", "<or>", id="one of nothing"),
    ],
)
def test_what_fails_novas_request_is_a_no(value: str, required: str) -> None:
    assert match(value, required) is False


NUMBERS = st.one_of(
    st.lists(st.integers(-(2**53), 2**53), min_size=1).map(
        lambda v: np.array(v, np.int64)
    ),
    st.lists(st.floats(width=64), min_size=1).map(lambda v: np.array(v, np.float64)),
    st.lists(st.booleans(), min_size=1).map(np.array),
)
OPERANDS = st.one_of(
    st.integers(-5, 5).map(str),
    st.floats().map(str),
    st.sampled_from(["", "x", "True", "1 <or> 2", "nan"]),
)
REQUIRED = st.tuples(st.sampled_from(["", *OPERATORS]), OPERANDS).map(" ".join)


@given(values=NUMBERS, required=REQUIRED)
@example(values=np.array([2**53 + 1, 7]), required=f"== {2**53 + 1}")
@example(values=np.array([True, False]), required=">= 1")
def test_numbers_match_as_their_text_does(
    values: np.ndarray[Any, Any], required: str
) -> None:
    expected = [match(str(value), required) for value in values.tolist()]
    assert match_numbers(values, required).tolist() == expected


@pytest.mark.parametrize("required", ["", "1", ">= 1", "<in> 1"])
def test_no_numbers_have_no_answers(required: str) -> None:
    answers = match_numbers(np.array([], np.int64), required)
    assert (answers.dtype, answers.shape) == (bool, (0,))
