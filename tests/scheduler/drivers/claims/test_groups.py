# SPDX-License-Identifier: Apache-2.0
"""Server groups keep their policy though schedulers know nothing of each other."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from moorage.filters.server_group import ServerGroupAffinityFilter
from moorage.objects import Destination, InstanceGroup, Selection
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.claims.groups import GroupCheck
from moorage.scheduler.drivers.prepared import Caller, PreparedRequest
from moorage.scheduler.drivers.record import MEMBER_CLAIMED_FIRST, DecisionRecord
from moorage.scheduler.errors import NoValidHost, PlacementError
from moorage.scheduler.placement.allocations.claims import ClaimAnswer, ClaimResult
from moorage.scheduler.placement.allocations.limits import (
    GROUP_MAX_READS,
    GROUP_MAX_ROUNDS,
    GROUP_PAUSE_S,
)
from moorage.scheduler.placement.answers import WriteAnswer
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.request import Request
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.waiting import Waiter

from ....fixtures.clouds import (
    CONTEXT,
    host,
    new_uuids,
    offer,
    request,
    write_inventory,
)
from ....fixtures.faulty_placement import FaultyAdapter, always
from ....fixtures.hand_time import HandTime
from ....fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    adapter_to,
)
from ....fixtures.waiting import wait_until

MakeScheduler = Callable[..., Scheduler]

N_HOSTS = 8
WITHIN_S = 60.0


@pytest.fixture
def inventory_file(tmp_path: Path) -> Path:
    return write_inventory(tmp_path, *(host(f"h{i}") for i in range(N_HOSTS)))


@pytest.fixture
def placement(inventory_file: Path) -> Iterator[EmbeddedPlacementFixture]:
    with EmbeddedPlacementFixture() as placement:
        seed(placement.client, providers(read_inventory(inventory_file)))
        yield placement


@pytest.fixture
def make(
    inventory_file: Path, placement: EmbeddedPlacementFixture
) -> Iterator[MakeScheduler]:
    """Make schedulers of one cloud, each with its own table, and one Placement."""
    made: list[Scheduler] = []

    def make(
        tie_seed: int,
        adapter: Any = None,
        waiter: Waiter | None = None,
        **options: Any,
    ) -> Scheduler:
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(inventory_file), group="moorage")
        conf.set_override("random_seed", tie_seed, group="moorage")
        for name, value in options.items():
            conf.set_override(name, value, group="filter_scheduler")
        made.append(build(conf, placement=adapter or placement.adapter, waiter=waiter))
        made[-1].start()
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


def _group(members: list[str], policy: str, **more: Any) -> InstanceGroup:
    return InstanceGroup(policy=policy, policies=[policy], members=members, **more)


def _selected(
    scheduler: Scheduler, uuids: list[str], group: InstanceGroup | None, **more: Any
) -> list[Selection]:
    spec = request(
        instance_group=group,
        num_instances=len(uuids),
        instance_uuid=uuids[0],
        **more,
    )
    answer: Any = scheduler.select_destinations(
        CONTEXT, spec, uuids, return_objects=True, return_alternates=True
    )
    return [mine[0] for mine in answer]


def _hosts(
    scheduler: Scheduler, uuids: list[str], group: InstanceGroup
) -> list[str | None]:
    return [each.service_host for each in _selected(scheduler, uuids, group)]


def test_member_that_another_scheduler_placed_is_kept_away_from(
    make: MakeScheduler,
) -> None:
    members = new_uuids(4)
    schedulers = [make(1) for _ in members]
    found = [
        _hosts(each, [uuid], _group(members, "anti-affinity"))[0]
        for each, uuid in zip(schedulers, members, strict=True)
    ]
    assert len(set(found)) == len(members)
    released = schedulers[-1].decisions.newest()[0].claims
    assert [c.result for c in released][1::2] == ["released"] * 3, (
        "the best host of all four is the same"
    )


def test_claim_on_the_host_of_another_member_is_released(make: MakeScheduler) -> None:
    members = new_uuids(2)
    first, second = make(1), make(1)
    [one] = _selected(first, members[:1], _group(members, "anti-affinity"))
    [two] = _selected(second, members[1:], _group(members, "anti-affinity"))
    held = second.placement.allocations(members[1]).resources
    assert list(held) == [two.compute_node_uuid]
    assert one.compute_node_uuid != two.compute_node_uuid


@pytest.mark.parametrize(("rule", "n_most"), [("2", 2), ("3", 3)])
def test_max_server_per_host_allows_some_to_share_a_host(
    make: MakeScheduler, rule: str, n_most: int
) -> None:
    members = new_uuids(5)
    found = Counter(
        _hosts(
            make(1),
            [uuid],
            _group(members, "anti-affinity", rules={"max_server_per_host": rule}),
        )[0]
        for uuid in members
    )
    assert max(found.values()) == n_most


def test_several_of_one_request_avoid_hosts_of_other_members(
    make: MakeScheduler,
) -> None:
    members = new_uuids(6)
    group = _group(members, "anti-affinity")
    one, two = (make(1, waiter=HandTime()) for _ in range(2))
    found = _hosts(one, members[:3], group) + _hosts(two, members[3:], group)
    assert len(set(found)) == 6


def test_group_that_has_no_host_left_is_refused_and_holds_nothing(
    make: MakeScheduler,
) -> None:
    members = new_uuids(N_HOSTS + 1)
    group = _group(members, "anti-affinity")
    for uuid in members[:-1]:
        _hosts(make(1, waiter=HandTime()), [uuid], group)
    last = make(1, waiter=HandTime())
    with pytest.raises(NoValidHost):
        _hosts(last, members[-1:], group)
    assert last.placement.allocations(members[-1]).resources == {}


def test_affinity_follows_a_member_that_another_scheduler_placed(
    make: MakeScheduler,
) -> None:
    members = new_uuids(6)
    found = {
        _hosts(make(number), [uuid], _group(members, "affinity"))[0]
        for number, uuid in enumerate(members)
    }
    assert len(found) == 1


@pytest.mark.parametrize("n_instances", [1, 2])
@pytest.mark.parametrize("position", ["lowest", "highest"])
def test_member_of_an_affinity_group_that_is_split_is_refused_soon(
    make: MakeScheduler,
    placement: EmbeddedPlacementFixture,
    position: str,
    n_instances: int,
) -> None:
    members = sorted(new_uuids(4 + n_instances))
    new = members[:n_instances] if position == "lowest" else members[-n_instances:]
    elsewhere = make(2)
    for number, uuid in enumerate(sorted({*members} - {*new})):
        _selected(elsewhere, [uuid], None, force_hosts=[f"h{number % 2}"])
    time, adapter = HandTime(), FaultyAdapter(placement.adapter)
    last = make(1, adapter=adapter, waiter=time)
    began_s, n_before = time.elapsed_s, len(adapter.seen(always))
    with pytest.raises(NoValidHost):
        _hosts(last, new, _group(members, "affinity"))
    assert time.elapsed_s - began_s < GROUP_MAX_ROUNDS * GROUP_MAX_READS * GROUP_PAUSE_S
    assert len(adapter.seen(always)) - n_before < 150 * n_instances
    for uuid in new:
        assert placement.client.allocations(uuid).resources == {}


def test_member_of_an_affinity_group_waits_for_one_that_leaves(
    make: MakeScheduler, placement: EmbeddedPlacementFixture
) -> None:
    *members, last = sorted(new_uuids(3))
    elsewhere = make(2)
    for number, uuid in enumerate(members):
        _selected(elsewhere, [uuid], None, force_hosts=[f"h{number}"])

    class Leaving(HandTime):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.elapsed_s >= began_s + 2.5:
                placement.client.delete_allocations(members[0])

    time = Leaving()
    began_s = time.elapsed_s
    scheduler = make(1, waiter=time)
    assert _hosts(scheduler, [last], _group([*members, last], "affinity")) == ["h1"]


@pytest.mark.parametrize("is_forced", [True, False])
def test_policy_without_its_filter_is_not_enforced(
    make: MakeScheduler, is_forced: bool
) -> None:
    members = new_uuids(2)
    group = _group(members, "anti-affinity")
    [one] = _selected(make(1), members[:1], group)
    options: dict[str, Any] = {} if is_forced else {"enabled_filters": []}
    forced = [one.service_host] if is_forced else None
    [two] = _selected(make(1, **options), members[1:], group, force_hosts=forced)
    assert two.service_host == one.service_host


def test_soft_policies_are_not_enforced(make: MakeScheduler) -> None:
    members = new_uuids(2)
    group = _group(members, "soft-anti-affinity")
    assert len({_hosts(make(1), [uuid], group)[0] for uuid in members}) == 1


def test_members_known_to_the_filters_are_no_violation(
    make: MakeScheduler,
) -> None:
    """A resize in place, while an operator moves another member."""
    resized, other = members = new_uuids(2)
    scheduler = make(1)
    group = _group(members, "anti-affinity")
    [held] = _selected(scheduler, [resized], group)
    there = Destination(host=held.service_host)
    scheduler.table.claims.mark_reported(held.compute_node_uuid, [resized])
    _selected(scheduler, [other], None, force_hosts=[held.service_host])
    scheduler.placement.delete_allocations(resized)  # it goes to the migration
    [again] = _selected(scheduler, [resized], group, requested_destination=there)
    assert again.service_host == held.service_host


def test_claim_of_a_lost_answer_does_not_open_its_host(make: MakeScheduler) -> None:
    """Its allocation was deleted, and its scheduler still counts it."""
    retried, other = members = new_uuids(2)
    scheduler = make(1)
    group = _group(members, "anti-affinity")
    [lost] = _selected(scheduler, [retried], group)
    scheduler.placement.delete_allocations(retried)
    _selected(scheduler, [other], None, force_hosts=[lost.service_host])
    there = Destination(host=lost.service_host)
    with pytest.raises(NoValidHost, match="as anti-affinity allows"):
        _selected(scheduler, [retried], group, requested_destination=there)
    [again] = _selected(scheduler, [retried], group)
    assert again.service_host != lost.service_host


def test_claim_that_was_taken_over_and_may_not_stay_is_in_doubt(
    make: MakeScheduler,
) -> None:
    """The earlier request leaves it to this one, and may have been answered."""
    other, claimed_before = members = sorted(new_uuids(2))  # the last one has to leave
    first, second = make(1), make(1)
    [found] = _selected(first, [claimed_before], None)
    _selected(first, [other], None, force_hosts=[found.service_host])
    refused = pytest.raises(PlacementError, match="what an earlier request claimed")
    with second.journal.track_answer() as answer:
        with refused:
            _selected(second, [claimed_before], _group(members, "anti-affinity"))
        answer.mark_sending()  # the error
    assert (first.status.n_orphans, second.status.n_orphans) == (0, 1)
    assert second.placement.allocations(claimed_before).resources


@pytest.mark.parametrize("policy", ["anti-affinity", "affinity"])
def test_members_that_come_at_the_same_time(make: MakeScheduler, policy: str) -> None:
    members = new_uuids(6)
    schedulers = [make(1) for _ in members]
    together = threading.Barrier(len(members))

    def select(scheduler: Scheduler, uuid: str) -> str | None:
        together.wait()
        return _hosts(scheduler, [uuid], _group(members, policy))[0]

    with ThreadPoolExecutor(len(members)) as pool:
        found = list(pool.map(select, schedulers, members))
    assert len(set(found)) == (len(members) if policy == "anti-affinity" else 1)
    for scheduler, uuid, name in zip(schedulers, members, found, strict=True):
        [node] = scheduler.placement.allocations(uuid).resources
        assert scheduler.table.nodes_of(name) == (node,)


class Away:
    """A Placement whose answer does not list a provider's consumers."""

    def __init__(self, app: Any, *, takes_writes: bool) -> None:
        self._app = app
        self._takes_writes = takes_writes
        self.is_away = True
        self._has_failed = False

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path, verb = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        is_look = path.startswith("/resource_providers/") and verb == "GET"
        is_refused = is_look or (self._has_failed and not self._takes_writes)
        if not (self.is_away and is_refused):
            return self._app(environ, start_response)
        self._has_failed = True
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"away"]


