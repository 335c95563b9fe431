# SPDX-License-Identifier: Apache-2.0
"""Rules about places mean the same for each driver, origin of places and storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.objects import InstanceGroup
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler

from ...fixtures.deep import deep_except
from ...fixtures.placed_clouds import (
    KINDS,
    RACK_OF,
    CloudKind,
    chosen_hosts,
    placed_cloud,
    placing,
    uuid_of,
)

ONE = uuid_of("an instance in rack r1")
NOWHERE = uuid_of("an instance on a host without a place")
GROUP = uuid_of("group")


#: Each two properties in common, with each value of the others.
QUICK = [
    kind
    for kind in KINDS
    if (kind.driver == "solver") ^ (kind.candidates == "api") ^ kind.is_shared
]


@pytest.fixture(scope="module", params=deep_except(QUICK, KINDS), ids=str)
def scheduler(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scheduler]:
    kind: CloudKind = request.param
    folder = tmp_path_factory.mktemp("cloud")
    with placed_cloud(kind, folder, {"a": [ONE], "x": [NOWHERE]}) as made:
        yield made


def _racks(scheduler: Scheduler, n_instances: int, **changes: Any) -> list[str]:
    hosts = chosen_hosts(scheduler, *placing(n_instances, **changes))
    return sorted(RACK_OF.get(host, "nowhere") for host in hosts)


def _group(policy: str, *members: str) -> InstanceGroup:
    return InstanceGroup(
        uuid=GROUP, policy=policy, policies=[policy], members=list(members), hosts=[]
    )


@pytest.mark.parametrize(
    ("hints", "racks"),
    [
        ({"in_row": ["B"]}, {"r2": 2, "r3": 2}),
        ({"not_in_row": ["A"]}, {"r2": 2, "r3": 2}),
        ({"not_in_rack": ["r2"]}, {"r1": 2, "r3": 2}),
        ({"different_row": [ONE]}, {"r2": 2, "r3": 2}),
        ({"different_rack": [ONE]}, {"r2": 2, "r3": 2}),
        ({"same_row": [ONE]}, {"r1": 4}),
        ({"in_rack": ["r1", "r3"]}, {"r1": 2, "r3": 2}),
    ],
    ids=lambda value: "-".join(value) if "_" in "".join(value) else "",
)
def test_places_that_the_request_forbids_do_not_hold_back_a_spread(
    scheduler: Scheduler, hints: dict[str, list[str]], racks: dict[str, int]
) -> None:
    hints = {**hints, "spread_level": ["rack"]}
    assert Counter(_racks(scheduler, 4, scheduler_hints=hints)) == racks


def test_members_one_by_one_are_spread_over_the_places_that_are_allowed(
    scheduler: Scheduler,
) -> None:
    hints = {"not_in_row": ["A"], "spread_level": ["rack"]}
    members: list[str] = []
    racks: list[str] = []
    for _ in range(4):
        spec, uuids = placing(
            group=_group("soft-affinity", *members), scheduler_hints=hints
        )
        racks += [RACK_OF[host] for host in chosen_hosts(scheduler, spec, uuids)]
        members += uuids
    assert Counter(racks) == {"r2": 2, "r3": 2}


@pytest.mark.parametrize("n_instances", [1, 4])
@pytest.mark.parametrize(
    ("hints", "racks"),
    [
        ({"in_rack": ["r2"]}, {"r2"}),
        ({"in_row": ["B"]}, {"r2", "r3"}),
        ({"same_rack": [ONE]}, {"r1"}),
        ({"same_row": [ONE]}, {"r1"}),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else "",
)
def test_hosts_of_a_place_are_found_wherever_their_disks_are(
    scheduler: Scheduler,
    n_instances: int,
    hints: dict[str, list[str]],
    racks: set[str],
) -> None:
    found = _racks(scheduler, n_instances, scheduler_hints=hints)
    assert set(found) <= racks


def test_a_place_that_nothing_is_in_is_named_as_the_reason(
    scheduler: Scheduler,
) -> None:
    with pytest.raises(NoValidHost) as caught:
        _racks(scheduler, 1, scheduler_hints={"in_rack": ["r9"]})
    assert "7 rejected (in_rack: no host is in rack 'r9')" in str(caught.value)


# -- hosts without a place -------------------------------------------------------------


def _group_on(policy: str, *hosts: str) -> InstanceGroup:
    on = {"a": ONE, "x": NOWHERE}
    group = _group(policy, *(on[each] for each in hosts))
    group.hosts = list(hosts)
    return group


@pytest.mark.parametrize("n_instances", [1, 4])
def test_soft_policy_keeps_a_group_on_its_own_host_without_a_place(
    scheduler: Scheduler, n_instances: int
) -> None:
    group = _group_on("soft-affinity", "x")
    hints = {"group_level": ["rack"]}
    found = _racks(scheduler, n_instances, group=group, scheduler_hints=hints)
    assert found == ["nowhere"] * n_instances


def test_soft_policy_keeps_a_group_away_from_its_own_host_without_a_place(
    scheduler: Scheduler,
) -> None:
    group = _group_on("soft-anti-affinity", "x")
    [rack] = _racks(
        scheduler, 1, group=group, scheduler_hints={"group_level": ["rack"]}
    )
    assert rack != "nowhere"


@pytest.mark.parametrize("n_instances", [1, 4])
@pytest.mark.parametrize(("host", "rack"), [("a", "r1"), ("x", "nowhere")])
def test_affinity_at_a_level_is_the_one_host_whether_or_not_it_has_a_place(
    scheduler: Scheduler, n_instances: int, host: str, rack: str
) -> None:
    group = _group_on("affinity", host)
    hints = {"group_level": ["rack"]}
    found = _racks(scheduler, n_instances, group=group, scheduler_hints=hints)
    assert found == [rack] * n_instances


@pytest.mark.parametrize("n_instances", [1, 4])
def test_no_host_passes_where_the_place_to_follow_is_unknown(
    scheduler: Scheduler, n_instances: int
) -> None:
    hints = {"same_row": [GROUP]}
    group = _group_on("soft-affinity", "x")
    with pytest.raises(NoValidHost):
        _racks(scheduler, n_instances, group=group, scheduler_hints=hints)
    group = _group_on("soft-affinity", "a", "x")
    found = _racks(scheduler, n_instances, group=group, scheduler_hints=hints)
    assert found == ["r1"] * n_instances
