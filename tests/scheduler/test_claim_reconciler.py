# SPDX-License-Identifier: Apache-2.0
"""Claims are released in the host table once nothing is allocated for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fixtures
import pytest

from moorage.objects import InstanceGroup, Selection
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.claim_reconciler import ClaimReconciler
from moorage.scheduler.errors import NoValidHost, PlacementUnavailable
from moorage.scheduler.hosts import Consumption
from moorage.scheduler.placement.answers import ConsumerAllocations
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.waiting import ThreadSpawner

from ..fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ..fixtures.hand_time import HandTime
from ..fixtures.waiting import wait_until

LIMIT_S = 600.0


@pytest.fixture
def time_() -> HandTime:
    return HandTime()


@pytest.fixture
def scheduler(tmp_path: Path, time_: HandTime) -> Iterator[Scheduler]:
    """A scheduler whose own reconciler does nothing yet: its claims are new."""
    path = write_inventory(tmp_path, host("h1"), host("h2"))
    conf = moorage_conf.load([], config_files=[])
    conf.set_override("inventory_file", str(path), group="moorage")
    made = build(conf, clock=time_, waiter=time_)
    made.lifecycle.load()
    yield made
    made.stop()


@pytest.fixture
def reconciler(scheduler: Scheduler, time_: HandTime) -> ClaimReconciler:
    """One for a source that reports what instances use."""
    return _reconciler(scheduler, time_)


def _reconciler(
    scheduler: Scheduler,
    time_: HandTime,
    *,
    placement: Any = None,
    max_age_s: float | None = LIMIT_S,
) -> ClaimReconciler:
    return ClaimReconciler(
        scheduler.table,
        placement or scheduler.placement,
        max_age_s=max_age_s,
        waiter=time_,
        spawner=ThreadSpawner(),
    )


def _claimed(scheduler: Scheduler, uuid: str, **changes: Any) -> Selection:
    answer: Any = scheduler.select_destinations(
        CONTEXT, request(**changes), [uuid], return_objects=True
    )
    selection: Selection = answer[0][0]
    return selection


def _row(scheduler: Scheduler, selection: Selection) -> Any:
    [row] = scheduler.table.batch([selection.compute_node_uuid])
    return row


def test_claim_without_an_allocation_is_given_back(
    scheduler: Scheduler, reconciler: ClaimReconciler, time_: HandTime
) -> None:
    [uuid] = new_uuids()
    chosen = _claimed(scheduler, uuid, vcpus=2)
    scheduler.placement.delete_allocations(uuid)
    reconciler.reconcile()
    assert _row(scheduler, chosen).vcpus_used == 2, "its build may have failed just now"
    time_.pass_by(60)
    reconciler.reconcile()
    row = _row(scheduler, chosen)
    assert (row.vcpus_used, row.num_io_ops, row.instances) == (0, 0, {})


def test_failed_build_is_no_member_of_its_group_any_more(
    scheduler: Scheduler, reconciler: ClaimReconciler, time_: HandTime
) -> None:
    members = new_uuids(3)
    group = InstanceGroup(
        policy="anti-affinity", policies=["anti-affinity"], members=members
    )
    for uuid in members[:2]:
        failed = _claimed(scheduler, uuid, instance_group=group)
    scheduler.placement.delete_allocations(members[1])
    reconciler.reconcile()
    time_.pass_by(60)
    reconciler.reconcile()
    again = _claimed(scheduler, members[2], instance_group=group)
    assert again.service_host == failed.service_host


def test_claims_are_checked_before_no_valid_host(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = new_uuids(4)
    group = InstanceGroup(
        policy="anti-affinity", policies=["anti-affinity"], members=members
    )
    for uuid in members[:2]:
        failed = _claimed(scheduler, uuid, instance_group=group)
    scheduler.placement.delete_allocations(members[1])
    again = _claimed(scheduler, members[2], instance_group=group)
    assert again.service_host == failed.service_host, "it ended just now"

    checked = []
    allocations = scheduler.placement.allocations

    def watched(uuid: str, **more: Any) -> ConsumerAllocations:
        checked.append(uuid)
        return allocations(uuid, **more)

    monkeypatch.setattr(scheduler.placement, "allocations", watched)
    for _ in range(2):
        with pytest.raises(NoValidHost):
            _claimed(scheduler, members[3], instance_group=group)
    assert checked.count(members[2]) == 1, (
        "the answer about it will do for some seconds"
    )
    assert _row(scheduler, again).instances.keys() == {members[2]}


def test_instance_that_went_elsewhere_is_given_back(
    scheduler: Scheduler, reconciler: ClaimReconciler, time_: HandTime
) -> None:
    [uuid] = new_uuids()
    chosen = _claimed(scheduler, uuid)
    [other] = set(scheduler.table.batch().uuid) - {chosen.compute_node_uuid}
    held = scheduler.placement.allocations(uuid)
    body = {
        "allocations": {
            other: {"resources": dict(held.resources[chosen.compute_node_uuid])}
        },
        "project_id": held.project_id,
        "user_id": held.user_id,
        "consumer_generation": held.consumer_generation,
    }
    assert scheduler.placement.put_allocations(uuid, body).is_done
    reconciler.reconcile()
    time_.pass_by(60)
    reconciler.reconcile()
    assert _row(scheduler, chosen).instances == {}


def test_held_claim_is_settled_after_its_limit(
    scheduler: Scheduler, reconciler: ClaimReconciler, time_: HandTime
) -> None:
    [uuid] = new_uuids()
    chosen = _claimed(scheduler, uuid, vcpus=2)
    reconciler.reconcile()
    time_.pass_by(LIMIT_S - 1)
    reconciler.reconcile()
    assert _row(scheduler, chosen).vcpus_used == 2
    time_.pass_by(61)
    reconciler.reconcile()
    row = _row(scheduler, chosen)
    assert row.vcpus_used == 0, "the reports should have it by now"
    assert set(row.instances) == {uuid}, "it is there all the same"


def test_claim_is_all_that_a_file_ever_knows(
    scheduler: Scheduler, time_: HandTime
) -> None:
    unbounded = _reconciler(scheduler, time_, max_age_s=None)
    chosen = _claimed(scheduler, new_uuids()[0], vcpus=2)
    time_.pass_by(1e6)
    unbounded.reconcile()
    assert _row(scheduler, chosen).vcpus_used == 2


def test_claims_are_checked_in_turn(
    scheduler: Scheduler, reconciler: ClaimReconciler, time_: HandTime
) -> None:
    table = scheduler.table
    some = _claims_of_nobody(scheduler, 120)
    reconciler.reconcile()
    time_.pass_by(60)
    reconciler.reconcile()
    assert 0 < len(table.claims.unreported()) < some, "a round is bounded"
    for _ in range(2):
        reconciler.reconcile()
    assert table.claims.unreported() == ()


@pytest.mark.deep
def test_new_claims_do_not_keep_an_old_one_from_its_turn(
    scheduler: Scheduler, reconciler: ClaimReconciler, time_: HandTime
) -> None:
    [uuid] = new_uuids()
    chosen = _claimed(scheduler, uuid)
    reconciler.reconcile()
    time_.pass_by(30)
    reconciler.reconcile()
    scheduler.placement.delete_allocations(uuid)
    for _ in range(20):
        _claims_of_nobody(scheduler, 60)
        time_.pass_by(30)
        reconciler.reconcile()
    assert uuid not in {
        claim.instance_uuid for claim in scheduler.table.claims.unreported()
    }
    assert uuid not in _row(scheduler, chosen).instances


@pytest.mark.parametrize("skew_s", [-1e6, 1e6], ids=["behind", "ahead"])
def test_clock_of_the_claimer_does_not_matter(
    scheduler: Scheduler, reconciler: ClaimReconciler, time_: HandTime, skew_s: float
) -> None:
    [held, gone] = new_uuids(2)
    table = scheduler.table
    chosen = _claimed(scheduler, held, vcpus=2)
    table.claims.release(chosen.service_host, held)
    for uuid in (held, gone):
        consumption = Consumption(1, 1, 2)
        table.claims.consume(
            chosen.compute_node_uuid, uuid, consumption, time_.wall_s + skew_s
        )
    for wait_s, n_vcpus in ((0, 4), (60, 2), (LIMIT_S, 0)):
        time_.pass_by(wait_s)
        reconciler.reconcile()
        assert _row(scheduler, chosen).vcpus_used == n_vcpus


def test_claim_that_cannot_be_read_does_not_block_others(
    scheduler: Scheduler, time_: HandTime
) -> None:
    """Its answer for one consumer is broken, for some reason."""
    sick, well = new_uuids(2)
    placement: Any = FailingForOneConsumer(scheduler.placement, sick)
    reconciler = _reconciler(scheduler, time_, placement=placement)
    [node, *_] = scheduler.table.batch().uuid
    for uuid in (sick, well):
        scheduler.table.claims.consume(node, uuid, Consumption(1, 1, 1))
    reconciler.reconcile()
    time_.pass_by(60)
    reconciler.reconcile()
    reconciler.reconcile()
    assert [claim.instance_uuid for claim in scheduler.table.claims.unreported()] == [
        sick
    ]


def test_end_waits_for_no_placement_that_hangs(
    scheduler: Scheduler, time_: HandTime
) -> None:
    """The claims that are next in turn are not queried any more, either."""
    placement: Any = Hanging()
    reconciler = _reconciler(scheduler, time_, placement=placement)
    _claims_of_nobody(scheduler, 3)
    reconciler.reconcile()
    time_.pass_by(60)
    with fixtures.MonkeyPatch(
        "moorage.scheduler.claim_reconciler.RECONCILE_ROUND_S", 0.01
    ):
        reconciler.start()
        assert placement.is_queried.wait(30)
        stopping = threading.Thread(target=reconciler.stop, daemon=True)
        stopping.start()
        wait_until(lambda: not stopping.is_alive())
        placement.may_answer.set()
        reconciler.stop()
    assert placement.n_queries == 1
    assert not [t for t in threading.enumerate() if t.name == "claim-reconciler"]


class Hanging:
    """A Placement that answers when it is allowed to: nothing is allocated."""

    def __init__(self) -> None:
        self.is_queried, self.may_answer = threading.Event(), threading.Event()
        self.n_queries = 0

    def allocations(self, uuid: str) -> ConsumerAllocations:
        self.n_queries += 1
        self.is_queried.set()
        assert self.may_answer.wait(600)
        return ConsumerAllocations({})


class FailingForOneConsumer:
    """A Placement that fails for one consumer."""

    def __init__(self, placement: Any, uuid: str) -> None:
        self._placement = placement
        self._uuid = uuid

    def allocations(self, uuid: str) -> Any:
        if uuid == self._uuid:
            raise PlacementUnavailable("500")
        return self._placement.allocations(uuid)


def _claims_of_nobody(scheduler: Scheduler, n: int) -> int:
    """Claims in the table that have no allocation."""
    [node, *_] = scheduler.table.batch().uuid
    for uuid in new_uuids(n):
        scheduler.table.claims.consume(node, uuid, Consumption(1, 1, 1))
    return n
