# SPDX-License-Identifier: Apache-2.0
"""Hosts are chosen more widely while Placement refuses often, and only then."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.drivers.claims.contention import (
    LOW_SHARE,
    MAX_CHOICES,
    N_REMEMBERED,
    Contention,
)


def _after(*answers: bool) -> Contention:
    contention = Contention()
    for is_refused in answers:
        contention.note(is_refused=is_refused)
    return contention


def test_best_host_is_claimed_at_first() -> None:
    assert Contention().n_choices == 1


def test_single_refusal_widens_nothing() -> None:
    assert _after(True).n_choices == 1


def test_frequent_refusals_widen_the_choice() -> None:
    assert _after(*[True, False] * N_REMEMBERED).n_choices > MAX_CHOICES // 4
    assert _after(*[True] * 10 * N_REMEMBERED).n_choices == MAX_CHOICES


def test_claims_that_are_granted_end_it() -> None:
    contention = _after(*[True] * 10 * N_REMEMBERED)
    widths = []
    for _ in range(3 * N_REMEMBERED):
        contention.note(is_refused=False)
        widths.append(contention.n_choices)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == 1


@given(st.lists(st.booleans(), max_size=300))
def test_share_and_width_stay_within_their_limits(answers: list[bool]) -> None:
    contention = _after(*answers)
    assert 0 <= contention.share <= 1
    assert 1 <= contention.n_choices <= MAX_CHOICES
    assert (contention.n_choices == 1) == (contention.share <= LOW_SHARE)


def test_no_claim_of_many_threads_is_lost() -> None:
    contention = Contention()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: contention.note(is_refused=True), range(400)))
    assert contention.share == pytest.approx(1 - (1 - 1 / N_REMEMBERED) ** 400)
