# SPDX-License-Identifier: Apache-2.0
"""The table gives the candidates of a Placement on MariaDB, and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.placement.providers import InventoryRecord, ProviderRecord

from ....fixtures.database_servers import Database
from ....fixtures.property_tests import examples
from .comparison import Outcome, compare, view_of
from .random_clouds import AGGREGATES, random_cloud, random_params
from .real_placement import Params, RealPlacement, served

pytestmark = [
    pytest.mark.database,
    pytest.mark.deep,
    pytest.mark.xdist_group("functional"),
]

#: Queries of each random cloud.
_N_QUERIES = 8


@pytest.fixture(scope="module", params=Database, ids=lambda kind: kind.name.lower())
def placement(request: pytest.FixtureRequest) -> Iterator[RealPlacement]:
    with served(request.param) as placement:
        yield placement


def random_case(
    rng: Random, n_queries: int
) -> tuple[list[ProviderRecord], list[Params]]:
    """Return a random cloud, with some aggregates in upper case, and queries."""
    cloud = random_cloud(rng)
    queries = [random_params(rng, cloud) for _ in range(n_queries)]
    upper = set(rng.sample(AGGREGATES, rng.choice((0, 0, 1, 2))))
    return [
        replace(
            record,
            aggregates=frozenset(
                each.upper() if each in upper else each for each in record.aggregates
            ),
        )
        for record in cloud
    ], queries


@examples(0.125)
@given(seed=st.integers(0, 2**32 - 1))
def test_candidates_are_placements(placement: RealPlacement, seed: int) -> None:
    cloud, queries = random_case(Random(seed), _N_QUERIES)
    placement.fill(cloud)
    view = view_of(cloud, is_mysql=placement.is_mysql)
    for params in queries:
        hypothesis.event(compare(placement, view, cloud, params).value)


@pytest.mark.parametrize("ratio", [0.7, 0.70000001])
@pytest.mark.parametrize(
    ("params", "needs_64_bits"),
    [
        pytest.param([("resources", "VCPU:6")], False, id="less than there is"),
        pytest.param([("resources", "VCPU:7")], True, id="all that there is"),
        pytest.param(
            [
                ("resources1", "VCPU:4"),
                ("resources2", "VCPU:3"),
                ("group_policy", "none"),
            ],
            False,
            id="all as a sum, which Placement itself calculates",
        ),
    ],
)
def test_mariadb_calculates_with_a_ratio_of_32_bits(
    placement: RealPlacement, ratio: float, params: Params, needs_64_bits: bool
) -> None:
    vcpus = {"VCPU": InventoryRecord(10, allocation_ratio=ratio)}
    cloud = [ProviderRecord(AGGREGATES[0], inventories=vcpus)]
    placement.fill(cloud)

    view = view_of(cloud, is_mysql=placement.is_mysql)
    outcome = compare(placement, view, cloud, params)

    has_room = not (needs_64_bits and placement.is_mysql)
    assert outcome is (Outcome.CANDIDATES if has_room else Outcome.NO_CANDIDATE)
