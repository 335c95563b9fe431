# SPDX-License-Identifier: Apache-2.0
"""Which steps of a plan may run at once: those that no rule connects."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.objects import InstanceGroup
from moorage.scheduler.planner import Plan

from ...fixtures.clouds import host, request, started_scheduler
from ...fixtures.drained_clouds import DrainedCloud

_DRAINED = ("a", "b")


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[DrainedCloud]:
    hosts = [host(name) for name in (*_DRAINED, "c", "d", "e")]
    with started_scheduler(tmp_path, *hosts) as scheduler:
        yield DrainedCloud(scheduler)


def _create(
    cloud: DrainedCloud,
    on: str,
    names: str = "",
    group: InstanceGroup | None = None,
    memory_mb: int = 1024,
) -> str:
    """Create an instance on a host, whose hint names another instance."""
    hints = {"different_host": [names]} if names else {}
    spec = request(
        force_hosts=[on], root_gb=0, memory_mb=memory_mb, scheduler_hints=hints
    )
    created = cloud.create(spec, group)
    assert created
    return created


def _plan(cloud: DrainedCloud) -> Plan:
    plan = cloud.plan(_DRAINED, parallel=2)
    assert len(plan.steps) == len({step.destination for step in plan.steps}) == 2
    return plan


def _expect_one_after_the_other(cloud: DrainedCloud) -> None:
    first, second = _plan(cloud).steps
    assert (first.after, second.after) == ((), (first.number,))
    assert (first.wave, second.wave) == (1, 2)


def test_instances_without_rules_move_at_once(cloud: DrainedCloud) -> None:
    for on in _DRAINED:
        _create(cloud, on)
    assert [(step.after, step.wave) for step in _plan(cloud).steps] == [((), 1)] * 2


def test_members_of_a_group_move_one_after_the_other(cloud: DrainedCloud) -> None:
    group = InstanceGroup(
        uuid=str(uuid.uuid4()), policy="anti-affinity", policies=["anti-affinity"],
        rules={}, members=[], hosts=[],
    )  # fmt: skip
    for on in _DRAINED:
        _create(cloud, on, group=group)
    _expect_one_after_the_other(cloud)


def test_instances_that_name_the_same_one_move_one_after_the_other(
    cloud: DrainedCloud,
) -> None:
    named = _create(cloud, "e")
    for on in _DRAINED:
        _create(cloud, on, names=named)
    _expect_one_after_the_other(cloud)


@pytest.mark.parametrize("memory_mb", [512, 2048])
def test_an_instance_and_the_one_that_it_names_move_one_after_the_other(
    cloud: DrainedCloud, memory_mb: int
) -> None:
    # The larger one moves first: once that one names the other, once it is named.
    named = _create(cloud, "a")
    _create(cloud, "b", names=named, memory_mb=memory_mb)
    _expect_one_after_the_other(cloud)
