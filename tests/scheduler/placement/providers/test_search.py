# SPDX-License-Identifier: Apache-2.0
"""Trees with many devices: which match, and which candidates they have."""

from __future__ import annotations

import math

import pytest

from moorage.scheduler.placement.providers import (
    InventoryRecord,
    Matches,
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
)


def _uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def tree(number: int, n_devices: int, n_each: int = 1) -> list[ProviderRecord]:
    root = ProviderRecord(_uuid(number), None, 0, {"VCPU": InventoryRecord(8)})
    devices = {"SRIOV_NET_VF": InventoryRecord(n_each)}
    return [
        root,
        *(
            ProviderRecord(_uuid(number + i), root.uuid, 0, devices)
            for i in range(1, 1 + n_devices)
        ),
    ]


def matches_of(
    trees: list[list[ProviderRecord]], n_groups: int, policy: str
) -> Matches:
    columns = ProviderColumns.of(sum(trees, []))  # noqa: RUF017 - few trees
    groups = [(f"resources_{i}", "SRIOV_NET_VF:1") for i in range(n_groups)]
    params = [("resources", "VCPU:1"), ("group_policy", policy), *groups]
    return ProviderTable(columns).view().match(ProviderQuery.parse(params))


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_as_many_groups_as_devices_have_all_permutations(policy: str) -> None:
    found = matches_of([tree(0x100, 6)], 6, policy)

    candidates = found.expand(found.uuids)

    assert len(candidates) == math.factorial(6)
    assert found.n_products.tolist() == [6**6]
    bodies = [candidates.body(i) for i in (0, len(candidates) - 1)]
    assert all(len(body["allocations"]) == 7 for body in bodies)


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_a_group_more_than_devices_matches_nothing(policy: str) -> None:
    found = matches_of([tree(0x100, 7), tree(0x200, 8)], 8, policy)

    assert found.uuids.tolist() == [_uuid(0x200)]


def test_trees_whose_groups_compete_are_searched_to_the_end() -> None:
    # Each group but the first needs one of the four large devices, which come first.
    large, small = InventoryRecord(2), InventoryRecord(1)
    records: list[ProviderRecord] = []
    for number, sizes in ((0x100, [large] * 5), (0x200, [*[large] * 4, small])):
        records.append(ProviderRecord(_uuid(number)))
        records += [
            ProviderRecord(_uuid(number + i), _uuid(number), 0, {"SRIOV_NET_VF": each})
            for i, each in enumerate(sizes, 1)
        ]
    params = [("group_policy", "isolate"), ("resources_A", "SRIOV_NET_VF:1")]
    params += [(f"resources_{i}", "SRIOV_NET_VF:2") for i in range(4)]
    view = ProviderTable(ProviderColumns.of(records)).view()

    found = view.match(ProviderQuery.parse(params))

    assert found.uuids.tolist() == [_uuid(0x100), _uuid(0x200)]
    assert [len(found.expand(uuid)) for uuid in found.uuids] == [120, 24]


def test_only_some_candidates_of_millions_are_created() -> None:
    found = matches_of([tree(0x100, 8, n_each=8)], 8, "none")

    assert found.n_products.tolist() == [8**8]
    assert len(found.expand(_uuid(0x100), limit=10)) == 10


def test_a_tree_that_does_not_match_has_no_candidate() -> None:
    found = matches_of([tree(0x100, 1), tree(0x200, 2)], 2, "isolate")

    assert len(found.expand(_uuid(0x100))) == 0
    assert len(found.expand([_uuid(0x100), _uuid(0x200), _uuid(0x300)])) == 2
