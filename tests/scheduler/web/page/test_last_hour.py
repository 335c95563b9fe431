# SPDX-License-Identifier: Apache-2.0
"""The last hour is read once for all browsers, also while that fails."""

from __future__ import annotations

import threading

import pytest

from moorage.scheduler.database import StoreUnavailable
from moorage.scheduler.decision_store import DecisionPage, DecisionQuery
from moorage.scheduler.web.page.last_hour import LastHour
from moorage.testing.builders import NOW

EMPTY = DecisionPage([], None)


def test_a_failure_is_kept_for_some_seconds() -> None:
    now, n_reads = [NOW], 0

    def find(_query: DecisionQuery) -> DecisionPage:
        nonlocal n_reads
        n_reads += 1
        now[0] += 10  # seconds until the store is given up
        if n_reads == 1:
            raise StoreUnavailable("It is away.")
        return EMPTY

    hour = LastHour(find, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="It is away"):
            hour.read()
    assert n_reads == 1
    now[0] += 5
    assert hour.read().n_decisions == hour.read().n_decisions == 0
    assert n_reads == 2


def test_a_reading_that_takes_long_does_not_block_others() -> None:
    is_reading, may_end = threading.Event(), threading.Event()

    def find(_query: DecisionQuery) -> DecisionPage:
        is_reading.set()
        may_end.wait(30)
        return EMPTY

    hour = LastHour(find, clock=lambda: NOW)
    reading = threading.Thread(target=hour.read)
    reading.start()
    is_reading.wait(30)
    with pytest.raises(StoreUnavailable, match="still read"):
        hour.read()
    may_end.set()
    reading.join(30)
    assert hour.read().is_whole
