# SPDX-License-Identifier: Apache-2.0
"""Every step of a fresh plan can be done in order, on the real Placement."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import Flavor, InstanceGroup, RequestSpec
from moorage.scheduler.explain import request_of_flavor
from moorage.scheduler.planner import Plan
from moorage.scheduler.planner.cloud import SHARED

from ...fixtures.clouds import request
from ...fixtures.drained_clouds import (
    DrainedCloud,
    drained_cloud,
    plain,
    random_group,
)
from ...fixtures.packed_clouds import packed_requests, refresh_providers
from ...fixtures.property_tests import examples


def _fill(cloud: DrainedCloud, rng: random.Random, specs: list[RequestSpec]) -> None:
    groups: list[InstanceGroup | None] = [
        None,
        None,
        *(random_group(rng) for _ in "ab"),
    ]
    for _ in range(10):
        cloud.create(plain(rng), rng.choice(groups))
    for spec in specs:
        cloud.create(spec)
    instances = sorted(cloud.specs)
    if instances:
        hints = {rng.choice(["same_rack", "different_rack"]): [rng.choice(instances)]}
        cloud.create(request(root_gb=0, memory_mb=256, scheduler_hints=hints))


def _is_in_order(plan: Plan) -> None:
    """Assert that no wave has two steps of one host, or too many."""
    wave_of = {step.number: step.wave for step in plan.steps}
    for step in plan.steps:
        assert all(wave_of[number] < step.wave for number in step.after)
        others = [each for each in plan.steps if each.wave == step.wave]
        assert len({each.source for each in others}) == len(others)
        assert len({each.destination for each in others}) == len(others)


def _check(cloud: DrainedCloud, rng: random.Random, specs: list[RequestSpec]) -> None:
    _fill(cloud, rng, specs)
    hosts = rng.sample([f"h{number}" for number in range(6)], rng.choice([1, 2]))
    plan = cloud.plan(hosts, parallel=rng.choice([1, 3]))
    _is_in_order(plan)
    instances_of = cloud.scheduler.table.instances.of_host
    on_hosts = {uuid for host in hosts for uuid in instances_of(host)}
    moved = [step.instance for step in plan.steps]
    left = [stuck.instance for stuck in plan.stuck]
    assert sorted([*moved, *left]) == sorted(on_hosts)
    assert not {step.destination for step in plan.steps} & set(hosts)
    for step in sorted(plan.steps, key=lambda step: (step.wave, step.number)):
        cloud.execute(step)
    assert {uuid for host in hosts for uuid in instances_of(host)} == set(left)
    for stuck in plan.stuck:
        assert stuck.why
        assert stuck.reasons or stuck.why == SHARED
    _check_others(cloud, rng)


def _check_others(cloud: DrainedCloud, rng: random.Random) -> None:
    """Execute a plan that makes room, and one that defragments."""
    flavor = request_of_flavor(
        Flavor(
            name="large", flavorid="9", vcpus=2, memory_mb=rng.choice([2048, 4096]),
            root_gb=0, ephemeral_gb=0, swap=0, extra_specs={},
        )
    )  # fmt: skip
    host = rng.choice(["", "h0", "h1"])
    capacity = cloud.explainer.capacity([flavor]).flavors[0].n_instances
    plan = cloud.plan_make_room(flavor, 1 if host else capacity + 1, host)
    _execute(cloud, plan)
    instances_of = cloud.scheduler.table.instances.of_host
    assert plan.goal is not None
    if plan.goal.n_after == plan.goal.n_wanted:
        spec = flavor.spec_obj
        spec.project_id, spec.user_id = "project", "user"
        assert len(plan.steps) >= plan.goal.n_least_moves
        if host:
            spec.ignore_hosts = [f"h{i}" for i in range(6) if f"h{i}" != host]
        for _ in range(plan.goal.n_wanted):
            assert cloud.create(spec)
    plan = cloud.plan_defragment(max_moves=8)
    assert plan.goal is not None
    _execute(cloud, plan)
    assert len(plan.steps) <= 8
    assert not any(map(instances_of, plan.hosts))
    n_empty = sum(not instances_of(f"h{number}") for number in range(6))
    assert n_empty == plan.goal.n_after <= plan.goal.n_wanted


def _execute(cloud: DrainedCloud, plan: Plan) -> None:
    _is_in_order(plan)
    for step in sorted(plan.steps, key=lambda step: (step.wave, step.number)):
        cloud.execute(step)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(4))
def test_every_step_can_be_done_in_the_order_of_waves(seed: int) -> None:
    with drained_cloud(seed) as cloud:

        @examples(0.06)
        @given(
            rng=st.randoms(use_true_random=False),
            specs=st.lists(packed_requests(), max_size=4),
        )
        def check(rng: random.Random, specs: list[RequestSpec]) -> None:
            try:
                _check(cloud, rng, specs)
            finally:
                _empty(cloud)

        check()


def _empty(cloud: DrainedCloud) -> None:
    """Delete all instances."""
    table = cloud.scheduler.table
    for uuid in cloud.specs:
        cloud.scheduler.placement.delete_allocations(uuid)
        for host in table.instances.hosts_of(uuid):
            table.claims.release(host, uuid)
    cloud.specs.clear()
    cloud.groups.clear()
    refresh_providers(cloud.scheduler)
