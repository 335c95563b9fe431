# SPDX-License-Identifier: Apache-2.0
"""Rules about places hold though schedulers know nothing of each other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import InstanceGroup, Selection
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.claims.peer_claims import ClaimState, PeerClaim
from moorage.scheduler.errors import NoValidHost, PlacementUnavailable
from moorage.scheduler.hosts import Consumption
from moorage.scheduler.placement.allocations.limits import (
    GROUP_MAX_READS,
    GROUP_MAX_ROUNDS,
    GROUP_PAUSE_S,
)
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory

from ....fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ....fixtures.faulty_placement import FaultKind, FaultyAdapter, always, writes
from ....fixtures.hand_time import HandTime
from ....fixtures.placement_servers import EmbeddedPlacementFixture

MakeScheduler = Callable[..., Scheduler]

N_RACKS = 8
A_RACK = 3
RACK_OF = {f"h{i}": f"r{i // A_RACK}" for i in range(N_RACKS * A_RACK)}


@pytest.fixture(scope="module")
def inventory_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hosts = [
        host(name, vcpus=64, local_gb=1000, memory_mb=65536, places={"rack": rack})
        for name, rack in RACK_OF.items()
    ]
    return write_inventory(tmp_path_factory.mktemp("cloud"), *hosts)


@pytest.fixture(scope="module")
def make(inventory_file: Path) -> Iterator[MakeScheduler]:
    """Make schedulers of one cloud, each with its own table, and one Placement."""
    made: list[Scheduler] = []
    with EmbeddedPlacementFixture() as placement:
        hosts = list(providers(read_inventory(inventory_file)))
        child = {"CUSTOM_FPGA": {"total": 2}, "CUSTOM_GPU": {"total": 1}}
        children = [
            Provider(uuid, f"{root.name}_fpga", child, parent_uuid=root.uuid)
            for uuid, root in zip(new_uuids(len(hosts)), hosts, strict=True)
        ]
        seed(placement.client, [*hosts, *children])

        def make(
            waiter: Any = None, wrap: Callable[[Any], Any] = lambda adapter: adapter
        ) -> Scheduler:
            conf = moorage_conf.load([], config_files=[])
            conf.set_override("inventory_file", str(inventory_file), group="moorage")
            conf.set_override("random_seed", 1, group="moorage")
            conf.set_override("levels", ["rack"], group="locality")
            adapter = wrap(placement.adapter)
            made.append(build(conf, placement=adapter, waiter=waiter))
            made[-1].start()
            return made[-1]

        yield make
        for scheduler in made:
            scheduler.stop()


def _group(members: list[str], policy: str = "soft-anti-affinity") -> InstanceGroup:
    uuid = members[0]  # any will do
    return InstanceGroup(uuid=uuid, policy=policy, policies=[policy], members=members)


def _racks(
    scheduler: Scheduler,
    uuids: list[str],
    hints: dict[str, list[str]],
    group: InstanceGroup | None = None,
    **more: Any,
) -> list[str]:
    spec = request(
        instance_group=group,
        num_instances=len(uuids),
        instance_uuid=uuids[0],
        scheduler_hints=hints,
        **more,
    )
    answer: Any = scheduler.select_destinations(
        CONTEXT, spec, uuids, return_objects=True, return_alternates=True
    )
    chosen: list[Selection] = [mine[0] for mine in answer]
    return [RACK_OF[str(each.service_host)] for each in chosen]


#: The extra specs of a flavor that uses nothing of a compute node.
NO_SIZES = {
    "resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"
}  # fmt: skip


@pytest.mark.parametrize(
    "extra_specs",
    [{}, {**NO_SIZES, "resources:CUSTOM_FPGA": "1"}],
    ids=["node", "child"],
)
def test_member_that_another_scheduler_placed_is_kept_away_from(
    make: MakeScheduler, extra_specs: dict[str, str]
) -> None:
    members = new_uuids(3)
    hints = {"max_server_per_rack": ["1"]}
    one, two = make(), make(waiter=HandTime())
    more = {"extra_specs": extra_specs}
    [first] = _racks(one, members[:1], hints, _group(members), **more)
    [second] = _racks(two, members[1:2], hints, _group(members), **more)
    assert first != second
    claims = two.decisions.newest()[0].claims
    assert [c.result for c in claims] == ["claimed", "released", "claimed"]
    assert claims[1].detail == (
        f"another instance claimed first: rack {first} has 1 of 1 members"
    )


def test_member_on_the_child_of_a_full_host_counts(make: MakeScheduler) -> None:
    members, hints = new_uuids(2), {"max_server_per_rack": ["1"]}
    specs = {**NO_SIZES, "resources:CUSTOM_GPU": "1"}
    one, two = make(), make(waiter=HandTime())
    [rack] = _racks(one, members[:1], hints, _group(members), extra_specs=specs)
    elsewhere = [name for name, other in RACK_OF.items() if other != rack]
    with pytest.raises(NoValidHost):
        _racks(
            two, members[1:], hints, _group(members),
            extra_specs=specs, ignore_hosts=elsewhere,
        )  # fmt: skip
    assert two.placement.allocations(members[1]).resources == {}


def _announce(
    scheduler: Scheduler, uuid: str, host_name: str, state: ClaimState | None
) -> None:
    """Have a scheduler hear that another one reserved or was granted a host."""
    if state is None:
        return
    claim = PeerClaim(
        node_uuid=str(scheduler.table.nodes_of(host_name)[0]),
        instance_uuid=uuid,
        claimed_at=1.0,
        consumption=Consumption(memory_mb=1024, disk_mb=10240, vcpus=1),
        resources={},
        state=state,
    )
    scheduler.apply_peer_claims([claim.to_wire()])


def _host_in_another_rack(rack: str) -> str:
    return next(name for name, other in RACK_OF.items() if other != rack)


#: What a scheduler hears of a member that is elsewhere by now; None: nothing.
HEARD = [ClaimState.RESERVED, ClaimState.GRANTED, None]


@pytest.mark.deep
@pytest.mark.parametrize("state", HEARD)
@pytest.mark.parametrize("n_instances", [1, 2])
@pytest.mark.parametrize("hint", ["max", "different", "different group", "spread"])
def test_claim_that_is_only_announced_does_not_hide_where_a_member_is(
    make: MakeScheduler, hint: str, n_instances: int, state: ClaimState | None
) -> None:
    members = new_uuids(1 + n_instances)
    one, two = make(), make(waiter=HandTime())
    group = None if hint == "different" else _group(members)
    hints = {
        "max": {"max_server_per_rack": ["1"]},
        "different": {"different_rack": members[:1]},
        "different group": {"different_rack": [members[0]]},  # the group's UUID
        "spread": {"spread_level": ["rack"]},
    }[hint]
    [first] = _racks(one, members[:1], {})
    _announce(two, members[0], _host_in_another_rack(first), state)
    others = _racks(two, members[1:], hints, group)
    assert first not in others


@pytest.mark.parametrize(
    ("is_group", "state"),
    [*((True, state) for state in HEARD), *((False, state) for state in HEARD[:2])],
)
@pytest.mark.parametrize("n_instances", [1, 2])
def test_member_is_followed_to_where_it_is_and_not_to_where_it_was_announced(
    make: MakeScheduler, n_instances: int, state: ClaimState | None, is_group: bool
) -> None:
    members = new_uuids(1 + n_instances)
    one, two = make(), make(waiter=HandTime())
    [first] = _racks(one, members[:1], {})
    _announce(two, members[0], _host_in_another_rack(first), state)
    group = _group(members) if is_group else None
    assert set(_racks(two, members[1:], {"same_rack": members[:1]}, group)) == {first}


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "reported member"])
def test_earlier_claim_that_the_table_has_still_is_not_followed(
    make: MakeScheduler, is_own: bool
) -> None:
    """It is for an instance of the request, or for a member that its host reports."""
    members = new_uuids(3)
    group = _group(members)
    one, two = make(), make(waiter=HandTime())
    [first] = _racks(one, members[:1], {})
    if not is_own:
        [node] = one.placement.allocations(members[0]).resources
        _announce(two, members[0], str(two.table.host_of(node)), ClaimState.GRANTED)
        two.table.claims.mark_reported(node, members[:1])
    claimed = members[2] if is_own else members[0]
    _announce(two, claimed, _host_in_another_rack(first), ClaimState.GRANTED)
    racks = _racks(two, members[1:], {"same_rack": [group.uuid]}, group)
    assert racks == [first, first]


@pytest.mark.deep
@pytest.mark.parametrize("n_instances", [1, 2])
@pytest.mark.parametrize("position", ["lowest", "highest"])
def test_member_of_a_group_that_is_split_over_racks_is_refused_soon(
    make: MakeScheduler, position: str, n_instances: int
) -> None:
    members = sorted(new_uuids(4 + n_instances))
    new = members[:n_instances] if position == "lowest" else members[-n_instances:]
    group = _group(members)
    for number, uuid in enumerate(sorted({*members} - {*new})):
        _racks(make(), [uuid], {"in_rack": [f"r{number % 2}"]})
    time, adapters = HandTime(), list[FaultyAdapter]()

    def wrap(adapter: Any) -> FaultyAdapter:
        adapters.append(FaultyAdapter(adapter))
        return adapters[-1]

    last = make(waiter=time, wrap=wrap)
    began_s, n_before = time.elapsed_s, len(adapters[0].seen(always))
    with pytest.raises(NoValidHost):
        _racks(last, new, {"same_rack": [group.uuid]}, group)
    assert time.elapsed_s - began_s < GROUP_MAX_ROUNDS * GROUP_MAX_READS * GROUP_PAUSE_S
    assert len(adapters[0].seen(always)) - n_before < 150 * n_instances
    for uuid in new:
        assert last.placement.allocations(uuid).resources == {}


def test_nothing_follows_an_instance_that_was_announced_and_is_nowhere(
    make: MakeScheduler,
) -> None:
    uuid, other = new_uuids(2)
    scheduler = make(waiter=HandTime())
    _announce(scheduler, other, "h1", ClaimState.RESERVED)
    with pytest.raises(NoValidHost):
        _racks(scheduler, [uuid], {"same_rack": [other]})
    assert scheduler.placement.allocations(uuid).resources == {}


@pytest.mark.parametrize(
    ("n_refused", "error"), [(7, None), (100, PlacementUnavailable)], ids=str
)
def test_release_that_other_claims_refuse_is_repeated(
    make: MakeScheduler, n_refused: int, error: type[Exception] | None
) -> None:
    members = new_uuids(3)
    hints = {"max_server_per_rack": ["1"]}
    adapters: list[FaultyAdapter] = []

    def wrap(adapter: Any) -> FaultyAdapter:
        adapters.append(FaultyAdapter(adapter))
        return adapters[-1]

    one, two = make(), make(waiter=HandTime(), wrap=wrap)
    [first] = _racks(one, members[:1], hints, _group(members))

    def refuse_next_writes() -> None:
        adapters[0].fault(
            FaultKind.PROVIDER_CONFLICT,
            lambda call: call.allocations_of(members[1]) is not None,
            times=n_refused,
        )

    adapters[0].after(writes(members[1]), refuse_next_writes)
    if error is None:
        assert _racks(two, members[1:2], hints, _group(members)) != [first]
    else:
        with pytest.raises(error, match="was not released"):
            _racks(two, members[1:2], hints, _group(members))


class _EventfulTime(HandTime):
    """Time that calls a function at one of the pauses."""

    def __init__(self, number: int, call: Callable[[], object]) -> None:
        super().__init__()
        self._left = number
        self._call = call

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._left -= 1
        if not self._left:
            self._call()


def test_member_waits_while_others_take_up_all_racks(make: MakeScheduler) -> None:
    *others, last = sorted(new_uuids(N_RACKS + 1))
    group, hints = _group([*others, last]), {"max_server_per_rack": ["1"]}
    one = make()
    racks = {each: _racks(one, [each], hints, group)[0] for each in others}
    leaver = others[3]
    time = _EventfulTime(4, lambda: one.placement.delete_allocations(leaver))
    assert _racks(make(waiter=time), [last], hints, group) == [racks[leaver]]


def test_member_for_which_no_rack_is_left_is_refused(make: MakeScheduler) -> None:
    *others, last = sorted(new_uuids(N_RACKS + 1))
    group, hints = _group([*others, last]), {"max_server_per_rack": ["1"]}
    one, two = make(), make(waiter=HandTime())
    for each in others:
        _racks(one, [each], hints, group)
    with pytest.raises(NoValidHost):
        _racks(two, [last], hints, group)
    assert not two.placement.allocations(last).resources


@pytest.mark.deep
@pytest.mark.parametrize(
    ("hints", "policy"),
    [
        ({"group_level": ["rack"]}, "anti-affinity"),
        ({"spread_level": ["rack"]}, "soft-affinity"),
        ({"same_rack": None}, "soft-affinity"),
    ],
    ids=["level", "spread", "same"],
)
def test_eight_schedulers_at_once_break_no_rule(
    make: MakeScheduler, hints: dict[str, Any], policy: str
) -> None:
    members = new_uuids(8)
    group = _group(members, policy)
    hints = {name: values or [group.uuid] for name, values in hints.items()}
    schedulers = [make() for _ in members]
    together = threading.Barrier(len(members))

    def select(scheduler: Scheduler, uuid: str) -> str:
        together.wait()
        return _racks(scheduler, [uuid], hints, group)[0]

    with ThreadPoolExecutor(len(members)) as pool:
        found = list(pool.map(select, schedulers, members))
    assert len(set(found)) == (1 if "same_rack" in hints else len(members))
    for scheduler, uuid, rack in zip(schedulers, members, found, strict=True):
        [node] = scheduler.placement.allocations(uuid).resources
        assert RACK_OF[str(scheduler.table.host_of(node))] == rack


def test_instance_of_a_hint_that_another_scheduler_placed_is_kept_away_from(
    make: MakeScheduler,
) -> None:
    one, two = make(), make(waiter=HandTime())
    other, mine = new_uuids(2)
    [first] = _racks(one, [other], {})
    [second] = _racks(two, [mine], {"different_rack": [other]})
    assert first != second


def test_instances_of_one_request_return_to_a_rack_that_was_ahead(
    make: MakeScheduler,
) -> None:
    hints = {"spread_level": ["rack"]}
    found = Counter(_racks(make(), new_uuids(2 * N_RACKS), hints))
    assert set(found.values()) == {2}
    few = Counter(_racks(make(), new_uuids(5), {"max_server_per_rack": ["2"]}))
    assert max(few.values()) <= 2


def test_several_of_one_request_keep_away_from_members_of_another_scheduler(
    make: MakeScheduler,
) -> None:
    members = new_uuids(6)
    group = _group(members, "anti-affinity")
    hints = {"group_level": ["rack"]}
    one, two = make(), make(waiter=HandTime())
    found = _racks(one, members[:3], hints, group)
    found += _racks(two, members[3:], hints, group)
    assert len(set(found)) == len(members)


def test_named_racks_that_are_full_are_refused(
    make: MakeScheduler,
) -> None:
    scheduler = make()
    hints = {"in_rack": ["r2"], "max_server_per_rack": ["2"]}
    assert _racks(scheduler, new_uuids(2), hints) == ["r2", "r2"]
    with pytest.raises(NoValidHost) as caught:
        _racks(scheduler, new_uuids(3), hints)
    assert "(the place breaks in_rack or max_server_per_rack)" in str(caught.value)
