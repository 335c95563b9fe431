# SPDX-License-Identifier: Apache-2.0
"""A failure shrinks to what it needs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from ..fixtures.faulty_placement import FaultKind
from ..fixtures.placement_model import PlacementModel
from .events import Kind
from .shrinking import shrink
from .simulation import simulate


@pytest.mark.parametrize("needed", [set(), {0}, {3, 4}, {0, 50, 99}, {*range(100)}])
def test_all_that_a_failure_does_not_need_is_left_out(needed: set[int]) -> None:
    def fails(skipped: Collection[int]) -> bool:
        return needed.isdisjoint(skipped)

    assert shrink(range(100), fails) == {*range(100)} - needed


@pytest.mark.deep
def test_nothing_happens_that_is_left_out(tmp_path: Path) -> None:
    whole = simulate(3, PlacementModel(), tmp_path / "whole")
    assert whole.n_parts > 30
    parts = [*range(whole.n_parts), *FaultKind]
    outcome = simulate(3, PlacementModel(), tmp_path / "none", skipped=parts)
    assert not outcome.violations
    # What remains is the last request of each scheduler.
    assert (+outcome.log.n_of).keys() <= {
        Kind.ANNOUNCEMENT_LOST,
        Kind.ANNOUNCEMENT_TWICE,
        Kind.ALTERNATE,
        Kind.ONE_SCHEDULER,
        Kind.MANY_SCHEDULERS,
    }
