# SPDX-License-Identifier: Apache-2.0
"""Candidates of the table are computed for the hosts that are judged, and numbered."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from moorage.scheduler.candidates import (
    CandidatesQuery,
    DerivedData,
    HostLayout,
    Offer,
)
from moorage.scheduler.placement.memory import TableOffer
from moorage.scheduler.placement.memory.source import lacking_room
from moorage.scheduler.placement.providers import (
    InventoryRecord,
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
)
from moorage.testing.builders import node_uuid

N_DEVICES = 4


def _inventory(total: int) -> InventoryRecord:
    return InventoryRecord(total, 0, 1, total, 1, 1.0)


def _device(name: str, number: int) -> str:
    return node_uuid(f"{name} device {number}")


def _providers(name: str) -> list[ProviderRecord]:
    """A host of 8 vCPUs with some devices, each of which is free once."""
    root = node_uuid(name)
    records = [ProviderRecord(root, inventories={"VCPU": _inventory(8)})]
    records += [
        ProviderRecord(
            _device(name, i), root, inventories={"CUSTOM_DEVICE": _inventory(1)}
        )
        for i in range(N_DEVICES)
    ]
    return records


def _table(*names: str) -> ProviderTable:
    records = itertools.chain.from_iterable(map(_providers, names))
    return ProviderTable(ProviderColumns.of(records))


def _query(n_groups: int) -> CandidatesQuery:
    groups = tuple((f"resources_{i}", "CUSTOM_DEVICE:1") for i in range(n_groups))
    policy = (("group_policy", "none"),) if n_groups > 1 else ()
    return CandidatesQuery((("resources", "VCPU:2"), *groups, *policy))


def _offer(table: ProviderTable, n_groups: int = 0) -> TableOffer:
    query = _query(n_groups)
    matches = table.view().match(ProviderQuery.parse(query.params))
    return TableOffer(query, matches, DerivedData(), began=1, began_at=0.0)


def _layout(*names: str) -> HostLayout:
    """A host table that has these hosts, in this order."""
    rows = {node_uuid(name): row for row, name in enumerate(names)}
    return HostLayout(
        names, lambda uuids: np.array([rows.get(u, -1) for u in uuids], np.intp)
    )


class Coder:
    """Numbers the devices of one host."""

    n_known = N_DEVICES

    def __init__(self, name: str) -> None:
        self._codes: dict[str | None, int]
        self._codes = {_device(name, i): i for i in range(N_DEVICES)}

    def provider_codes(self, uuids: Any) -> Any:
        return np.array([self._codes.get(uuid, -1) for uuid in uuids], np.int32)


def test_plain_query_has_one_candidate_a_host_by_row() -> None:
    offer = Offer([_offer(_table("a", "b", "c"))])
    hosts = offer.on_hosts(_layout("c", "unknown", "a"))
    assert sorted(hosts.rows.tolist()) == [0, 2]
    assert (offer.n_open, offer.n_roots) == (3, 3)
    candidates = hosts.within(np.array([2, 0]))
    found = {
        int(row): [*candidates.request(i)["allocations"]]
        for i, row in enumerate(candidates.rows)
    }
    assert found == {0: [node_uuid("a")], 1: [node_uuid("c")]}


def test_candidates_of_several_groups_are_those_of_placement() -> None:
    offer = Offer([_offer(_table("a", "b"), 2)])
    candidates = offer.on_hosts(_layout("a", "b")).within(np.array([1]))
    assert candidates.rows.tolist() == [0] * (N_DEVICES * (N_DEVICES - 1))
    coder = Coder("b")
    pairs = [candidates.provider_codes(f"_{i}", coder).tolist() for i in (0, 1)]
    assert sorted(zip(*pairs, strict=True)) == [
        *itertools.permutations(range(N_DEVICES), 2)
    ]
    mapped = [candidates.mappings_of(i) for i in range(len(candidates))]
    for number, mapping in enumerate(mapped):
        assert mapping["_0"] == [_device("b", pairs[0][number])]
        assert mapping["_1"] == [_device("b", pairs[1][number])]
        assert mapping[""] == [node_uuid("b")]


def test_numbers_stay_when_other_hosts_are_judged() -> None:
    offer = Offer([_offer(_table("a", "b"), 2)])
    hosts = offer.on_hosts(_layout("a", "b"))
    first = hosts.within(np.array([1])).numbers.tolist()
    bodies = [offer.request(number) for number in first]
    every = hosts.within(np.array([0, 1]))
    assert every.numbers[every.rows == 1].tolist() == first
    assert [offer.request(number) for number in first] == bodies
    assert [*offer.numbers_of(node_uuid("b"))] == first
    assert set(offer.numbers_of(node_uuid("a"))).isdisjoint(first)
    assert offer.numbers_of("elsewhere") == []
    assert not offer.is_open(max(every.numbers.tolist()) + 1)


@pytest.mark.parametrize("n_each", [1, 2, 5, 100])
def test_sample_is_bounded_spread_and_of_true_candidates(n_each: int) -> None:
    table = _table("a", "b", "c")
    query = ProviderQuery.parse(_query(3).params)
    matches = table.view().match(query)
    every = {tuple(row) for row in matches.expand_rows(matches.roots).providers}
    found = matches.sample_rows(matches.roots, n_each)
    assert {tuple(row) for row in found.providers} <= every
    assert len({tuple(row) for row in found.providers}) == len(found)
    counts = [np.count_nonzero(found.roots == root) for root in matches.roots]
    assert all(1 <= count <= n_each for count in counts)
    if n_each == 100:
        assert len(found) == len(every) == 3 * 4 * 3 * 2
    if n_each == 5:
        assert len({row[1] for row in found.providers[found.roots == 0]}) > 1


def test_offer_has_more_if_a_host_or_an_option_came() -> None:
    table = _table("a", "b")
    table.update(used={"VCPU": {node_uuid("b"): 8}})
    before = _offer(table, 1)
    assert not _offer(table, 1).has_more_than(before)
    table.update(used={"CUSTOM_DEVICE": {_device("a", 0): 1}})
    fewer = _offer(table, 1)
    assert not fewer.has_more_than(before)
    assert before.has_more_than(fewer)
    table.update(used={"VCPU": {node_uuid("b"): 0}})
    assert _offer(table, 1).has_more_than(before)


def test_providers_that_lack_only_room_are_found() -> None:
    table = _table("full", "free", "small")
    table.update(used={"VCPU": {node_uuid("full"): 7, node_uuid("free"): 1}})
    small = ProviderRecord(node_uuid("small"), inventories={"VCPU": _inventory(1)})
    table.put([small])
    parsed = ProviderQuery.parse(_query(0).params)
    assert lacking_room(table.view(), parsed) == [node_uuid("full")]
    table.update(used={"CUSTOM_DEVICE": {_device("free", i): 1 for i in range(4)}})
    parsed = ProviderQuery.parse(_query(1).params)
    assert set(lacking_room(table.view(), parsed)) == {
        node_uuid("full"), node_uuid("free"), *(_device("free", i) for i in range(4))
    }  # fmt: skip


def test_free_and_traits_are_those_of_the_providers() -> None:
    table = _table("a")
    table.update(used={"VCPU": {node_uuid("a"): 3}})
    offer = _offer(table, 1)
    assert offer.free(node_uuid("a"), "VCPU") == 5
    assert offer.free(node_uuid("a"), "VGPU") == 0
    assert offer.free("elsewhere", "VCPU") == 0
    assert offer.root_of(_device("a", 1)) == node_uuid("a")
    assert offer.root_of("elsewhere") is None
    assert list(offer.traits_of("elsewhere")) == []
