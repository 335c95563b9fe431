# SPDX-License-Identifier: Apache-2.0
"""What one host's providers lack, with nested and sharing providers and groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import os_traits
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.explain import HostReason, HostTree
from moorage.scheduler.placement.providers import (
    InventoryRecord,
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
)
from moorage.scheduler.placement.providers.tree_records import tree_records

from ...fixtures.property_tests import examples

AGGREGATES = {n: str(uuid.UUID(int=n)) for n in range(3)}
CLASSES = ("VCPU", "MEMORY_MB", "VGPU")
TRAITS = ("CUSTOM_A", "CUSTOM_B")


def _provider(number: int, parent: int | None = None, **more: object) -> ProviderRecord:
    fields: dict[str, object] = {
        "uuid": str(uuid.UUID(int=100 + number)),
        "parent_uuid": None if parent is None else str(uuid.UUID(int=100 + parent)),
        **more,
    }
    return ProviderRecord(**fields)  # type: ignore[arg-type]


def _reasons(records: Iterable[ProviderRecord], *params: tuple[str, str]) -> list[
    HostReason
]:  # fmt: skip
    tree = HostTree(list(records), {AGGREGATES[1]: "fast (zone z1)"})
    return tree.reasons(CandidatesQuery(tuple(sorted(params))))


def _checks(records: Iterable[ProviderRecord], *params: tuple[str, str]) -> set[str]:
    return {each.check for each in _reasons(records, *params)}


HOST = _provider(
    0,
    inventories={
        "VCPU": InventoryRecord(8, max_unit=4),
        "MEMORY_MB": InventoryRecord(1024, reserved=24, allocation_ratio=1.5),
        "CUSTOM_LANE": InventoryRecord(100, min_unit=10, step_size=10),
    },
    used={"VCPU": 3, "MEMORY_MB": 1000, "CUSTOM_LANE": 0},
    traits=frozenset({"CUSTOM_A"}),
    aggregates=frozenset({AGGREGATES[0]}),
)


@pytest.mark.parametrize(
    ("pair", "text", "available"),
    [
        pytest.param(
            "MEMORY_MB:501", "not enough left", "500 free of 1500, 1000 used", id="free"
        ),
        pytest.param(
            "MEMORY_MB:1501",
            "more than its capacity",
            "500 free of 1500, 1000 used",
            id="capacity",
        ),
        pytest.param(
            "VCPU:5",
            "more than one instance may have",
            "5 free of 8, 3 used; at most 4 for one instance (max_unit)",
            id="max_unit",
        ),
        pytest.param(
            "CUSTOM_LANE:5",
            "less than one instance must have",
            "100 free of 100, 0 used; at least 10 for one instance (min_unit)",
            id="min_unit",
        ),
        pytest.param(
            "CUSTOM_LANE:15",
            "not a multiple of what is allocated",
            "100 free of 100, 0 used; in steps of 10 (step_size)",
            id="step_size",
        ),
        pytest.param("VGPU:1", "the host has none", "no inventory", id="class"),
    ],
)
def test_a_missing_resource_has_required_and_available(
    pair: str, text: str, available: str
) -> None:
    [reason] = _reasons([HOST], ("resources", pair))
    name, amount = pair.split(":")
    assert (reason.check, reason.required) == (name, amount)
    assert (reason.reason, reason.available) == (text, available)


def test_what_fits_has_no_reason() -> None:
    assert _reasons([HOST], ("resources", "MEMORY_MB:500,VCPU:4")) == []


def test_aggregates_have_their_names() -> None:
    [reason] = _reasons(
        [HOST], ("resources", "VCPU:1"), ("member_of", f"in:{AGGREGATES[1]}")
    )
    assert (reason.check, reason.required) == ("aggregate", "fast (zone z1)")
    assert reason.available == AGGREGATES[0]


def test_all_parts_that_fail_are_named_at_once() -> None:
    params = (
        ("resources", "VCPU:9,MEMORY_MB:9999,VGPU:1"),
        ("required", "CUSTOM_B,!CUSTOM_A"),
        ("root_required", "CUSTOM_C"),
        ("member_of", f"!in:{AGGREGATES[0]}"),
    )
    assert _checks([HOST], *params) == {
        *("VCPU", "MEMORY_MB", "VGPU", "CUSTOM_A", "CUSTOM_B", "CUSTOM_C"),
        "aggregate",
    }


def _with_cards(*traits: str) -> list[ProviderRecord]:
    """A host with two cards; only the second one, which is full, has the traits."""
    card = InventoryRecord(1)
    return [
        HOST,
        _provider(1, 0, inventories={"VGPU": card}),
        _provider(
            2, 0, inventories={"VGPU": card}, used={"VGPU": 1}, traits=frozenset(traits)
        ),
    ]


def test_a_group_that_no_single_provider_serves_is_named() -> None:
    params = ("resources_gpu", "VGPU:1"), ("required_gpu", "CUSTOM_B")
    [reason] = _reasons(_with_cards("CUSTOM_B"), ("resources", "VCPU:1"), *params)
    assert reason.reason == "no single provider has all of it (group _gpu)"


def test_the_part_of_a_group_that_is_missing_is_named() -> None:
    params = ("resources_gpu", "VGPU:1"), ("required_gpu", "CUSTOM_B")
    [reason] = _reasons(_with_cards(), ("resources", "VCPU:1"), *params)
    assert (reason.check, reason.required) == ("CUSTOM_B", "CUSTOM_B")


def test_groups_that_need_a_provider_each_are_named() -> None:
    groups = ("resources_a", "VGPU:1"), ("resources_b", "VGPU:1")
    everything = ("resources", "VCPU:1"), *groups, ("group_policy", "isolate")
    one_card = _with_cards()[:2]
    assert _checks(one_card, *everything) == {"policy"}


def test_a_sharing_provider_counts() -> None:
    sharing = _provider(
        9,
        inventories={"DISK_GB": InventoryRecord(100)},
        used={"DISK_GB": 0},
        traits=frozenset({os_traits.MISC_SHARES_VIA_AGGREGATE}),
        aggregates=frozenset({AGGREGATES[0]}),
    )
    params = ("resources", "VCPU:1,DISK_GB:10")
    assert _checks([HOST], params) == {"DISK_GB"}
    assert _checks([HOST, sharing], params) == set()
    too_many = ("resources", "VCPU:9,DISK_GB:10")
    assert _checks([HOST, sharing], too_many) == {"VCPU"}
    table = ProviderTable(ProviderColumns.of([sharing, HOST, _provider(5)]))
    assert tree_records(table.view(), HOST.uuid) == [HOST, sharing]


# -- random trees ----------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> list[ProviderRecord]:
    """A root and up to two providers below it, with random inventories and traits."""
    found = []
    for number in range(draw(st.integers(1, 3))):
        classes = draw(st.sets(st.sampled_from(CLASSES), min_size=not number))
        used = {name: draw(st.integers(0, 4)) for name in classes}
        found.append(
            _provider(
                number,
                0 if number else None,
                inventories={name: InventoryRecord(4) for name in classes},
                used=used,
                traits=frozenset(draw(st.sets(st.sampled_from(TRAITS)))),
                aggregates=frozenset(
                    draw(st.sets(st.sampled_from(sorted(AGGREGATES.values()))))
                ),
            )
        )
    return found


AMOUNTS = st.dictionaries(
    st.sampled_from(CLASSES), st.integers(1, 4), min_size=1, max_size=3
)


@examples(4)
@given(
    records=trees(),
    amounts=AMOUNTS,
    required=st.sets(st.sampled_from(TRAITS), max_size=1),
    forbidden=st.sets(st.sampled_from(TRAITS), max_size=1),
)
def test_each_part_is_named_if_and_only_if_it_fails_alone(
    records: list[ProviderRecord],
    amounts: dict[str, int],
    required: set[str],
    forbidden: set[str],
) -> None:
    forbidden -= required
    params = [("resources", ",".join(f"{n}:{a}" for n, a in amounts.items()))]
    traits = [*required, *(f"!{name}" for name in forbidden)]
    if traits:
        params.append(("required", ",".join(traits)))
    found = _checks(records, *params)
    # The rule in plain words: one provider for each class that the tree has at all.
    holding = {name: [r for r in records if name in r.inventories] for name in amounts}
    lacking = {
        name
        for name, amount in amounts.items()
        if not any(4 - r.used[name] >= amount for r in holding[name])
    }
    held = [each for each in holding.values() if each] or [records]
    missing = {
        t for t in required if not any(t in r.traits for each in held for r in each)
    }
    unavoidable = {
        t for t in forbidden if not all(any(t not in r.traits for r in e) for e in held)
    }
    expected = lacking | missing | unavoidable
    table = ProviderTable(ProviderColumns.of(records))
    table.add_names(traits=TRAITS)
    answer = table.view().match(ProviderQuery.parse(params))
    if not expected and not len(answer.roots):
        expected = {"providers"}  # each is met alone, but not all at once
    assert found == expected
