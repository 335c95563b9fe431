# SPDX-License-Identifier: Apache-2.0
"""Bare metal: a service host with many nodes, of one unit of a resource class each."""

from __future__ import annotations

import dataclasses
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from moorage.objects import Destination, InstanceGroup, Selection
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.claim_reconciler import ClaimReconciler
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.providers import InventoryRecord, ProviderRecord
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.waiting import ThreadSpawner

from ...fixtures.clouds import (
    CONTEXT,
    host,
    new_uuids,
    request,
    usages,
    write_inventory,
)
from ...fixtures.hand_time import HandTime
from ...fixtures.placement_rows import write_providers
from ...fixtures.placement_servers import EmbeddedPlacementFixture

GOLD = "CUSTOM_BAREMETAL_GOLD"
SPECS = {
    f"resources:{GOLD}": "1",
    **{f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")},
}
WITH_TRAIT = {**SPECS, "trait:CUSTOM_GPU": "required"}
N_NODES = 12
#: The nodes of the two services; the last one has a trait.
NODES = {"ironic1": range(8), "ironic2": range(8, N_NODES)}

MakeScheduler = Callable[..., Scheduler]


def node(number: int, service: str = "ironic1", **changes: Any) -> dict[str, Any]:
    """A node of an inventory, as Ironic's driver reports it: named by its UUID."""
    name = node_name(number)
    gold = {"total": 1, "max_unit": 1}
    return host(
        service,
        node=name,
        uuid=name,
        vcpus=0,
        memory_mb=0,
        local_gb=0,
        supported_instances=[["x86_64", "baremetal", "hvm"]],
        resources={GOLD: gold},
        **changes,
    )


def node_name(number: int) -> str:
    return str(uuid.UUID(int=number + 1))


def metal(n_instances: int = 1, **changes: Any) -> Any:
    """A request for whole nodes; the flavor has their sizes, as operators write it."""
    sizes = {"vcpus": 32, "memory_mb": 262144, "root_gb": 900}
    plain = {**sizes, "extra_specs": SPECS, "num_instances": n_instances}
    return request(**{**plain, **changes})


@pytest.fixture
def inventory_file(tmp_path: Path) -> Path:
    hosts = [
        node(
            number,
            service,
            traits=["CUSTOM_GPU"] if number == N_NODES - 1 else [],
        )
        for service, numbers in NODES.items()
        for number in numbers
    ]
    racks = [
        {"name": f"r{i}", "hosts": [service], "metadata": {"moorage:level": "rack"}}
        for i, service in enumerate(NODES)
    ]
    return write_inventory(tmp_path, *hosts, host("virtual"), aggregates=racks)


@pytest.fixture
def placement(inventory_file: Path) -> Iterator[EmbeddedPlacementFixture]:
    """A Placement; as in nova's, only the first node of a host is in aggregates."""
    first = {node_name(numbers[0]) for numbers in NODES.values()}
    with EmbeddedPlacementFixture() as placement:
        found = providers(read_inventory(inventory_file))
        seed(placement.client, [_without_aggregates(p, first) for p in found])
        yield placement


def _without_aggregates(provider: Provider, keeping: set[str]) -> Provider:
    if provider.uuid in keeping:
        return provider
    return dataclasses.replace(provider, aggregates=frozenset())


@pytest.fixture
def make(
    inventory_file: Path, placement: EmbeddedPlacementFixture
) -> Iterator[MakeScheduler]:
    """Make schedulers of one cloud, each with its own table."""
    made: list[Scheduler] = []

    def make(waiter: Any = None) -> Scheduler:
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(inventory_file), group="moorage")
        conf.set_override("levels", ["rack"], group="locality")
        made.append(build(conf, placement=placement.adapter, waiter=waiter))
        made[-1].start()
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


@pytest.fixture
def scheduler(make: MakeScheduler) -> Scheduler:
    return make()


def select(
    scheduler: Scheduler, uuids: Sequence[str] | None = None, **changes: Any
) -> list[list[Selection]]:
    uuids = uuids or new_uuids()
    spec = metal(len(uuids), instance_uuid=uuids[0], **changes)
    answer: Any = scheduler.select_destinations(
        CONTEXT, spec, uuids, return_objects=True, return_alternates=True
    )
    return list(answer)


def service_of(selection: Selection) -> str:
    return next(s for s, numbers in NODES.items() if _number(selection) in numbers)


def _number(selection: Selection) -> int:
    return uuid.UUID(selection.nodename).int - 1


def expect_whole_node(selection: Selection) -> None:
    _expect_node_of(selection, service_of(selection))


def _expect_node_of(selection: Selection, service: str) -> None:
    assert selection.nodename == selection.compute_node_uuid
    assert selection.service_host == service
    assert selection.limits.to_dict() == {}
    claimed = json.loads(selection.allocation_request)["allocations"]
    assert claimed == {selection.nodename: {"resources": {GOLD: 1}}}


