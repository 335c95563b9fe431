# SPDX-License-Identifier: Apache-2.0
"""The table gives exactly the candidates that the real Placement gives."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from random import Random

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.placement.providers import (
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
    ProviderView,
    QueryNotCovered,
)

from ....fixtures.property_tests import examples
from .random_clouds import (
    CUSTOM_CLASS,
    SHARES,
    TRAITS,
    random_cloud,
    random_params,
)
from .real_placement import (
    Answer,
    RealPlacement,
    comparable,
    corrected,
    depends_on_order,
)

#: Queries of each random cloud.
_N_QUERIES = 8

_SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def placement() -> Iterator[RealPlacement]:
    with RealPlacement() as placement:
        yield placement


class Outcome(enum.Enum):
    """How a comparison ended."""

    CANDIDATES = "the same candidates"
    NO_CANDIDATE = "no candidate"
    REFUSED = "refused by both"
    DEPENDS_ON_ORDER = "the same as of a corrected Placement"
    PLACEMENT_FAILED = "500"


def _view(cloud: list[ProviderRecord]) -> ProviderView:
    table = ProviderTable(ProviderColumns.of(cloud))
    table.add_names(traits=TRAITS, resource_classes=[CUSTOM_CLASS])
    return table.view()


def _filled(placement: RealPlacement, rng: Random) -> list[ProviderRecord]:
    cloud = random_cloud(rng)
    placement.fill(cloud)
    return cloud


def _compare(
    placement: RealPlacement,
    view: ProviderView,
    cloud: list[ProviderRecord],
    params: list[tuple[str, str]],
) -> Outcome:
    """Compare the answers to one query."""
    response = placement.get(params)
    if response.status_code == 500:
        assert _has_nested_pool(cloud)
        return Outcome.PLACEMENT_FAILED
    try:
        ours = _answer(view, params)
    except QueryNotCovered:
        assert response.status_code == 400
        return Outcome.REFUSED
    if ours == comparable(response.json()):
        return Outcome.CANDIDATES if ours[0] else Outcome.NO_CANDIDATE
    assert depends_on_order(params, cloud), params
    with corrected():
        response = placement.get(params)
    assert ours == comparable(response.json()), params
    return Outcome.DEPENDS_ON_ORDER


def _has_nested_pool(cloud: list[ProviderRecord]) -> bool:
    return any(record.parent_uuid and SHARES in record.traits for record in cloud)


def _answer(view: ProviderView, params: list[tuple[str, str]]) -> Answer:
    matches = view.match(ProviderQuery.parse(params))
    counts = [len(matches.expand(uuid)) for uuid in matches.uuids]
    assert all(counts), "a tree that matches has no candidate"
    assert all(counts <= matches.n_products)
    body = matches.answer()
    answer = comparable(body)
    assert len(answer[0]) == len(body["allocation_requests"])
    return answer


@examples(1)
@given(seed=_SEEDS)
def test_candidates_are_placements(placement: RealPlacement, seed: int) -> None:
    rng = Random(seed)
    cloud = _filled(placement, rng)
    for _ in range(_N_QUERIES):
        params = random_params(rng, cloud)
        hypothesis.event(_compare(placement, _view(cloud), cloud, params).value)
