# SPDX-License-Identifier: Apache-2.0
"""One query, answered by the real Placement and by a table with the same providers."""

from __future__ import annotations

import enum

from moorage.scheduler.placement.providers import (
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
    ProviderView,
    QueryNotCovered,
)

from .random_clouds import CUSTOM_CLASS, SHARES, TRAITS
from .real_placement import (
    Answer,
    Params,
    RealPlacement,
    comparable,
    depends_on_order,
)


class Outcome(enum.Enum):
    """The outcome of a comparison."""

    CANDIDATES = "the same candidates"
    NO_CANDIDATE = "no candidate"
    REFUSED = "refused by both"
    DEPENDS_ON_ORDER = "the same as of a corrected Placement"
    PLACEMENT_FAILED = "500"


def view_of(cloud: list[ProviderRecord], *, is_mysql: bool = False) -> ProviderView:
    table = ProviderTable(ProviderColumns.of(cloud), is_mysql=is_mysql)
    table.add_names(traits=TRAITS, resource_classes=[CUSTOM_CLASS])
    return table.view()


def compare(
    placement: RealPlacement,
    view: ProviderView,
    cloud: list[ProviderRecord],
    params: Params,
) -> Outcome:
    """Compare the answers to one query."""
    response = placement.get(params)
    if response.status_code == 500 and not placement.fails_for(params):
        assert _has_nested_pool(cloud)
        return Outcome.PLACEMENT_FAILED
    try:
        ours = answer(view, params)
    except QueryNotCovered:
        assert response.status_code == 400
        return Outcome.REFUSED
    if response.status_code == 200:
        if ours == comparable(response.json()):
            return Outcome.CANDIDATES if ours[0] else Outcome.NO_CANDIDATE
        assert depends_on_order(params, cloud), params
    response = placement.get(params, is_corrected=True)
    assert ours == comparable(response.json()), params
    return Outcome.DEPENDS_ON_ORDER


def answer(view: ProviderView, params: Params) -> Answer:
    """Return the table's answer; check that its parts agree."""
    matches = view.match(ProviderQuery.parse(params))
    by_tree = [matches.expand(uuid) for uuid in matches.uuids]
    assert all(map(len, by_tree)), "a tree that matches has no candidate"
    assert all([len(each) for each in by_tree] <= matches.n_products)
    expected = [
        root in candidates.allocating_roots()
        for root, candidates in zip(matches.roots, by_tree, strict=True)
    ]
    assert matches.is_allocating().tolist() == expected
    body = matches.answer()
    found = comparable(body)
    assert len(found[0]) == len(body["allocation_requests"])
    return found


def _has_nested_pool(cloud: list[ProviderRecord]) -> bool:
    return any(record.parent_uuid and SHARES in record.traits for record in cloud)