def test_each_node_is_taken_once_and_the_next_request_is_refused(
    scheduler: Scheduler, placement: EmbeddedPlacementFixture
) -> None:
    taken: list[str] = []
    for _ in range(N_NODES):
        [[chosen, *alternates]] = select(scheduler)
        assert len(alternates) == min(2, N_NODES - len(taken) - 1)
        for each in (chosen, *alternates):
            expect_whole_node(each)
            assert each.nodename not in taken
        assert chosen.nodename not in {each.nodename for each in alternates}
        taken.append(chosen.nodename)
    with pytest.raises(NoValidHost) as refused:
        select(scheduler)
    assert refused.value.reason == f"Of {N_NODES + 1} hosts: 13 have no {GOLD} left."
    used = usages(placement.client, taken)
    assert used == {name: Counter({GOLD: 1}) for name in taken}
    assert len(taken) == len(used)


def test_instances_of_one_request_get_a_node_each(scheduler: Scheduler) -> None:
    found = select(scheduler, new_uuids(N_NODES - 2))
    chosen = {mine[0].nodename for mine in found}
    assert len(chosen) == len(found)
    for mine in found:
        list(map(expect_whole_node, mine))
        others = {each.nodename for each in mine[1:]}
        assert len(others) == 2
        assert not others & chosen
    with pytest.raises(NoValidHost):
        select(scheduler, new_uuids(3))
    assert len(select(scheduler, new_uuids(2))) == 2, "nothing is left claimed"


def test_flavor_of_virtual_machines_gets_no_node(scheduler: Scheduler) -> None:
    [[chosen, *alternates]] = select(
        scheduler, extra_specs={}, memory_mb=1024, vcpus=1, root_gb=10
    )
    assert (chosen.service_host, alternates) == ("virtual", [])


def test_trait_selects_the_node_that_has_it(scheduler: Scheduler) -> None:
    [[chosen, *alternates]] = select(scheduler, extra_specs=WITH_TRAIT)
    assert (_number(chosen), alternates) == (N_NODES - 1, [])
    with pytest.raises(NoValidHost) as refused:
        select(scheduler, extra_specs=WITH_TRAIT)
    assert refused.value.reason == (
        f"Of 13 hosts: 13 have no {GOLD} left, or lack a trait or an aggregate that is "
        "required."
    )


@pytest.mark.parametrize(
    "named",
    [
        pytest.param({"force_nodes": [node_name(5)]}, id="force_nodes"),
        pytest.param(
            {"force_hosts": ["ironic1"], "force_nodes": [node_name(5)]},
            id="force_hosts and force_nodes",
        ),
        pytest.param(
            {"requested_destination": Destination(host="ironic1", node=node_name(5))},
            id="requested_destination",
        ),
    ],
)
def test_named_node_is_the_only_one(
    scheduler: Scheduler, named: dict[str, Any]
) -> None:
    [[chosen, *alternates]] = select(scheduler, **named)
    expect_whole_node(chosen)
    assert (_number(chosen), alternates) == (5, [])
    with pytest.raises(NoValidHost):
        select(scheduler, **named)


@pytest.mark.parametrize(
    "named",
    [
        pytest.param({"force_hosts": ["ironic2"]}, id="force_hosts"),
        pytest.param(
            {"requested_destination": Destination(host="ironic2")},
            id="requested_destination",
        ),
    ],
)
def test_named_service_host_gives_any_of_its_nodes(
    scheduler: Scheduler, named: dict[str, Any]
) -> None:
    chosen = [select(scheduler, **named)[0][0] for _ in NODES["ironic2"]]
    assert {_number(each) for each in chosen} == {*NODES["ironic2"]}
    with pytest.raises(NoValidHost):
        select(scheduler, **named)


def test_rebuild_stays_on_its_node_and_claims_nothing(scheduler: Scheduler) -> None:
    uuids = new_uuids()
    [[chosen, *_]] = select(scheduler, uuids)
    [[again, *alternates]] = select(
        scheduler,
        uuids,
        scheduler_hints={"_nova_check_type": ["rebuild"]},
        requested_destination=Destination(
            host=chosen.service_host, node=chosen.nodename
        ),
    )
    assert again.nodename == chosen.nodename
    assert again.allocation_request == "null"
    assert not alternates


def _group(members: list[str], policy: str) -> InstanceGroup:
    return InstanceGroup(policy=policy, policies=[policy], members=members)


def test_server_groups_count_a_service_host_and_not_its_nodes(
    scheduler: Scheduler,
) -> None:
    members = new_uuids(3)
    group = _group(members, "anti-affinity")
    found = [
        service_of(select(scheduler, [each], instance_group=group)[0][0])
        for each in members[:2]
    ]
    assert sorted(found) == ["ironic1", "ironic2"]
    with pytest.raises(NoValidHost) as refused:
        select(scheduler, members[2:], instance_group=group)
    assert "as many members of the server group" in refused.value.reason


