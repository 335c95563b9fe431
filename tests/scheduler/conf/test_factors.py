# SPDX-License-Identifier: Apache-2.0
"""Options that are lists of name=factor are read as nova reads them."""

from __future__ import annotations

import logging

import pytest

from moorage.scheduler.conf.factors import factors


def test_pairs_keep_their_order_and_may_repeat() -> None:
    assert factors("o", ["b=1", "a = -0.5", "b=1"]) == (
        ("b", 1.0),
        ("a", -0.5),
        ("b", 1.0),
    )


def test_what_is_no_pair_is_warned_of_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert factors("o", ["a", "=1", "b=much", "d=nan", "c=1"]) == (("c", 1.0),)
    assert "o: ignoring what is not NAME=NUMBER" in caplog.text
    assert "a, =1, b=much, d=nan" in caplog.text
