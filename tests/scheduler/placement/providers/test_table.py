# SPDX-License-Identifier: Apache-2.0
"""A table that was changed bit by bit is the same as one that was loaded at once."""

from __future__ import annotations

import threading
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.placement.providers import (
    InventoryRecord,
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
    ProviderView,
    QueryNotCovered,
)

from ....fixtures.property_tests import examples
from .comparison import answer, view_of
from .random_clouds import CUSTOM_CLASS, TRAITS, random_cloud, random_params

A, B, C = (f"{i:08x}-0000-4000-8000-000000000000" for i in (1, 2, 3))
ONE_VCPU = ProviderQuery.parse([("resources", "VCPU:1")])


def host(uuid: str, **changes: Any) -> ProviderRecord:
    inventories = {"VCPU": InventoryRecord(4), "MEMORY_MB": InventoryRecord(1024)}
    return replace(ProviderRecord(uuid, inventories=inventories), **changes)


def loaded(*records: ProviderRecord) -> ProviderTable:
    return ProviderTable(ProviderColumns.of(records))


def matching(view: ProviderView, query: ProviderQuery = ONE_VCPU) -> list[str]:
    return sorted(view.match(query).uuids)


def _subtree(cloud: list[ProviderRecord], uuid: str) -> set[str]:
    found = {uuid}
    for record in cloud:  # parents stand before their children
        if record.parent_uuid in found:
            found.add(record.uuid)
    return found


@examples(1)
@given(seed=st.integers(0, 2**32 - 1))
def test_changes_give_the_same_answers_as_loading(seed: int) -> None:
    rng = Random(seed)
    table = ProviderTable()
    table.add_names(traits=TRAITS, resource_classes=[CUSTOM_CLASS])
    cloud: list[ProviderRecord] = []
    for _ in range(3):
        new = random_cloud(rng)
        table.put(new)
        cloud += new
        gone = _subtree(cloud, rng.choice(cloud).uuid)
        table.remove(gone)
        cloud = [record for record in cloud if record.uuid not in gone]
        for i in rng.sample(range(len(cloud)), len(cloud) // 3):
            cloud[i] = _changed(rng, cloud[i])
            table.put([cloud[i]])
        for i, record in enumerate(cloud):
            cloud[i] = replace(record, used=dict.fromkeys(record.inventories, 1))
            table.update(used={name: {record.uuid: 1} for name in record.inventories})
    if not cloud:
        return

    for _ in range(5):
        params = random_params(rng, cloud)
        try:
            expected = answer(view_of(cloud), params)
        except QueryNotCovered:
            continue
        assert answer(table.view(), params) == expected


def _changed(rng: Random, record: ProviderRecord) -> ProviderRecord:
    other = random_cloud(rng)[0]
    return replace(other, uuid=record.uuid, parent_uuid=record.parent_uuid)


def test_a_view_does_not_change() -> None:
    table = loaded(host(A), host(B))
    before = table.view()

    table.update(used={"VCPU": {A: 4}})
    table.put([host(C), host(B, traits=frozenset(["COMPUTE_NODE"]))])
    table.remove([A])

    assert matching(before) == [A, B]
    assert before.match(ONE_VCPU).answer()["provider_summaries"].keys() == {A, B}
    assert matching(table.view()) == [B, C]


def test_old_view_does_not_find_the_provider_that_reuses_a_row() -> None:
    table = loaded(host(A))
    before = table.view()
    table.remove([A])
    table.put([host(B)])

    assert before.state.trees.find(B) == -1
    assert matching(before, ProviderQuery.parse([*_TREE_OF_B])) == []
    assert matching(table.view(), ProviderQuery.parse([*_TREE_OF_B])) == [B]


_TREE_OF_B = (("resources", "VCPU:1"), ("in_tree", B))


def test_a_provider_can_be_moved_to_another_tree() -> None:
    device = ProviderRecord(C, A, inventories={"VGPU": InventoryRecord(1)})
    table = loaded(host(A), host(B), device)
    query = ProviderQuery.parse([("resources", "VCPU:1,VGPU:1")])
    assert matching(table.view(), query) == [A]

    table.put([replace(device, parent_uuid=B)])

    assert matching(table.view(), query) == [B]


def test_generations_are_those_last_set() -> None:
    table = loaded(host(A, generation=3), host(B, generation=4))

    table.update(generations={B: 5})

    assert table.view().state.generations.tolist() == [3, 5]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda table: table.remove([C]), id="remove"),
        pytest.param(lambda table: table.update(used={"VCPU": {C: 1}}), id="used"),
        pytest.param(lambda table: table.update(generations={C: 1}), id="generation"),
        pytest.param(lambda table: table.put([host(B, parent_uuid=C)]), id="parent"),
    ],
)
def test_an_unknown_provider_is_an_error_that_changes_nothing(change: Any) -> None:
    table = loaded(host(A))

    with pytest.raises(KeyError, match=C):
        change(table)

    assert matching(table.view()) == [A]


def test_names_are_known_once_placement_knows_them() -> None:
    table = loaded(host(A))
    query = ProviderQuery.parse([("resources", "VCPU:1"), ("required", "CUSTOM_NEW")])
    with pytest.raises(QueryNotCovered, match="CUSTOM_NEW"):
        table.view().match(query)

    table.add_names(traits=["CUSTOM_NEW"])

    assert matching(table.view(), query) == []


def test_a_loop_of_parents_is_an_error() -> None:
    table = loaded(host(A), host(B, parent_uuid=A))
    table.put([host(A, parent_uuid=B)])

    with pytest.raises(ValueError, match="their own ancestors"):
        matching(table.view())


def test_readers_see_all_of_a_change_or_nothing() -> None:
    table = loaded(host(A), host(B))
    is_done = threading.Event()

    def write() -> None:
        try:
            for i in range(300):
                used = {A: i % 2 * 4}
                table.update(used={"VCPU": used, "MEMORY_MB": used}, generations={A: i})
                table.put([host(C, traits=frozenset([f"CUSTOM_{i}"]))])
                table.remove([C])
        finally:
            is_done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not is_done.is_set():
        summaries = table.view().match(ONE_VCPU).answer()["provider_summaries"]
        if A in summaries:
            resources = summaries[A]["resources"]
            seen.add((resources["VCPU"]["used"], resources["MEMORY_MB"]["used"]))
        assert summaries.keys() <= {A, B, C}
        assert B in summaries
    writer.join()

    assert seen <= {(0, 0)}
    assert table.view().state.generations[0] == 299


def test_inventories_that_no_provider_has_are_forgotten() -> None:
    first = host("a", used={"VCPU": 1})
    table = loaded(first, host("b"))
    before = table.view()
    for total in range(10, 1200):
        inventories = {"VCPU": InventoryRecord(total)}
        table.put([replace(first, inventories=inventories)])
    state = table.view().state
    assert len(state.column("VCPU").distinct.values) < 1100
    assert state.record("a") == replace(first, inventories=inventories)
    assert state.record("b") == before.state.record("b")
    assert before.state.record("a") == first