@pytest.mark.parametrize("takes_writes", [True, False])
def test_claim_is_released_where_the_check_cannot_be_made(
    make: MakeScheduler, placement: EmbeddedPlacementFixture, takes_writes: bool
) -> None:
    members = new_uuids(2)
    held = functools.partial(placement.client.allocations, members[0])
    away = Away(placement.placement.wsgi_app, takes_writes=takes_writes)
    with MisbehavingServer(away) as server:
        scheduler = make(1, adapter=adapter_to(server.url))
        with pytest.raises(PlacementError):
            _selected(scheduler, members[:1], _group(members, "anti-affinity"))
        if not takes_writes:
            assert held().resources
            assert scheduler.status.n_orphans == 1
        away.is_away = False
        wait_until(lambda: not held().resources)


def test_shared_storage_does_not_make_two_hosts_one(make: MakeScheduler) -> None:
    """Both have a share of the same disks; Placement lists these with their hosts."""
    members = new_uuids(2)
    scheduler = make(1)
    client = scheduler.placement
    disks = str(uuid4())
    inventories = {"DISK_GB": {"total": 100}}
    seed(client, [Provider(disks, "disks", inventories)])
    here, there = sorted(scheduler.table.batch().uuid)[:2]
    for uuid, node in zip(members, (here, there), strict=True):
        body = {
            "allocations": {
                node: {"resources": {"VCPU": 1}},
                disks: {"resources": {"DISK_GB": 1}},
            },
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
        }
        assert client.put_allocations(uuid, body).is_done
    late = max(members)
    node, other = (there, here) if late == members[1] else (here, there)
    spec = request(instance_group=_group(members, "affinity"))
    prepared = PreparedRequest(
        dataclasses.replace(
            scheduler.parts,
            filters=[ServerGroupAffinityFilter(scheduler.conf)],
            waiter=HandTime(),
        ),
        Caller(),
        Request.of(spec),
        [late],
        DecisionRecord(None, (late,), 1, 0.0),
        n_alternates=0,
    )
    amounts = {node: {"VCPU": 1}, disks: {"DISK_GB": 1}}
    granted = {"allocations": {u: {"resources": r} for u, r in amounts.items()}}
    summaries = {
        u: {"root_provider_uuid": u, "resources": {n: {"capacity": 9, "used": 0}}}
        for u, [n] in amounts.items()
    }
    group = prepared.request.server_group
    assert group is not None
    check = GroupCheck(
        prepared,
        offer({"allocation_requests": [granted], "provider_summaries": summaries}),
        group,
    )
    hosts = scheduler.table.batch([node, other])
    on_node, on_other = (
        prepared.assign(late, hosts, int(hosts.matches("uuid", [each]).argmax()))
        for each in (node, other)
    )
    on_node = dataclasses.replace(on_node, candidate=0)
    claimed = ClaimAnswer(ClaimResult.CLAIMED, 1, WriteAnswer(204))
    refusal = check.after(on_node, claimed, hosts)
    assert refusal is not None
    assert refusal.details == [MEMBER_CLAIMED_FIRST]
    assert check.may_try(on_other)
    assert not check.may_try(on_node)


@pytest.mark.parametrize(
    ("policy", "n_hosts", "total"), [("anti-affinity", 4, 1), ("affinity", 1, 2)]
)
def test_members_that_use_child_providers_only_keep_the_policy(
    make: MakeScheduler, placement: EmbeddedPlacementFixture, inventory_file: Path,
    policy: str, n_hosts: int, total: int,
) -> None:  # fmt: skip
    seed(placement.client, [
        Provider(
            str(uuid4()), f"{root.name}-{number}", {"CUSTOM_FPGA": {"total": total}},
            parent_uuid=root.uuid,
        )
        for root in providers(read_inventory(inventory_file)) for number in range(2)
    ])  # fmt: skip
    specs = dict.fromkeys(["resources:VCPU", "resources:MEMORY_MB"], "0")
    specs |= {"resources:DISK_GB": "0", "resources:CUSTOM_FPGA": "1"}
    members = new_uuids(4)
    found = set()
    for member in members:
        group = _group(members, policy)
        [selected] = _selected(make(1), [member], group, extra_specs=specs)
        held = placement.client.allocations(member).resources
        assert selected.compute_node_uuid not in held
        found.add(selected.service_host)
    assert len(found) == n_hosts
