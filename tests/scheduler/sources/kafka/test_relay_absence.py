# SPDX-License-Identifier: Apache-2.0
"""Hosts are not silent because no relay writes, for a bounded time."""

from __future__ import annotations

import pytest

from moorage.scheduler.sources.kafka.relay_absence import RelayAbsence
from moorage.testing.builders import NOW

LATE_S, GRACE_S = 30.0, 100.0


def silence(*, away_s: int, step_s: int = 1) -> float:
    """For how long hosts count as silent after so long without a relay."""
    absence = RelayAbsence(LATE_S, GRACE_S)
    excused = sum(
        absence.excuse(NOW, NOW + passed) for passed in range(0, away_s + 1, step_s)
    )
    return away_s - excused


@pytest.mark.parametrize(
    ("away_s", "at_most"),
    [(20, 20), (30, 30), (36, 5), (95, 5), (100, 5), (120, 20), (1000, 900)],
)
@pytest.mark.parametrize("step_s", [1, 4])
def test_only_time_after_the_grace_is_silence(
    away_s: int, at_most: float, step_s: int
) -> None:
    silent_s = silence(away_s=away_s, step_s=step_s)
    assert max(0, away_s - GRACE_S) <= silent_s <= at_most + step_s


def test_absence_ends_with_a_message_and_the_next_one_has_its_own_grace() -> None:
    absence = RelayAbsence(LATE_S, GRACE_S)
    assert absence.excuse(NOW, NOW + 500) == GRACE_S
    assert (absence.since, absence.ends_at) == (NOW, NOW + GRACE_S)
    back = NOW + 501
    assert absence.excuse(back, back + 1) == 0
    assert absence.since is None
    assert absence.excuse(back, back + 40) == 40
    assert absence.since == back


def test_without_a_grace_all_is_silence() -> None:
    absence = RelayAbsence(LATE_S, 0.0)
    assert absence.excuse(NOW, NOW + 500) == 0
    assert absence.since == NOW, "it is reported nevertheless"
