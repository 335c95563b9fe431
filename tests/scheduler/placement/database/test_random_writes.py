# SPDX-License-Identifier: Apache-2.0
"""After random writes to Placement, the followed table equals one that is loaded."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from moorage.scheduler.placement.database import ProviderFollower
from moorage.scheduler.placement.providers import ProviderRecord

from ....fixtures.database_servers import Database
from .followed import ROUND_S, FollowedPlacement, records
from .writer import RandomWriter


@pytest.mark.parametrize(
    ("seed", "n_polls"), [(0, 15), pytest.param(1, 80, marks=pytest.mark.deep)]
)
def test_followed_table_equals_a_loaded_one(seed: int, n_polls: int) -> None:
    with FollowedPlacement() as placement:
        _follow(placement, Random(seed), n_polls)


@pytest.mark.database
@pytest.mark.deep
@pytest.mark.parametrize("kind", Database)
def test_followed_table_equals_a_loaded_one_on_a_server(kind: Database) -> None:
    with FollowedPlacement(kind) as placement:
        _follow(placement, Random(kind.name), n_polls=20)


def _follow(placement: FollowedPlacement, rng: Random, n_polls: int) -> None:
    writer, follower = RandomWriter(placement, rng), placement.follower()
    n_compared = 0
    for _ in range(n_polls):
        for _ in range(rng.randint(1, 16)):
            writer.write()
        assert follower.poll()
        assert _seen_by_generation(follower) == _seen_by_generation(
            placement.follower()
        )
        if rng.random() < 0.3:
            placement.time.pass_by(ROUND_S)
            assert follower.poll()
            loaded = placement.follower()
            assert records(follower) == records(loaded)
            ours, theirs = follower.table.view(), loaded.table.view()
            assert ours.known_traits == theirs.known_traits
            assert ours.known_classes == theirs.known_classes
            n_compared += 1
    assert n_compared
    kinds = "claim", "free", "replace", "create", "delete"
    assert all(writer.done[kind] for kind in kinds), str(writer.done)


def _seen_by_generation(follower: ProviderFollower) -> dict[str, ProviderRecord]:
    """What every poll sees: all but usage and aggregates."""
    return {
        uuid: replace(record, used={}, aggregates=frozenset())
        for uuid, record in records(follower).items()
    }
