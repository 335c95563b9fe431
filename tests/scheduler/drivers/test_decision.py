# SPDX-License-Identifier: Apache-2.0
"""A decision on a real Placement: what is chosen, claimed, and left behind."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_messaging import ExpectedException

from moorage.objects import CellMapping, Destination, InstanceGroup, Selection
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.record import Outcome
from moorage.scheduler.errors import (
    AllocationUpdateFailed,
    InvalidRequest,
    NoValidHost,
    PlacementUnavailable,
    PluginError,
    SchedulerError,
)
from moorage.scheduler.placement.adapter import AnswerLost
from moorage.scheduler.placement.allocations.limits import MAX_CONTENDED
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.file import FileSource

from ...fixtures.allocations import claim_one, request_of
from ...fixtures.clouds import (
    CONTEXT,
    claimed,
    host,
    new_uuids,
    request,
    usages,
    write_inventory,
)
from ...fixtures.faulty_cloud import InformedSource
from ...fixtures.hand_time import HandTime
from ...fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ...fixtures.waiting import wait_until

THREE = (host("h1"), host("h2"), host("h3", cell="cell2"))

MakeScheduler = Callable[..., Scheduler]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeScheduler]:
    """Make a started scheduler of hosts and options ``group__name=value``."""
    made: list[Scheduler] = []

    def make(*hosts: dict[str, Any], aggregates: Any = (), **options: Any) -> Scheduler:
        path = write_inventory(tmp_path, *hosts, aggregates=list(aggregates))
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(path), group="moorage")
        conf.set_override("random_seed", options.pop("seed", 1), group="moorage")
        source = options.pop("source", None)
        for option, value in options.items():
            group, _, name = option.partition("__")
            conf.set_override(name, value, group=group)
        made.append(build(conf, source=source))
        made[-1].start()
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


def _select(
    scheduler: Scheduler, spec: Any = None, uuids: Any = None, **more: Any
) -> list[list[Selection]]:
    arguments = {"return_objects": True, "return_alternates": True, **more}
    answer: Any = scheduler.select_destinations(
        CONTEXT, spec or request(), new_uuids() if uuids is None else uuids, **arguments
    )
    return answer


def _hosts(selections: list[list[Selection]]) -> list[list[str]]:
    return [[each.service_host for each in mine] for mine in selections]


def _nothing_is_held(scheduler: Scheduler) -> bool:
    nodes = list(scheduler.table.batch().uuid)
    return all(not used for used in usages(scheduler.placement, nodes).values())


# -- who is chosen -----------------------------------------------------------------


def test_what_is_answered_is_claimed_and_consumed(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    [instance] = new_uuids()
    [[chosen, *_]] = _select(scheduler, request(vcpus=2), [instance])
    held = scheduler.placement.allocations(instance)
    assert held.resources == claimed(chosen)
    assert (held.project_id, held.user_id) == ("project", "user")
    [row] = scheduler.table.batch([chosen.compute_node_uuid])
    assert (row.vcpus_used, row.free_ram_mb, row.num_instances) == (2, 15360, 1)
    assert instance in row.instances


def test_alternates_are_of_the_cell_and_never_a_chosen_host(
    make: MakeScheduler,
) -> None:
    many = [host(f"a{i}") for i in range(6)] + [host("b", cell="cell2", memory_mb=9)]
    scheduler = make(*many, scheduler__max_attempts=4)
    selections = _select(scheduler, request(num_instances=2), new_uuids(2))
    chosen = {mine[0].service_host for mine in selections}
    for mine in selections:
        alternates = [each.service_host for each in mine[1:]]
        assert len(alternates) == 3
        assert len(set(alternates)) == 3
        assert not chosen & set(alternates)
        assert {each.cell_uuid for each in mine} == {mine[0].cell_uuid}


@pytest.mark.parametrize(
    ("max_attempts", "return_alternates", "n_alternates"),
    [(1, True, 0), (2, True, 1), (9, True, 1), (9, False, 0)],
)
def test_max_attempts_limits_alternates(
    make: MakeScheduler, max_attempts: int, return_alternates: bool, n_alternates: int
) -> None:
    scheduler = make(*THREE[:2], scheduler__max_attempts=max_attempts)
    [mine] = _select(scheduler, return_alternates=return_alternates)
    assert len(mine) == 1 + n_alternates


def test_best_host_is_the_one_with_most_room(make: MakeScheduler) -> None:
    scheduler = make(*THREE[:2], host("big", memory_mb=65536, vcpus=64, local_gb=900))
    assert _hosts(_select(scheduler))[0][0] == "big"


@pytest.mark.deep
@pytest.mark.parametrize("subset_size", [1, 3])
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_same_seed_gives_the_same_answers(
    make: MakeScheduler, subset_size: int, is_shuffled: bool
) -> None:
    options = {
        "filter_scheduler__host_subset_size": subset_size,
        "filter_scheduler__shuffle_best_same_weighed_hosts": is_shuffled,
    }

    def answers(seed: int) -> list[list[list[str]]]:
        scheduler = make(*(host(f"h{i}") for i in range(8)), seed=seed, **options)
        try:
            return [_hosts(_select(scheduler)) for _ in range(4)]
        finally:
            scheduler.stop()

    first = answers(7)
    assert answers(7) == first
    assert any(answers(seed) != first for seed in (8, 9, 10))


@pytest.mark.parametrize(
    ("changes", "hosts"),
    [
        pytest.param({"ignore_hosts": ["H1", "h2"]}, {"h3"}, id="ignored"),
        pytest.param({"force_hosts": ["H2"], "_": ""}, set(), id="forced, other case"),
        pytest.param({"force_hosts": ["h2"]}, {"h2"}, id="forced host"),
        pytest.param({"force_nodes": ["h3"]}, {"h3"}, id="forced node"),
        pytest.param({"force_hosts": ["h1"], "ignore_hosts": ["h1"]}, set(), id="both"),
        pytest.param(
            {"requested_destination": Destination(host="h3")}, {"h3"}, id="destination"
        ),
        pytest.param(
            {"requested_destination": Destination(host="h9")}, set(), id="unknown"
        ),
        pytest.param({"availability_zone": "east"}, {"h2"}, id="zone"),
    ],
)
def test_request_names_hosts(
    make: MakeScheduler, changes: dict[str, Any], hosts: set[str]
) -> None:
    changes.pop("_", None)
    zone = {"name": "z", "metadata": {"availability_zone": "east"}, "hosts": ["h2"]}
    scheduler = make(*THREE, aggregates=[zone])
    if not hosts:
        with pytest.raises(NoValidHost):
            _select(scheduler, request(**changes))
        assert _nothing_is_held(scheduler)
        return
    chosen = {_hosts(_select(scheduler, request(**changes)))[0][0] for _ in range(4)}
    assert chosen <= hosts


def test_requested_cell_keeps_to_its_hosts(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    cell = str(scheduler.table.batch().cell_uuid[2])
    destination = Destination(cell=CellMapping(uuid=cell))
    for _ in range(3):
        spec = request(requested_destination=destination)
        assert _hosts(_select(scheduler, spec)) == [["h3"]]


def test_forced_host_needs_no_filter_but_room(make: MakeScheduler) -> None:
    scheduler = make(host("h1", forced_down=True), host("h2"))
    assert _hosts(_select(scheduler, request(force_hosts=["h1"])))[0][0] == "h1"
    with pytest.raises(NoValidHost):
        _select(scheduler, request(vcpus=8, force_hosts=["h1"]))


def test_unknown_forced_host_is_reported_in_novas_words(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    with pytest.raises(NoValidHost, match="No such host - host: h9 node: None "):
        _select(scheduler, request(force_hosts=["h9"]))


def test_selection_names_the_zone(make: MakeScheduler) -> None:
    zone = {"name": "z", "metadata": {"availability_zone": "east"}, "hosts": ["h2"]}
    scheduler = make(*THREE, aggregates=[zone])
    [[east, *_]] = _select(scheduler, request(force_hosts=["h2"]))
    [[none, *_]] = _select(scheduler, request(force_hosts=["h1"]))
    assert (east.availability_zone, none.availability_zone) == ("east", "nova")


# -- several instances -------------------------------------------------------------


def test_instances_of_a_request_share_what_room_there_is(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    uuids = new_uuids(6)
    selections = _select(scheduler, request(vcpus=4, num_instances=6), uuids)
    chosen = [mine[0].service_host for mine in selections]
    assert sorted(chosen) == ["h1", "h1", "h2", "h2", "h3", "h3"]
    [record] = scheduler.decisions.newest(1)
    assert [c.result for c in record.claims] == ["claimed"], "one POST for all"


def test_all_or_nothing(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    with pytest.raises(NoValidHost, match="Of 3 hosts: 3 are full of instances"):
        _select(scheduler, request(vcpus=4, num_instances=7), new_uuids(7))
    assert _nothing_is_held(scheduler)
    assert scheduler.table.batch().vcpus_used.tolist() == [0, 0, 0]


def test_uuids_beat_the_number_of_instances(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    assert len(_select(scheduler, request(num_instances=5), new_uuids(2))) == 2


@pytest.mark.parametrize(
    ("policy", "n_hosts"), [("anti-affinity", 3), ("affinity", 1)], ids=str
)
def test_group_holds_within_a_request(
    make: MakeScheduler, policy: str, n_hosts: int
) -> None:
    scheduler = make(*THREE)
    uuids = new_uuids(3)
    group = InstanceGroup(
        uuid=str(uuid.uuid4()), policy=policy, members=uuids, hosts=[], _rules={}
    )
    spec = request(instance_group=group, num_instances=3)
    selections = _select(scheduler, spec, uuids)
    assert len({mine[0].service_host for mine in selections}) == n_hosts
    assert group.hosts == [], "the request is left as it was"


def test_group_holds_for_the_next_request(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    uuids = new_uuids(4)
    for number, instance in enumerate(uuids):
        group = InstanceGroup(
            uuid=str(uuid.UUID(int=1)),
            policy="anti-affinity",
            members=uuids,
            hosts=[],
            _rules={},
        )
        spec = request(instance_group=group, instance_uuid=instance)
        if number < 3:
            _select(scheduler, spec, [instance])
    with pytest.raises(NoValidHost):
        _select(scheduler, spec, [instance])


# -- what nothing is claimed for ---------------------------------------------------


def test_rebuild_neither_queries_placement_nor_claims(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    spec = request(
        scheduler_hints={"_nova_check_type": ["rebuild"]},
        requested_destination=Destination(host="h2", node="h2"),
    )
    [[chosen]] = _select(scheduler, spec)
    assert chosen.service_host == "h2"
    assert chosen.allocation_request == "null"
    assert chosen.allocation_request_version is None
    assert _nothing_is_held(scheduler)
    assert scheduler.decisions.newest(1)[0].queries == []


def test_old_conductor_claims_by_itself(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    answer: Any = scheduler.select_destinations(CONTEXT, request(num_instances=2))
    assert [sorted(each) for each in answer] == [["host", "limits", "nodename"]] * 2
    assert _nothing_is_held(scheduler)


# -- answers of Placement -----------------------------------------------------------


def test_evacuated_instance_keeps_what_it_has(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    [instance] = new_uuids()
    [[source, *_]] = _select(scheduler, request(), [instance])
    spec = request(ignore_hosts=[source.service_host], instance_uuid=instance)
    [[target, *_]] = _select(scheduler, spec, [instance])
    held = scheduler.placement.allocations(instance).resources
    assert held == {**claimed(source), **claimed(target)}
    assert source.service_host != target.service_host


def test_repeated_request_is_not_claimed_twice(make: MakeScheduler) -> None:
    scheduler = make(host("only"))
    [instance] = new_uuids()
    first = _select(scheduler, request(), [instance])
    again = _select(scheduler, request(), [instance])
    assert _hosts(first) == _hosts(again)
    assert scheduler.placement.allocations(instance).resources == claimed(again[0][0])
    assert scheduler.table.batch().vcpus_used.tolist() == [1]


def test_repeated_request_is_answered_as_before(make: MakeScheduler) -> None:
    # The first host is not the best one any more when the request is repeated.
    scheduler = make(host("big", memory_mb=16500), host("small"))
    [instance] = new_uuids()
    spec_obj = request(memory_mb=4096)
    first = _select(scheduler, spec_obj, [instance])
    again = _select(scheduler, spec_obj, [instance])
    assert _hosts(first)[0][0] == _hosts(again)[0][0] == "big"
    assert scheduler.placement.allocations(instance).resources == claimed(again[0][0])
    assert sorted(scheduler.table.batch().vcpus_used.tolist()) == [0, 1]


def test_repeated_evacuation_is_answered_as_before(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    [instance] = new_uuids()
    [[source, *_]] = _select(scheduler, request(), [instance])
    spec = request(ignore_hosts=[source.service_host], instance_uuid=instance)
    first = _select(scheduler, spec, [instance])
    again = _select(scheduler, spec, [instance])
    assert _hosts(again)[0][0] == _hosts(first)[0][0]
    held = scheduler.placement.allocations(instance).resources
    assert held == {**claimed(source), **claimed(first[0][0])}


def test_earlier_claim_stays_if_the_repeated_request_fails(
    make: MakeScheduler,
) -> None:
    scheduler = make(host("only"))
    [instance] = new_uuids()
    [[chosen]] = _select(scheduler, request(), [instance])
    consume = scheduler.table.claims.consume

    def break_afterwards(*args: Any) -> None:
        consume(*args)
        raise RuntimeError("broken")

    scheduler.table.claims.consume = break_afterwards  # type: ignore[assignment]  # any
    with pytest.raises(SchedulerError, match="broken"):
        _select(scheduler, request(), [instance])
    assert scheduler.placement.allocations(instance).resources == claimed(chosen)
    assert scheduler.table.batch().vcpus_used.tolist() == [1]


def test_claim_stays_neither_claimed_nor_consumed_if_its_request_fails(
    make: MakeScheduler,
) -> None:
    scheduler = make(*THREE)
    consume, consumed = scheduler.table.claims.consume, []

    def break_at_the_second(*args: Any) -> None:
        consume(*args)
        consumed.append(args)
        if len(consumed) == 2:
            raise RuntimeError("broken")

    scheduler.table.claims.consume = break_at_the_second  # type: ignore[assignment]  # any
    with pytest.raises(SchedulerError, match="broken"):
        _select(scheduler, request(num_instances=3), new_uuids(3))
    assert _nothing_is_held(scheduler)
    assert scheduler.table.batch().vcpus_used.tolist() == [0, 0, 0]


def test_claim_whose_thread_is_killed_is_released_once_its_instance_is_gone(
    make: MakeScheduler,
) -> None:
    source = InformedSource()
    scheduler = make(*THREE, source=source)
    write = scheduler.placement.write

    def write_and_be_killed(*args: Any, **more: Any) -> Any:
        write(*args, **more)
        scheduler.placement.write = write
        raise KeyboardInterrupt

    scheduler.placement.write = write_and_be_killed
    [instance] = new_uuids()
    source.answered.add(instance)  # by another request, as far as it can be known
    with pytest.raises(KeyboardInterrupt):
        _select(scheduler, request(), [instance])
    scheduler.orphans.release_before_new_claim([instance])
    assert not _nothing_is_held(scheduler)
    source.answered.clear()
    wait_until(lambda: _nothing_is_held(scheduler))


def test_instance_with_other_allocations_is_not_taken_over(
    make: MakeScheduler,
) -> None:
    scheduler = make(host("h1"), host("h2"))
    [instance] = new_uuids()
    _select(scheduler, request(vcpus=2), [instance])
    with pytest.raises(AllocationUpdateFailed, match=instance):
        _select(scheduler, request(vcpus=3), [instance])


def test_next_host_is_claimed_if_the_first_is_full(make: MakeScheduler) -> None:
    """Candidates are stale as soon as they are read: a refusal is no failure."""
    scheduler = make(
        host("big", memory_mb=65536), host("small"), moorage__candidates="placement"
    )
    nodes = {h.host: h.uuid for h in scheduler.table.batch()}
    candidates = scheduler.placement.allocation_candidates

    def then_fill_big(*args: Any, **kwargs: Any) -> Any:
        answer = candidates(*args, **kwargs)
        filling = request_of(nodes["big"], VCPU=8)
        claim_one(scheduler.placement, new_uuids()[0], filling)
        return answer

    scheduler.placement.allocation_candidates = then_fill_big
    assert _hosts(_select(scheduler))[0][0] == "small"
    results = [c.result for c in scheduler.decisions.newest(1)[0].claims]
    assert results == ["refused", "claimed"]


def test_refusal_by_placement_is_logged(
    make: MakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = make(
        host("big", memory_mb=65536), host("small"), moorage__candidates="placement"
    )
    [big] = (h.uuid for h in scheduler.table.batch() if h.host == "big")
    candidates = scheduler.placement.allocation_candidates

    def then_fill_big(*args: Any, **kwargs: Any) -> Any:
        answer = candidates(*args, **kwargs)
        claim_one(scheduler.placement, new_uuids()[0], request_of(big, VCPU=8))
        return answer

    scheduler.placement.allocation_candidates = then_fill_big
    caplog.set_level("INFO", "moorage.scheduler.drivers")
    [instance] = new_uuids()
    _select(scheduler, uuids=[instance])
    [line] = [text for text in caplog.messages if text.startswith("Placement refused")]
    assert line.startswith(f"Placement refused host big for instance {instance}: ")
    assert "VCPU" in line


@pytest.mark.parametrize("candidates", ["memory", "placement"])
def test_candidate_without_a_row_is_reported(
    make: MakeScheduler, caplog: pytest.LogCaptureFixture, candidates: str
) -> None:
    scheduler = make(host("h1", vcpus=1), moorage__candidates=candidates)
    stranger = _provider(new_uuids()[0])
    seed(scheduler.placement, [stranger])
    scheduler.candidates.load()  # before a poll would find it
    assert _hosts(_select(scheduler)) == [["h1"]]
    assert scheduler.decisions.newest(1)[0].n_without_row == 1
    with pytest.raises(NoValidHost):
        _select(scheduler, request(vcpus=4))
    assert f"for example not {stranger.uuid}" in caplog.text
    assert scheduler.placement.allocations(stranger.uuid).resources == {}


@pytest.mark.parametrize(
    "wrong",
    [
        Misbehaviour.ERROR,
        Misbehaviour.HTML,
        Misbehaviour.GARBAGE,
        Misbehaviour.TRUNCATED,
    ],
    ids=lambda wrong: wrong.name,
)
def test_broken_placement_is_a_typed_error(
    make: MakeScheduler, wrong: Misbehaviour
) -> None:
    with MisbehavingServer() as server:
        server.misbehave(wrong, times=2)
        scheduler = make(
            *THREE,
            placement__auth_type="none",
            placement__endpoint_override=server.url,
        )
        with pytest.raises(PlacementUnavailable):
            _select(scheduler)
        [record] = scheduler.decisions.newest(1)
        assert record.outcome is Outcome.FAILED
        assert "PlacementUnavailable" in record.reason


@pytest.mark.parametrize("is_known", [True, False], ids=["gone", "not known"])
def test_claim_in_doubt_is_released_at_the_end_if_its_instance_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    path = write_inventory(tmp_path, *THREE)
    conf = moorage_conf.load([], config_files=[])
    conf.set_override("inventory_file", str(path), group="moorage")
    with (
        EmbeddedPlacementFixture() as real,
        MisbehavingServer(real.placement.wsgi_app) as server,
    ):
        source = InformedSource() if is_known else FileSource(conf)
        placement = adapter_to(server.url)
        scheduler = build(conf, placement=placement, source=source, waiter=HandTime())
        scheduler.start()
        seed(real.client, map(_provider, scheduler.table.batch().uuid))
        [instance] = new_uuids()
        # The PUT is executed, its answer lost, and then Placement is unreachable.
        server.misbehave(Misbehaviour.LOST, verb="PUT")
        allocations = scheduler.placement.allocations
        scheduler.placement.allocations = _refuse
        with pytest.raises(PlacementUnavailable, match=instance):
            _select(scheduler, uuids=[instance])
        assert real.client.allocations(instance).resources
        scheduler.placement.allocations = allocations
        scheduler.stop()
        held = real.client.allocations(instance).resources
        assert bool(held) is not is_known
        assert ("nothing shows whether it is in use" in caplog.text) is not is_known
        assert scheduler.table.batch().vcpus_used.tolist() == [0, 0, 0]


def test_evacuation_in_doubt_is_released_and_the_source_stays(
    make: MakeScheduler,
) -> None:
    evidence = InformedSource({instance := new_uuids()[0]})
    scheduler = make(*THREE, source=evidence)
    [[source, *_]] = _select(scheduler, request(), [instance])
    placement = scheduler.placement
    write, allocations = placement.write, placement.allocations
    n_writes = iter(range(9))

    def write_and_lose(*args: Any, **more: Any) -> Any:
        answer = write(*args, **more)
        if next(n_writes) == 1:  # the first reads what the instance holds
            placement.allocations = _refuse
            raise AnswerLost("lost", is_in_flight=True)
        return answer

    placement.write = write_and_lose
    spec = request(ignore_hosts=[source.service_host], instance_uuid=instance)
    with pytest.raises(PlacementUnavailable, match=instance):
        _select(scheduler, spec, [instance])
    assert len(allocations(instance).resources) == 2
    placement.allocations = allocations
    scheduler.orphans.release_before_new_claim([instance])
    assert len(allocations(instance).resources) == 2
    evidence.located[instance] = str(source.service_host)
    wait_until(lambda: allocations(instance).resources == claimed(source))


def test_claims_stop_early_if_every_host_is_busy(
    tmp_path: Path,
) -> None:
    path = write_inventory(tmp_path, *(host(f"h{i}") for i in range(30)))
    conf = moorage_conf.load([], config_files=[])
    conf.set_override("inventory_file", str(path), group="moorage")
    with (
        EmbeddedPlacementFixture() as real,
        MisbehavingServer(real.placement.wsgi_app) as server,
    ):
        time_ = HandTime()  # the pauses between the claims pass at once
        scheduler = build(conf, placement=adapter_to(server.url), waiter=time_)
        scheduler.start()
        seed(real.client, map(_provider, scheduler.table.batch().uuid))
        server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=9999)
        with pytest.raises(PlacementUnavailable, match="changing providers"):
            _select(scheduler)
        assert len(scheduler.decisions.newest(1)[0].claims) == MAX_CONTENDED
        assert _nothing_is_held(scheduler)
        scheduler.stop()


def _provider(node: str) -> Provider:
    inventories = {
        name: {"total": 9999, "max_unit": 9999}
        for name in ("VCPU", "MEMORY_MB", "DISK_GB")
    }
    return Provider(node, node, inventories)


def _refuse(*_args: Any, **_kwargs: Any) -> Any:
    raise PlacementUnavailable("nobody answers")


def test_failure_after_a_claim_leaves_nothing(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    node = str(scheduler.table.batch().uuid[0])
    endpoint: Any
    [endpoint, _] = scheduler.endpoints
    uuids = new_uuids(3)
    claim_one(scheduler.placement, uuids[2], request_of(node))
    with pytest.raises(Exception, match=uuids[2]):
        endpoint.select_destinations(
            CONTEXT, spec_obj=request(num_instances=3), instance_uuids=uuids
        )
    held = [scheduler.placement.allocations(u).resources for u in uuids]
    assert held[:2] == [{}, {}]
    assert held[2] == {node: {"VCPU": 1}}, "another's stays"


# -- requests that cannot be queried -------------------------------------------------


@pytest.mark.parametrize(
    ("uuids", "named"),
    [
        pytest.param(["no-uuid"], "is not a UUID", id="malformed"),
        pytest.param([new_uuids()[0]] * 2, "duplicate instance", id="twice"),
    ],
)
def test_instances_that_cannot_be_are_named(
    make: MakeScheduler, uuids: list[str], named: str
) -> None:
    scheduler = make(*THREE)
    with pytest.raises(InvalidRequest, match=named):
        _select(scheduler, uuids=uuids)
    assert _nothing_is_held(scheduler)


def test_request_for_no_instance_is_novas_no_valid_host(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    with pytest.raises(NoValidHost, match="There are not enough hosts"):
        _select(scheduler, uuids=[])
    assert _nothing_is_held(scheduler)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_instances": 2**31 - 1}, "num_instances"),
        ({"vcpus": 0}, "vcpus"),
        ({"memory_mb": -5}, "memory_mb"),
        ({"root_gb": -1}, "root_gb"),
        ({"vcpus": 2**40}, "vcpus"),
        ({"project_id": None}, "project_id"),
    ],
    ids=str,
)
def test_absurd_request_is_named(
    make: MakeScheduler, changes: dict[str, Any], named: str
) -> None:
    scheduler = make(*THREE)
    context = {"request_id": "req-without-owner"}
    with pytest.raises(InvalidRequest, match=named):
        scheduler.select_destinations(context, request(**changes), new_uuids())
    assert _nothing_is_held(scheduler)


def test_request_without_a_flavor_is_named(make: MakeScheduler) -> None:
    scheduler = make(*THREE)
    spec = request()
    del spec.flavor
    with pytest.raises(InvalidRequest, match="flavor"):
        _select(scheduler, spec)


# -- the record --------------------------------------------------------------------


def test_record_explains_the_choice(make: MakeScheduler) -> None:
    down = host("down", forced_down=True)
    scheduler = make(*THREE, down)
    [instance] = new_uuids()
    [[chosen, *_]] = _select(scheduler, uuids=[instance])
    record = scheduler.decisions.find(instance)
    assert record is not None
    assert record.outcome is Outcome.SELECTED
    assert (record.n_candidates, record.n_hosts, record.is_truncated) == (4, 4, False)
    steps = {step.name: (step.n_in, step.n_out) for step in record.steps}
    assert steps["ComputeFilter"] == (4, 3)
    [placed] = record.instances
    assert placed.host == chosen.service_host
    top = placed.top_hosts[0]
    assert top.weight == pytest.approx(sum(part.weighted for part in top.parts))
    assert {part.name for part in top.parts} >= {"RAMWeigher", "CPUWeigher"}
    parts = sum(ms for step, ms in record.times_ms.items() if step != "total")
    assert parts <= record.times_ms["total"]


def test_decision_is_one_line_in_the_log(
    make: MakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "moorage.scheduler.drivers.decision_log")
    _select(make(*THREE))
    [line] = [r.getMessage() for r in caplog.records if "Decision" in r.getMessage()]
    assert "req-test: 1 instance(s) selected" in line
    assert "ComputeFilter 3" in line
    assert "\n" not in line


def test_oldest_records_are_dropped(make: MakeScheduler) -> None:
    scheduler = make(*THREE, moorage__decision_records=2)
    uuids = new_uuids(3)
    for each in uuids:
        _select(scheduler, uuids=[each])
    newest = [record.instance_uuids[0] for record in scheduler.decisions.newest()]
    assert newest == uuids[:0:-1]
    assert scheduler.decisions.find(uuids[0]) is None


# -- plugins -----------------------------------------------------------------------


def test_unknown_filter_stops_the_start_with_those_that_exist(
    make: MakeScheduler,
) -> None:
    with pytest.raises(PluginError, match=r"'NoFilter'; there are .*ComputeFilter"):
        make(*THREE, filter_scheduler__enabled_filters=["NoFilter"])


def test_endpoint_marks_no_valid_host_as_expected(make: MakeScheduler) -> None:
    endpoint: Any
    [endpoint, _] = make(*THREE).endpoints
    with pytest.raises(ExpectedException):
        endpoint.select_destinations(
            CONTEXT, spec_obj=request(vcpus=99), instance_uuids=new_uuids()
        )
