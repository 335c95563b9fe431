# SPDX-License-Identifier: Apache-2.0
"""The table gives exactly the candidates that the real Placement gives."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.placement.providers import InventoryRecord, ProviderRecord

from ....fixtures.property_tests import examples
from .comparison import Outcome, compare, view_of
from .random_clouds import AGGREGATES, SHARES, random_cloud, random_params
from .real_placement import Params, RealPlacement, embedded
from .recorded_queries import recorded_queries

#: Queries of each random cloud.
_N_QUERIES = 8

_PORTS = ("CUSTOM_PCI_8086_1533", "CUSTOM_GPU", "CUSTOM_A16_16A", "VGPU")


@pytest.fixture(scope="module")
def placement() -> Iterator[RealPlacement]:
    with embedded() as placement:
        yield placement


@pytest.mark.deep
@examples(1)
@given(seed=st.integers(0, 2**32 - 1))
def test_candidates_are_placements(placement: RealPlacement, seed: int) -> None:
    rng = Random(seed)
    cloud = random_cloud(rng)
    placement.fill(cloud)
    view = view_of(cloud)
    for _ in range(_N_QUERIES):
        outcome = compare(placement, view, cloud, random_params(rng, cloud))
        hypothesis.event(outcome.value)


def _uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _host(number: int, traits: list[str]) -> list[ProviderRecord]:
    """Return a compute node as nova reports one, with devices below it."""
    classes = {
        "VCPU": InventoryRecord(16, allocation_ratio=4.0, max_unit=16),
        "PCPU": InventoryRecord(8, max_unit=8),
        "MEMORY_MB": InventoryRecord(65_536, reserved=512, allocation_ratio=1.5),
        "DISK_GB": InventoryRecord(2_000),
        "MEM_ENCRYPTION_CONTEXT": InventoryRecord(4),
        "CUSTOM_GOLD": InventoryRecord(2),
        "CUSTOM_PMEM_NAMESPACE_SMALL": InventoryRecord(1),
    }
    root = ProviderRecord(_uuid(number), None, 1, classes, {}, frozenset(traits))
    devices = [
        ProviderRecord(_uuid(number + i), root.uuid, 1, {name: InventoryRecord(1)})
        for i, name in enumerate(_PORTS * 2, 1)
    ]
    return [root, *devices]


def test_queries_recorded_from_nova_have_placements_candidates(
    placement: RealPlacement,
) -> None:
    queries = recorded_queries()
    names = {name for params in queries for name in _traits(params)}
    cloud = _host(0x100, sorted(names - {"HW_CPU_HYPERTHREADING"}))
    cloud += _host(0x200, ["HW_CPU_HYPERTHREADING"])
    placement.fill(cloud)

    outcomes = [compare(placement, view_of(cloud), cloud, each) for each in queries]

    assert len(queries) >= 20
    assert set(outcomes) == {Outcome.CANDIDATES}


def _traits(params: Params) -> set[str]:
    values = [value for name, value in params if name.startswith("required")]
    return {name.lstrip("!") for value in values for name in value.split(",")}


def _record(number: int, **parts: object) -> ProviderRecord:
    return ProviderRecord(_uuid(number), **parts)  # type: ignore[arg-type] # by name


def test_a_class_in_two_groups_is_allocated_once_each(placement: RealPlacement) -> None:
    vcpus = {"VCPU": InventoryRecord(8)}
    cloud = [_record(1, inventories=vcpus)]
    cloud += [_record(i, parent_uuid=cloud[0].uuid, inventories=vcpus) for i in (2, 3)]
    placement.fill(cloud)
    params = [("resources", "VCPU:2"), ("resources1", "VCPU:1")]

    outcome = compare(placement, view_of(cloud), cloud, params)

    assert outcome is Outcome.DEPENDS_ON_ORDER


def test_every_tree_may_use_a_pool_alone(placement: RealPlacement) -> None:
    pool = _record(
        1, inventories={"DISK_GB": InventoryRecord(100)},
        traits=frozenset([SHARES]), aggregates=frozenset(AGGREGATES[:1]),
    )  # fmt: skip
    hosts = [
        _record(
            i,
            inventories={"VCPU": InventoryRecord(8)},
            aggregates=pool.aggregates,
        )
        for i in (2, 3)
    ]
    cloud = [pool, *hosts]
    placement.fill(cloud)
    params = [("resources", "DISK_GB:1"), ("resources1", "VCPU:1")]

    outcome = compare(placement, view_of(cloud), cloud, params)

    assert outcome is Outcome.DEPENDS_ON_ORDER


def test_two_pools_that_share_with_each_other_are_one_candidate(
    placement: RealPlacement,
) -> None:
    shared = {"traits": frozenset([SHARES]), "aggregates": frozenset(AGGREGATES[:1])}
    cloud = [
        _record(1, inventories={"DISK_GB": InventoryRecord(100)}, **shared),
        _record(2, inventories={"VGPU": InventoryRecord(8)}, **shared),
    ]
    placement.fill(cloud)
    params = [("resources", "DISK_GB:1,VGPU:1")]

    outcome = compare(placement, view_of(cloud), cloud, params)

    assert outcome is Outcome.CANDIDATES
