# SPDX-License-Identifier: Apache-2.0
"""The counts of claims are those of a loop that allocates from the providers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.explain.claim_counts import ClaimCounter
from moorage.scheduler.explain.query_checks import with_names_of
from moorage.scheduler.placement.providers import (
    InventoryRecord,
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
    QueryNotCovered,
)

from ...fixtures.property_tests import examples
from ..placement.providers.random_clouds import SHARES, random_cloud, random_params

_MOST = 25

Params = list[tuple[str, str]]


def _claim(table: ProviderTable, query: ProviderQuery, root: str) -> bool:
    """Allocate the first candidate of a tree; return whether there was one."""
    view = table.view()
    found = with_names_of(view, query).match(query).expand(root, limit=1)
    for body in found:
        amounts: dict[str, dict[str, int]] = {}
        for provider, part in body["allocations"].items():
            for name, amount in part["resources"].items():
                amounts.setdefault(name, {})[provider] = amount
        table.add_used(amounts)
    return len(found) > 0


def _claimed(
    cloud: Sequence[ProviderRecord], queries: Sequence[ProviderQuery], root: str
) -> int:
    table = ProviderTable(ProviderColumns.of(cloud))
    n_claimed = 0
    while n_claimed < _MOST and any(_claim(table, each, root) for each in queries):
        n_claimed += 1
    return n_claimed


def _check(cloud: list[ProviderRecord], of_flavors: Sequence[Sequence[Params]]) -> None:
    """Count the queries of some flavors together, and claim those of each alone."""
    view = ProviderTable(ProviderColumns.of(cloud)).view()
    counter = ClaimCounter(view)
    for of_flavor in of_flavors:
        found = counter.count([CandidatesQuery(tuple(each)) for each in of_flavor])
        parsed = [ProviderQuery.parse(params) for params in of_flavor]
        for record in cloud:
            row = view.state.trees.find(record.uuid)
            if record.parent_uuid is None and found.is_exact[row]:
                n_claims = min(int(found.n_claims[row]), _MOST)
                assert n_claims == _claimed(cloud, parsed, record.uuid)


def _without_pools(rng: Random) -> list[ProviderRecord]:
    cloud: list[ProviderRecord] = []
    while not cloud:
        cloud = random_cloud(rng)
        if any(SHARES in each.traits for each in cloud):
            cloud = []
    return cloud


def _valid_params(rng: Random, cloud: list[ProviderRecord]) -> Params:
    """Return a query for any tree, which Placement accepts."""
    while True:
        params = random_params(rng, cloud)
        with contextlib.suppress(QueryNotCovered):
            params = [each for each in params if not each[0].startswith("in_tree")]
            ProviderQuery.parse(params)
            return params


@examples(2)
@given(st.integers(0, 1 << 32))
def test_any_query_of_trees_that_share_nothing(seed: int) -> None:
    rng = Random(seed)
    cloud = _without_pools(rng)
    drawn = [_valid_params(rng, cloud) for _ in range(3)]
    _check(cloud, [[each] for each in drawn])


def _host(rng: Random, number: int) -> list[ProviderRecord]:
    """Return a tree with memory in one place or two, and CPUs of both kinds."""
    uuids = [f"{number:08x}-0000-4000-8000-{i:012x}" for i in range(3)]
    traits = frozenset(rng.choice([[], ["CUSTOM_A"]]))

    def provider(i: int, **totals: int) -> ProviderRecord:
        inventories = {name: InventoryRecord(total) for name, total in totals.items()}
        parent = uuids[0] if i else None
        return ProviderRecord(uuids[i], parent, 0, inventories, traits=traits)

    n_memories = rng.choice([1, 1, 2])
    cpus = {"PCPU": rng.randint(1, 6), "VCPU": rng.randint(1, 6)}
    memories = [
        provider(1 + i, MEMORY_MB=rng.randint(4, 16)) for i in range(n_memories)
    ]
    return [provider(0, **cpus), *memories]


_FORBIDDEN = [[], [("required", "!CUSTOM_A")], [("root_required", "!CUSTOM_A")]]


@examples(2)
@given(st.integers(0, 1 << 32))
def test_a_flavor_on_pinned_and_then_on_floating_cpus(seed: int) -> None:
    rng = Random(seed)
    cloud = [record for number in range(3) for record in _host(rng, number)]

    def flavor() -> list[Params]:
        forbidden, memory_mb = rng.choice(_FORBIDDEN), rng.choice([1, 2])
        later_mb = rng.choice([memory_mb, memory_mb, 3])
        return [
            [("resources", f"PCPU:1,MEMORY_MB:{memory_mb}"), *forbidden],
            [("resources", f"VCPU:1,MEMORY_MB:{later_mb}"), *forbidden],
        ]

    _check(cloud, [flavor() for _ in range(4)])
