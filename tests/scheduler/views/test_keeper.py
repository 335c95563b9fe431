# SPDX-License-Identifier: Apache-2.0
"""Views are kept of failures and of a share of decisions, and not too many."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler
from moorage.scheduler.views import ViewKeeper

from ...fixtures.clouds import CONTEXT, new_uuids, request
from ...fixtures.explained_clouds import explained_cloud


class Kept:
    """A scheduler that keeps views, on a clock that stands still."""

    def __init__(self, scheduler: Scheduler, share: float = 0.0) -> None:
        self.now = self.ticks = 0.0
        self.encoders: list[Callable[[], bytes]] = []
        self.scheduler = scheduler
        keeper = ViewKeeper(self._add, clock=self._clock, share=share)
        scheduler.parts = dataclasses.replace(scheduler.parts, views=keeper)

    def _clock(self) -> float:
        self.now += self.ticks
        return self.now

    def _add(self, encode: Callable[[], bytes]) -> str:
        self.encoders.append(encode)
        return str(len(self.encoders))

    def view_of(self, **flavor: int) -> str | None:
        """Decide a request; return the id of the view that is kept of it."""
        with contextlib.suppress(NoValidHost):
            self.scheduler.select_destinations(
                CONTEXT, request(root_gb=0, **flavor), new_uuids()
            )
        record: DecisionRecord = self.scheduler.decisions.newest(1)[0]
        return None if record.replay is None else record.replay.view


@pytest.fixture
def kept() -> Iterator[Kept]:
    with explained_cloud(9, filter_scheduler__enabled_filters=[]) as (scheduler, _):
        yield Kept(scheduler)


def test_one_decision_in_a_minute_is_kept(kept: Kept) -> None:
    assert kept.view_of(memory_mb=64) == "1"
    kept.now = 59.0
    assert kept.view_of(memory_mb=64) is None
    kept.now = 60.0
    assert kept.view_of(memory_mb=64) == "2"


def _change(kept: Kept) -> None:
    kept.scheduler.table.claims.release("h0", "no such instance")


def test_failures_share_a_view_until_a_host_changes(kept: Kept) -> None:
    assert [kept.view_of(vcpus=500) for _ in range(3)] == ["1"] * 3
    _change(kept)
    assert kept.view_of(vcpus=500) is None
    assert len(kept.encoders) == 1


def test_failures_that_go_on_are_kept_less_often(kept: Kept) -> None:
    found = []
    for kept.now in (0.0, 0.9, 1.0, 2.9, 3.0, 6.9, 7.0, 14.9, 15.0):
        _change(kept)
        if kept.view_of(vcpus=500) is not None:
            found.append(kept.now)
    assert found == [0.0, 1.0, 3.0, 7.0, 15.0]
    kept.now += 200
    for _ in range(2):  # after a pause, as at first
        _change(kept)
        assert kept.view_of(vcpus=500) is not None
        kept.now += 1


def test_encoding_takes_a_small_share_of_time(kept: Kept) -> None:
    assert kept.view_of(vcpus=500) == "1"
    kept.ticks = 0.5  # each look at the clock from now on
    kept.encoders[0]()
    kept.ticks = 0.0
    _change(kept)
    kept.now = 10.9
    assert kept.view_of(vcpus=500) is None
    kept.now = 11.0
    assert kept.view_of(vcpus=500) == "2"


def test_a_view_is_not_named_for_ever(kept: Kept) -> None:
    assert kept.view_of(vcpus=500) == "1"
    kept.now = 61.0  # the store may have lost or removed it
    assert kept.view_of(vcpus=500) == "2"


def test_a_view_that_cannot_be_captured_fails_no_decision(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_encode: Callable[[], bytes]) -> str:
        raise OSError("no memory")

    monkeypatch.setattr(kept.scheduler.parts.views, "_add", broken)
    assert kept.view_of(memory_mb=64) is None
    assert kept.scheduler.decisions.newest(1)[0].instances
    assert "The view of a decision was not captured" in caplog.text


@pytest.mark.parametrize(("share", "n_views"), [(0.0, 1), (0.25, 3), (1.0, 8)])
def test_share_of_decisions_is_kept(share: float, n_views: int) -> None:
    with explained_cloud(9, filter_scheduler__enabled_filters=[]) as (scheduler, _):
        kept = Kept(scheduler, share=share)
        found = []
        for _ in range(8):
            found.append(kept.view_of(memory_mb=64))
            for encode in kept.encoders:
                encode()
    # The first one is that of its minute.
    assert len({*found} - {None}) == n_views
    assert found[0] is not None


def test_decisions_on_the_same_state_share_a_view() -> None:
    with explained_cloud(9, filter_scheduler__enabled_filters=[]) as (scheduler, _):
        kept = Kept(scheduler, share=1.0)
        assert kept.view_of(memory_mb=64) == "1"
        kept.encoders[0]()
        assert [kept.view_of(vcpus=500) for _ in range(3)] == ["2"] * 3
        assert kept.view_of(memory_mb=64) == "2"  # what the failures have read


def test_share_is_not_kept_while_a_view_waits_for_the_store() -> None:
    with explained_cloud(9, filter_scheduler__enabled_filters=[]) as (scheduler, _):
        kept = Kept(scheduler, share=1.0)
        assert kept.view_of(memory_mb=64) == "1"
        assert kept.view_of(memory_mb=64) is None
        kept.ticks = 0.5  # each look at the clock from now on
        kept.encoders[0]()
        kept.ticks = 0.0
        kept.now = 10.4
        assert kept.view_of(memory_mb=64) is None
        kept.now = 11.0
        assert kept.view_of(memory_mb=64) == "2"
