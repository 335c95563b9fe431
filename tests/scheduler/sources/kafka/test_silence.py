# SPDX-License-Identifier: Apache-2.0
"""Hosts are not silent while messages are unread, nor, for a time, without a relay."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from moorage.scheduler.sources.kafka.silence import RelayAbsence, UncountedTime
from moorage.scheduler.sources.reported.revisions import Route
from moorage.testing.builders import NOW

LATE_S, GRACE_S = 30.0, 100.0
RELAYED = Route(frozenset({("hosts", 0)}), is_relayed=True)
OWN = Route(frozenset({("hosts", 0)}), is_relayed=False)
#: Seconds: how far a partition is read is known within some.
STEP_S = 5.0


def excused_s(
    away_s: int,
    *,
    step_s: int = 1,
    route: Route = RELAYED,
    grace_s: float = GRACE_S,
    written_at: Callable[[float], float] = lambda _now: NOW,
    read_until: Callable[[float], float] = lambda now: now,
) -> float:
    """The seconds after NOW that do not count as silence, away_s seconds later."""
    absence, excused, found = RelayAbsence(LATE_S, grace_s), UncountedTime(), 0.0
    for passed in range(0, away_s + 1, step_s):
        now = NOW + passed
        absence.check(written_at(now), now)
        found += excused.find({route: read_until(now)}, absence, now).get(route, 0.0)
    return found


@pytest.mark.parametrize(
    ("away_s", "at_most"),
    [(20, 20), (30, 30), (36, 5), (95, 5), (100, 5), (120, 20), (1000, 900)],
)
@pytest.mark.parametrize("step_s", [1, 4])
def test_only_time_after_the_grace_is_silence(
    away_s: int, at_most: float, step_s: int
) -> None:
    silent_s = away_s - excused_s(away_s, step_s=step_s)
    assert max(0, away_s - GRACE_S) <= silent_s <= at_most + step_s


def test_time_without_a_relay_is_silence_of_hosts_that_are_not_behind_it() -> None:
    assert excused_s(500, route=OWN) == 0


def test_absence_ends_with_a_message_and_the_next_one_has_its_own_grace() -> None:
    absence, excused = RelayAbsence(LATE_S, GRACE_S), UncountedTime()

    def found(written_at: float, now: float) -> float:
        absence.check(written_at, now)
        return excused.find({RELAYED: now}, absence, now).get(RELAYED, 0.0)

    assert found(NOW, NOW + 500) == GRACE_S
    assert (absence.since, absence.ends_at) == (NOW, NOW + GRACE_S)
    back = NOW + 501
    assert found(back, back + 1) == 0
    assert absence.since is None
    assert found(back, back + 40) == 40
    assert absence.since == back


def test_without_a_grace_all_is_silence() -> None:
    assert excused_s(500, grace_s=0.0) == 0


@pytest.mark.parametrize("route", [OWN, RELAYED], ids=["own", "relayed"])
@pytest.mark.parametrize("ends_s", [math.inf, 60], ids=["lasts", "ends"])
def test_time_of_unread_messages_is_no_silence_and_has_no_end(
    route: Route, ends_s: float
) -> None:
    found = excused_s(
        1000,
        route=route,
        grace_s=0.0,
        read_until=lambda now: now if now >= NOW + ends_s else NOW,
    )
    assert min(1000, ends_s) - STEP_S <= found <= min(1000, ends_s)


def test_messages_that_are_read_late_by_a_moment_excuse_nothing() -> None:
    assert excused_s(500, route=OWN, read_until=lambda now: now - 4) == 0


@pytest.mark.parametrize("began_s", [0, 10, 40, 90, 200])
@pytest.mark.parametrize("lasted_s", [10, 60, 500])
def test_each_second_is_excused_once_if_a_partition_and_the_relay_are_away(
    began_s: int, lasted_s: int
) -> None:
    def read_until(now: float) -> float:
        is_unread = began_s <= now - NOW < began_s + lasted_s
        return NOW + began_s if is_unread else now

    found = excused_s(1000, read_until=read_until)
    both = {*range(int(GRACE_S)), *range(began_s, min(1000, began_s + lasted_s))}
    # An absence that is noticed while a partition is away is excused only from then on.
    unnoticed_s = began_s if began_s < LATE_S else 0
    assert len(both) - unnoticed_s - 2 * STEP_S <= found <= len(both)


def test_clock_that_is_set_back_excuses_the_next_outage() -> None:
    absence, excused = RelayAbsence(LATE_S, GRACE_S), UncountedTime()
    assert excused.find({OWN: NOW}, absence, NOW + 60) == {OWN: 60}
    assert excused.find({OWN: NOW - 3600}, absence, NOW - 3590) == {OWN: 10}


def test_routes_that_no_host_has_any_more_are_forgotten() -> None:
    absence, excused = RelayAbsence(LATE_S, GRACE_S), UncountedTime()
    excused.find({OWN: NOW}, absence, NOW + 60)
    assert excused.unread == {OWN}
    assert excused.find({}, absence, NOW + 61) == {}
    assert excused.unread == set()
