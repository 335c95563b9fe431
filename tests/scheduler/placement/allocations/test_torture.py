# SPDX-License-Identifier: Apache-2.0
"""Schedulers on bad connections, killed at any step, neither leak nor lose claims.

Each seed is a test; `MOORAGE_TORTURE_SEEDS=300` or `=17-17` runs others than the first
30. One that fails prints everything that happened, and happens the same way again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ....fixtures.placement_servers import EmbeddedPlacementFixture
from ....fixtures.torture.simulation import simulate


def _seeds(given: str) -> range:
    """Return the first so many seeds, or those from FIRST to LAST."""
    first, dash, last = given.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(given))


SEEDS = _seeds(os.environ.get("MOORAGE_TORTURE_SEEDS", "30"))

pytestmark = pytest.mark.deep


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacementFixture]:
    with EmbeddedPlacementFixture() as placement:
        yield placement


@pytest.mark.parametrize("seed", SEEDS, ids="seed{}".format)
def test_answered_instances_hold_their_answers_and_nothing_else_is_held(
    seed: int, placement: EmbeddedPlacementFixture, tmp_path: Path
) -> None:
    outcome = simulate(seed, placement.placement, tmp_path)
    if outcome.violations:
        print(outcome)  # pytest shows it for a test that fails
    assert outcome.counts.accepted
    assert not outcome.violations, f"seed {seed}: {'; '.join(outcome.violations)}"


def test_same_seed_gives_the_same_events(tmp_path: Path) -> None:
    events = []
    for name in ("first", "again"):
        with EmbeddedPlacementFixture() as placement:
            outcome = simulate(SEEDS[0], placement.placement, tmp_path / name)
        events.append(outcome.events)
    assert events[0] == events[1]