@pytest.mark.parametrize(
    ("policy", "n_services"), [("affinity", 1), ("anti-affinity", 2)]
)
def test_server_groups_hold_among_schedulers_that_do_not_know_of_each_other(
    make: MakeScheduler, policy: str, n_services: int
) -> None:
    members = new_uuids(2)
    group = _group(members, policy)
    found = [
        select(make(waiter=HandTime()), [each], instance_group=group)[0][0]
        for each in members
    ]
    assert len({each.nodename for each in found}) == 2
    assert len({service_of(each) for each in found}) == n_services


def test_rack_of_a_service_host_is_that_of_all_its_nodes(scheduler: Scheduler) -> None:
    hints = {"in_rack": ["r1"]}
    uuids = new_uuids(len(NODES["ironic2"]))
    found = select(scheduler, uuids, scheduler_hints=hints)
    assert {_number(mine[0]) for mine in found} == {*NODES["ironic2"]}
    with pytest.raises(NoValidHost):
        select(scheduler, scheduler_hints=hints)


def test_instance_built_on_another_node_of_the_host_stays_on_the_host(
    scheduler: Scheduler,
) -> None:
    [instance] = new_uuids()
    [[chosen, *_]] = select(scheduler, [instance], force_hosts=["ironic1"])
    other = node_name(next(n for n in NODES["ironic1"] if n != _number(chosen)))
    held = scheduler.placement.allocations(instance)
    body = {
        "allocations": {other: {"resources": {GOLD: 1}}},
        "project_id": held.project_id,
        "user_id": held.user_id,
        "consumer_generation": held.consumer_generation,
    }
    assert scheduler.placement.put_allocations(instance, body).is_done
    time_ = HandTime()
    time_.elapsed_s = time.monotonic()  # the table's clock, too
    reconciler = ClaimReconciler(
        scheduler.table,
        scheduler.placement,
        max_age_s=None,
        waiter=time_,
        spawner=ThreadSpawner(),
    )
    reconciler.reconcile()
    time_.pass_by(60)
    reconciler.reconcile()
    [row] = scheduler.table.batch([chosen.compute_node_uuid])
    assert row.num_instances == 0
    assert scheduler.table.instances.hosts_of(instance) == ("ironic1",)


def test_record_names_the_node(scheduler: Scheduler) -> None:
    [[chosen, *_]] = select(scheduler)
    [record] = scheduler.decisions.newest(1)
    [instance] = record.instances
    assert (instance.host, instance.node) == (chosen.service_host, chosen.nodename)
    assert f" on {chosen.service_host}/{chosen.nodename} (" in record.summary()


# -- hundreds of nodes -----------------------------------------------------------------

N_MANY = 200
N_SCHEDULERS = 4


def _write(placement: EmbeddedPlacementFixture, names: Sequence[str]) -> None:
    headers = {"OpenStack-API-Version": "placement 1.36"}
    placement.adapter.put(f"/resource_classes/{GOLD}", headers=headers)
    one = InventoryRecord(total=1, reserved=0, max_unit=1)
    records = [ProviderRecord(name, inventories={GOLD: one}) for name in names]

    def write() -> None:
        with Session(placement.placement.engine) as session, session.begin():
            write_providers(session, records)

    placement.placement.run(write)


@pytest.mark.deep
def test_hundreds_of_nodes_of_one_service_are_taken_once_each(tmp_path: Path) -> None:
    """Requests for ten nodes, and at the end for one each; four schedulers at once."""
    path = write_inventory(tmp_path, *map(node, range(N_MANY)))
    names = [node_name(number) for number in range(N_MANY)]
    with EmbeddedPlacementFixture() as placement, ExitStack() as stack:
        _write(placement, names)
        schedulers = []
        for _ in range(N_SCHEDULERS):
            conf = moorage_conf.load([], config_files=[])
            conf.set_override("inventory_file", str(path), group="moorage")
            schedulers.append(build(conf, placement=placement.adapter))
            schedulers[-1].start()
            stack.callback(schedulers[-1].stop)
        sizes = [10] * 18 + [1] * 20
        pool = stack.enter_context(ThreadPoolExecutor(N_SCHEDULERS))
        found = list(
            pool.map(
                lambda number, size: select(
                    schedulers[number % N_SCHEDULERS], new_uuids(size)
                ),
                *zip(*enumerate(sizes), strict=True),
            )
        )
        for scheduler in schedulers:
            with pytest.raises(NoValidHost) as refused:
                select(scheduler)
            # Some nodes may be named otherwise: others took them during the decision.
            expected_reason = rf"Of {N_MANY} hosts: [\d,]+ have no {GOLD} left[.,]"
            assert re.match(expected_reason, refused.value.reason)
        usage: Any = placement.client.read("/usages?project_id=project")
    for selections in found:
        chosen = {mine[0].nodename for mine in selections}
        for mine in selections:
            for each in mine:
                _expect_node_of(each, "ironic1")
            assert not {each.nodename for each in mine[1:]} & chosen
    taken = [mine[0].nodename for selections in found for mine in selections]
    assert sorted(taken) == names
    assert usage["usages"] == {GOLD: N_MANY}
