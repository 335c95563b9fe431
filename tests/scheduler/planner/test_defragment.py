# SPDX-License-Identifier: Apache-2.0
"""A plan that empties hosts: which of them, within the limits of moves and memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...fixtures.clouds import host, request, started_scheduler
from ...fixtures.drained_clouds import DrainedCloud

#: By host, the MiB of its instances, and the vCPU of each.
_INSTANCES = {"a": [256, 256, 256], "b": [2048], "c": [3072, 3072], "d": [6144]}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[DrainedCloud]:
    ratios = {"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0}
    hosts = [
        host(name, vcpus=4, memory_mb=8192, **ratios, traits=traits)
        for name, traits in (("a", ["CUSTOM_GOLD"]), ("b", []), ("c", []), ("d", []))
    ]
    with started_scheduler(tmp_path, *hosts) as scheduler:
        yield DrainedCloud(scheduler)


def _fill(cloud: DrainedCloud, **of_a: Any) -> None:
    for on, sizes in _INSTANCES.items():
        for memory_mb in sizes:
            changes = of_a if on == "a" else {}
            spec = request(force_hosts=[on], memory_mb=memory_mb, root_gb=0, **changes)
            assert cloud.create(spec)


def test_a_host_with_few_instances_is_emptied_if_moves_are_few(
    cloud: DrainedCloud,
) -> None:
    _fill(cloud)
    plan = cloud.plan_defragment(max_moves=1)
    assert plan.hosts == ("b",)
    assert [step.source for step in plan.steps] == ["b"]


def test_a_host_with_little_memory_is_emptied_if_memory_is_little(
    cloud: DrainedCloud,
) -> None:
    _fill(cloud)
    plan = cloud.plan_defragment(max_gib=1)
    assert plan.hosts == ("a",)
    assert plan.memory_mb == 768


def test_another_host_is_emptied_in_the_place_of_one_that_cannot(
    cloud: DrainedCloud,
) -> None:
    _fill(cloud, extra_specs={"trait:CUSTOM_GOLD": "required"})
    plan = cloud.plan_defragment()
    assert "b" in plan.hosts
    assert "a" not in plan.hosts
    assert plan.goal is not None
    assert plan.goal.n_after == len(plan.hosts) <= plan.goal.n_wanted
    instances_of = cloud.scheduler.table.instances.of_host
    for step in sorted(plan.steps, key=lambda step: (step.wave, step.number)):
        cloud.execute(step)
    assert not any(map(instances_of, plan.hosts))


def test_a_destination_is_not_emptied_itself(cloud: DrainedCloud) -> None:
    _fill(cloud)
    plan = cloud.plan_defragment()
    moved = [step.instance for step in plan.steps]
    assert len(moved) == len(set(moved))
    assert not {step.destination for step in plan.steps} & set(plan.hosts)


def test_an_instance_can_go_to_the_host_of_an_equal_one_that_fits_nowhere(
    tmp_path: Path,
) -> None:
    ratios = {"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0}
    hosts = [
        host(name, vcpus=4, memory_mb=memory_mb, **ratios)
        for name, memory_mb in (("large", 8192), ("full", 2048))
    ]
    with started_scheduler(tmp_path, *hosts) as scheduler:
        cloud = DrainedCloud(scheduler)
        for on, sizes in {"large": [512], "full": [512, 1536]}.items():
            for memory_mb in sizes:
                spec = request(force_hosts=[on], memory_mb=memory_mb, root_gb=0)
                assert cloud.create(spec)
        assert cloud.plan_defragment().hosts == ("full",)
