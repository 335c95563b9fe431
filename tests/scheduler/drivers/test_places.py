# SPDX-License-Identifier: Apache-2.0
"""Rules about places mean the same for each driver, origin of places and storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.objects import InstanceGroup
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler, build

from ...fixtures.clouds import CONTEXT, host, write_inventory
from ...fixtures.placed_clouds import (
    KINDS,
    RACK_OF,
    ROW_OF,
    CloudKind,
    chosen_hosts,
    placed_cloud,
    placing,
    uuid_of,
)

ONE = uuid_of("an instance in rack r1")
NOWHERE = uuid_of("an instance on a host without a place")
GROUP = uuid_of("group")


@pytest.fixture(scope="module", params=KINDS, ids=str)
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
    assert "7 rejected (in_rack: in another rack)" in str(caught.value)


# -- nodes of bare metal: one service host, in several racks ---------------------------

METAL = "CUSTOM_BAREMETAL_GOLD"
_NODES = [(f"{rack}-{n}", rack) for rack in ROW_OF for n in range(3)]


@pytest.fixture(scope="module", params=["filter_scheduler", "solver"])
def metal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scheduler]:
    nodes = [
        host(
            "ironic1",
            node=name,
            uuid=uuid_of(name),
            vcpus=0,
            memory_mb=0,
            local_gb=0,
            resources={METAL: {"total": 1}},
            places={"rack": rack, "row": ROW_OF[rack]},
        )
        for name, rack in _NODES
    ]
    conf = moorage_conf.load([], config_files=[])
    path = write_inventory(tmp_path_factory.mktemp("metal"), *nodes)
    conf.set_override("inventory_file", str(path), group="moorage")
    conf.set_override("driver", request.param, group="moorage")
    conf.set_override("random_seed", 1, group="moorage")
    conf.set_override("levels", ["rack", "row"], group="locality")
    scheduler = build(conf)
    scheduler.start()
    yield scheduler
    scheduler.stop()


@pytest.mark.parametrize(
    ("hints", "racks"),
    [
        ({"spread_level": ["rack"]}, {"r1": 1, "r2": 1, "r3": 1}),
        ({"spread_level": ["rack"], "not_in_row": ["A"]}, {"r2": 2, "r3": 1}),
        ({"max_server_per_rack": ["1"]}, {"r1": 1, "r2": 1, "r3": 1}),
        ({"same_rack": [GROUP]}, {"r1": 3}),
    ],
    ids=["spread", "spread in a row", "limit", "same"],
)
def test_nodes_of_one_service_host_count_where_each_is(
    metal: Scheduler, hints: dict[str, list[str]], racks: dict[str, int]
) -> None:
    zero = dict.fromkeys(("VCPU", "MEMORY_MB", "DISK_GB"), "0")
    specs = {f"resources:{name}": n for name, n in {**zero, METAL: "1"}.items()}
    spec, _ = placing(
        3, _group("soft-affinity"), scheduler_hints=hints, extra_specs=specs
    )
    record = metal.explainer.dry_run(CONTEXT, spec, 3)
    rack_of = dict(_NODES)
    found = Counter(rack_of[each.node] for each in record.instances)
    assert sorted(found.values()) == sorted(racks.values())
    assert found.keys() <= racks.keys() or "same_rack" in hints
