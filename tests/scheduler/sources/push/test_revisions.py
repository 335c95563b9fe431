# SPDX-License-Identifier: Apache-2.0
"""What each kind of message is to what is held, at revision 5 of the incarnation a."""

from __future__ import annotations

import pytest

from moorage.scheduler.sources.push.revisions import (
    Held,
    Verdict,
    judge_delta,
    judge_report,
)

HELD = Held("a", 5, {}, set(), 0.0)


@pytest.mark.parametrize(
    ("incarnation", "revision", "verdict"),
    [
        ("a", 4, Verdict.OLD),
        ("a", 5, Verdict.ALIVE),
        ("a", 6, Verdict.NEWS),
        ("a", 9, Verdict.NEWS),
        ("b", 1, Verdict.NEWS),
        ("b", 9, Verdict.NEWS),
    ],
)
def test_whole_report(incarnation: str, revision: int, verdict: Verdict) -> None:
    assert judge_report(HELD, incarnation, revision) is verdict


@pytest.mark.parametrize(
    ("incarnation", "since", "revision", "verdict"),
    [
        ("a", 5, 6, Verdict.NEWS),
        ("a", 5, 9, Verdict.NEWS),
        ("a", 5, 5, Verdict.ALIVE),
        ("a", 4, 5, Verdict.ALIVE),
        ("a", 3, 4, Verdict.OLD),
        ("a", 4, 4, Verdict.OLD),
        # A column may have changed and changed back between 4 and 6.
        ("a", 4, 6, Verdict.GAP),
        ("a", 6, 7, Verdict.GAP),
        ("a", 6, 6, Verdict.GAP),
        ("b", 5, 6, Verdict.GAP),
        ("b", 5, 5, Verdict.GAP),
    ],
)
def test_delta(incarnation: str, since: int, revision: int, verdict: Verdict) -> None:
    assert judge_delta(HELD, incarnation, since, revision) is verdict


def test_host_that_is_not_known() -> None:
    assert judge_report(None, "a", 5) is Verdict.NEWS
    assert judge_delta(None, "a", 5, 5) is Verdict.GAP
