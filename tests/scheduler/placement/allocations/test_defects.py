# SPDX-License-Identifier: Apache-2.0
"""Regressions: allocations that leaked, or were released while in use (issue 16)."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from moorage.objects import InstanceGroup, Selection
from moorage.scheduler.claim_reconciler import ClaimReconciler
from moorage.scheduler.errors import PlacementError, SchedulerError
from moorage.scheduler.instances import InstanceLocation, InstanceState
from moorage.scheduler.placement.adapter import Verb
from moorage.scheduler.placement.allocations.claims import Claim
from moorage.scheduler.placement.allocations.orphans import Orphan
from moorage.scheduler.placement.answers import ConsumerAllocations
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.waiting import ThreadSpawner

from ....fixtures.clouds import host, new_uuids
from ....fixtures.faulty_cloud import (
    FaultyCloud,
    FaultyScheduler,
    expect_answers_are_held,
    group,
)
from ....fixtures.faulty_placement import (
    Call,
    FaultKind,
    FaultyAdapter,
    candidates,
    reads,
    releases,
    writes,
)
from ....fixtures.hand_time import HandThreads, HandTime
from ....fixtures.placement_servers import MisbehavingServer, Misbehaviour
from ....fixtures.turns import Turns

CloudOf = Callable[..., FaultyCloud]
T = TypeVar("T")

FAILED_READS = [FaultKind.UNAVAILABLE_BEFORE, FaultKind.LOST, FaultKind.AWAY]


@pytest.fixture
def cloud_of(tmp_path: Path) -> Iterator[CloudOf]:
    """Make a cloud of these hosts."""
    with ExitStack() as stack:
        yield lambda *hosts: stack.enter_context(FaultyCloud(tmp_path, hosts))


def _beside(work: Callable[[], T]) -> T:
    """Run another request of the same process in a thread of its own, to its end."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


# -- D1, D7: an earlier owner's release ------------------------------------------------


@pytest.mark.parametrize("is_evacuated", [False, True], ids=["unshelve", "evacuate"])
def test_release_of_a_failed_request_spares_the_repeated_one_elsewhere(
    cloud_of: CloudOf, is_evacuated: bool
) -> None:
    """A's claim is lost and A cut off; B finds it and answers; A is healed."""
    cloud = cloud_of("h1", "h2")
    [uuid] = new_uuids()
    more: dict[str, Any] = {}
    if is_evacuated:
        cloud.hold(uuid, "h1")
        more["ignore_hosts"] = ["h1"]
    source = cloud.held(uuid)
    target = cloud.node("h2" if is_evacuated else "h1")

    def is_the_claim(call: Call) -> bool:
        wanted = call.allocations_of(uuid) or {}
        return target in wanted and len(wanted) == 1 + is_evacuated

    parts = {"waiter": HandTime()}
    a, b = (cloud.make(prefers=["h1"], parts=parts) for _ in range(2))
    a.adapter.fault(FaultKind.LOST, is_the_claim)
    a.adapter.after(is_the_claim, a.adapter.cut)
    assert isinstance(a.answer(uuid, **more), PlacementError)
    assert target in cloud.held(uuid)
    answered = b.answer(uuid, **more)
    assert isinstance(answered, Selection)
    cloud.settle()
    expect_answers_are_held(cloud, uuid, answered, besides=source)


def test_late_write_of_a_request_that_goes_on_replaces_no_later_claim(
    cloud_of: CloudOf,
) -> None:
    """Before it arrives, the instance is deleted, and the scheduler claims again."""
    cloud = cloud_of("h1", "h2")
    scheduler = cloud.make(prefers=["h1"], parts={"waiter": HandTime()})
    [uuid] = new_uuids()
    assert isinstance(scheduler.answer(uuid), Selection)
    answers: list[object] = []
    late: list[Call] = []

    def takes_over(call: Call) -> bool:
        return writes(uuid)(call) and call.body["consumer_generation"] == 1

    def request_again() -> None:
        cloud.client.write(Verb.DELETE, f"/allocations/{uuid}")
        answers.append(_beside(lambda: scheduler.answer(uuid, ignore_hosts=["h1"])))
        late.extend(scheduler.adapter.deliver())

    scheduler.adapter.fault(FaultKind.LATE, takes_over)
    scheduler.adapter.after(
        takes_over, lambda: scheduler.adapter.before(reads(uuid), request_again)
    )
    scheduler.answer(uuid)
    [answer] = answers
    assert isinstance(answer, Selection)
    assert [call.statuses for call in late] == [[409]]
    expect_answers_are_held(cloud, uuid, answer)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "not sent"])
def test_evacuation_that_took_a_claim_over_is_released_with_evidence(
    cloud_of: CloudOf, tmp_path: Path, is_killed: bool
) -> None:
    """What it knows to have been held before is without the claim that it found."""
    cloud = cloud_of("h1", "h2")
    [uuid] = new_uuids()
    cloud.hold(uuid, "h1")
    before = cloud.held(uuid)
    assert isinstance(cloud.make().answer(uuid, ignore_hosts=["h1"]), Selection)
    journals = tmp_path / "first", tmp_path / "second"
    again = cloud.make(claims_directory=journals[0], parts={"waiter": HandTime()})
    with again.scheduler.journal.track_answer() as answer:
        assert isinstance(again.answer(uuid, ignore_hosts=["h1"]), Selection)
        if is_killed:
            cloud.kill(again, journals[1])
        else:
            answer.mark_sending()
            answer.mark_not_sent()
    time = HandTime()
    threads = HandThreads(time)
    parts = {"waiter": time, "spawner": threads}
    after = cloud.make(claims_directory=journals[is_killed], parts=parts)
    for each in (again, after):
        each.source.located[uuid] = "h1"
    threads.run_for(300)
    cloud.settle()
    assert cloud.held(uuid) == before


def test_claim_that_is_found_and_cannot_be_written_again_is_not_answered(
    cloud_of: CloudOf, tmp_path: Path
) -> None:
    """Its first scheduler could release it."""
    cloud = cloud_of("h1")
    uuid, warm = new_uuids(2)
    killed = cloud.make(claims_directory=tmp_path / "first")
    other = cloud.make(parts={"waiter": HandTime()}, candidates_max_age=60.0)
    assert isinstance(other.answer(warm), Selection)
    assert cloud.client.delete_allocations(warm)
    with killed.scheduler.journal.track_answer():
        assert isinstance(killed.answer(uuid), Selection)
        cloud.kill(killed, tmp_path / "second")
    url = f"/resource_providers/{cloud.node('h1')}/inventories"
    inventories: Any = cloud.client.read(url)
    inventories["inventories"]["DISK_GB"].update(total=5, max_unit=5)
    assert cloud.client.write(Verb.PUT, url, inventories).is_done
    answer = other.answer(uuid)
    assert isinstance(answer, PlacementError)
    assert "Placement refused it" in str(answer)


@pytest.mark.parametrize(
    ("is_known", "is_reported", "is_held"),
    [(True, False, False), (True, True, True), (False, False, True)],
    ids=["elsewhere", "on both hosts", "host without a row"],
)
def test_claim_of_an_instance_on_another_host(
    cloud_of: CloudOf,
    monkeypatch: pytest.MonkeyPatch,
    is_known: bool,
    is_reported: bool,
    is_held: bool,
) -> None:
    """It is released only if none of its hosts is the claim's, which are all known."""
    cloud = cloud_of("h1", "h2")
    [uuid] = new_uuids()
    scheduler = cloud.make()
    answer = scheduler.answer(uuid, ignore_hosts=["h1"])
    assert isinstance(answer, Selection)
    location = InstanceLocation(
        InstanceState.ON_HOST,
        "h1",
        is_settled=True,
        also_on=("h2",) if is_reported else (),
    )
    monkeypatch.setattr(scheduler.source, "locate_instance", lambda _uuid: location)
    if not is_known:
        scheduler.scheduler.table.drop(cloud.node("h2"))
    claim = Claim(json.loads(str(answer.allocation_request)))
    scheduler.scheduler.orphans.add(uuid, Orphan(claim))
    cloud.settle()
    assert bool(cloud.held(uuid)) is is_held


def test_consumer_that_cannot_be_read_delays_no_other(cloud_of: CloudOf) -> None:
    cloud = cloud_of("h1")
    time = HandTime()
    threads = HandThreads(time)
    scheduler = cloud.make(parts={"waiter": time, "spawner": threads})
    unreadable, other = new_uuids(2)
    scheduler.adapter.fault(FaultKind.UNAVAILABLE_BEFORE, reads(unreadable), times=None)
    for uuid in (unreadable, other):
        cloud.hold(uuid, "h1")
        held = ConsumerAllocations(cloud.held(uuid))
        scheduler.scheduler.orphans.add(uuid, Orphan(Claim(held.request)))
    threads.run_for(60)
    assert cloud.held(unreadable)
    assert not cloud.held(other)


def _is_group_check(call: Call) -> bool:
    """Match the reads by which it is checked that a group's policy is kept."""
    return call.verb == "GET" and not candidates(call)


@pytest.mark.parametrize("is_same", [True, False], ids=["same process", "another"])
def test_late_release_of_a_failed_request_spares_the_repeated_one(
    cloud_of: CloudOf, is_same: bool
) -> None:
    """Request 1 claims, its group check fails, its release is late; 2 claims."""
    cloud = cloud_of("h1")
    uuid, other = new_uuids(2)
    members = group("anti-affinity", [uuid, other])
    a, b = cloud.make(), cloud.make()
    a.adapter.fault(
        FaultKind.UNAVAILABLE_BEFORE,
        lambda call: _is_group_check(call) and not reads(uuid)(call),
        times=None,
    )
    a.adapter.fault(FaultKind.LATE, releases(uuid))
    first = a.answer(uuid, instance_group=members)
    assert isinstance(first, PlacementError)
    [late] = a.adapter.late
    a.adapter.heal()
    second = (a if is_same else b).answer(uuid, instance_group=members)
    assert isinstance(second, Selection)
    a.adapter.deliver()
    assert late.statuses
    cloud.settle()
    expect_answers_are_held(cloud, uuid, second)


# -- D2, D8: writes that are sent twice ------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("n_instances", [1, 2], ids=["PUT", "POST"])
@pytest.mark.parametrize("times", [1, None], ids=["once", "until the request ends"])
@pytest.mark.parametrize("kind", FAILED_READS, ids=lambda kind: kind.name)
def test_duplicated_claim_whose_check_fails_is_answered_or_released(
    cloud_of: CloudOf, kind: FaultKind, times: int | None, n_instances: int
) -> None:
    """The claim arrives twice, the second is refused; reading what is held fails."""
    cloud = cloud_of("h1")
    a = cloud.make(parts={"waiter": HandTime()})
    uuids = new_uuids(n_instances)
    a.adapter.fault(FaultKind.DOUBLED, writes(uuids[0]))
    for uuid in uuids:
        a.adapter.fault(kind, reads(uuid), times=times)
    answers: list[Any] = [None] * n_instances
    try:
        answers = list(a.select(uuids))
    except PlacementError as e:
        answers = [e] * n_instances
    [doubled] = a.adapter.seen(lambda call: call.fault is FaultKind.DOUBLED)
    assert doubled.statuses == [204, 409]
    cloud.settle()
    for uuid, answer in zip(uuids, answers, strict=True):
        expect_answers_are_held(cloud, uuid, answer)


@pytest.mark.parametrize("is_same", [True, False], ids=["same process", "another"])
def test_double_of_an_answered_request_for_several_spares_its_claims(
    cloud_of: CloudOf, is_same: bool
) -> None:
    """The instances are still to be built when the request arrives once more."""
    cloud = cloud_of("h1", "h2")
    a, b = cloud.make(prefers=["h1"]), cloud.make(prefers=["h2"])
    uuids = new_uuids(4)
    answers = a.select(uuids)
    with contextlib.suppress(SchedulerError):
        (a if is_same else b).select(uuids)
    cloud.settle()
    for uuid, answer in zip(uuids, answers, strict=True):
        expect_answers_are_held(cloud, uuid, answer)


def test_answered_claim_that_a_repeated_request_finds_survives_its_failure(
    cloud_of: CloudOf,
) -> None:
    """A answers; B finds the claim, writes it again, and its group check fails."""
    cloud = cloud_of("h1", "h2")
    a, b = cloud.make(prefers=["h1"]), cloud.make(prefers=["h1"])
    uuid, other = new_uuids(2)
    members = group("anti-affinity", [uuid, other])
    answered = a.answer(uuid, instance_group=members)
    b.adapter.fault(
        FaultKind.UNAVAILABLE_BEFORE,
        lambda call: _is_group_check(call) and not reads(uuid)(call),
        times=None,
    )
    assert isinstance(b.answer(uuid, instance_group=members), PlacementError)
    assert b.adapter.seen(writes(uuid))
    cloud.settle()
    expect_answers_are_held(cloud, uuid, answered)


# -- D3: a late claim of a consumer that is known and empty ----------------------------


def test_late_claim_of_an_empty_consumer_does_not_stay(cloud_of: CloudOf) -> None:
    """Placement has the consumer at generation 0; the claim arrives late."""
    cloud = cloud_of("h1")
    a = cloud.make()
    [uuid] = new_uuids()
    nothing: dict[str, Any] = {
        "allocations": {},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": None,
    }
    assert cloud.client.put_allocations(uuid, nothing).is_done

    def names_a_generation(call: Call) -> bool:
        return writes(uuid)(call) and call.body["consumer_generation"] is not None

    a.adapter.fault(FaultKind.LATE, names_a_generation)
    answer = a.answer(uuid)
    assert [call for call in a.adapter.late if names_a_generation(call)]
    a.adapter.deliver()
    cloud.settle()
    expect_answers_are_held(cloud, uuid, answer)


class _Retrying:
    """A Placement behind a proxy that answers 503 once it has executed a write.

    Attributes
    ----------
    is_read : bool
        False: reads of allocations are answered 503, too.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._has_failed = False
        self.is_read = True

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path, verb = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith("/allocations"):
            if verb == "GET" and not self.is_read:
                return self._unavailable(start_response)
            if verb != "GET" and not self._has_failed:
                self._has_failed = True
                b"".join(self._app(environ, lambda *_: None))
                return self._unavailable(start_response)
        return self._app(environ, start_response)

    def _unavailable(self, start_response: Any) -> list[bytes]:
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"away"]


def _retrying_adapter(url: str) -> Adapter:
    """Return an adapter that retries as [placement] connect_retries configures it."""
    session = Session(timeout=10.0, additional_headers={"X-Auth-Token": TOKEN})
    return Adapter(
        session,
        service_type="placement",
        endpoint_override=url,
        connect_retries=2,
        connect_retry_delay=0.01,
        status_code_retries=2,
        status_code_retry_delay=0.01,
    )


@pytest.mark.parametrize("is_read", [True, False], ids=["look", "look fails"])
def test_executed_claim_that_got_a_503_is_not_sent_again_by_keystoneauth(
    cloud_of: CloudOf, is_read: bool
) -> None:
    """204 at Placement, 503 at the client; status_code_retries would send it again."""
    cloud = cloud_of("h1")
    [uuid] = new_uuids()
    app = _Retrying(cloud.placement.placement.wsgi_app)
    with MisbehavingServer(app) as server:
        adapter = FaultyAdapter(_retrying_adapter(server.url))
        a = cloud.make(adapter=adapter, parts={"waiter": HandTime()})
        app.is_read = is_read
        answer = a.answer(uuid)
        sent = [path for verb, path, _ in server.seen if verb == "PUT"]
        app.is_read = True
        assert len(sent) == len(a.adapter.seen(writes(uuid)))
        cloud.settle()
    expect_answers_are_held(cloud, uuid, answer)


def test_executed_claim_whose_connection_broke_is_not_sent_again_by_keystoneauth(
    cloud_of: CloudOf,
) -> None:
    """204 at Placement, no answer; connect_retries would send it again."""
    cloud = cloud_of("h1")
    [uuid] = new_uuids()
    with MisbehavingServer(cloud.placement.placement.wsgi_app) as server:
        a = cloud.make(adapter=FaultyAdapter(_retrying_adapter(server.url)))
        server.misbehave(Misbehaviour.LOST, verb="PUT")
        answer = a.answer(uuid)
        sent = [path for verb, path, _ in server.seen if verb == "PUT"]
        assert len(sent) == len(a.adapter.seen(writes(uuid)))
        cloud.settle()
    expect_answers_are_held(cloud, uuid, answer)


def test_writes_disable_keystoneauths_retries(cloud_of: CloudOf) -> None:
    """A claim for one, a claim for two, and the release of one."""
    cloud = cloud_of("h1")
    a = cloud.make()
    uuid, other, *two = new_uuids(4)
    a.adapter.fault(
        FaultKind.UNAVAILABLE_BEFORE,
        lambda call: _is_group_check(call) and not reads(uuid)(call),
    )
    members = group("anti-affinity", [uuid, other])
    assert isinstance(a.answer(uuid, instance_group=members), PlacementError)
    a.select(two)
    written = a.adapter.seen(lambda call: call.verb != "GET")
    assert len(written) >= 3
    options = [
        (call.options.get("connect_retries"), call.options.get("status_code_retries"))
        for call in written
    ]
    assert set(options) == {(0, 0)}, f"sent with {set(options)}"


# -- D10: a claim that is found while its owner checks the server group ----------------


def test_claim_found_during_its_owners_group_check_is_answered_once(
    cloud_of: CloudOf,
) -> None:
    """Y is on h1; A claims X there; B finds that and answers; A's check sees Y."""
    cloud = cloud_of("h1", "h2")
    y, x = members = sorted(new_uuids(2))
    anti = group("anti-affinity", members)
    a, b, c = (cloud.make(prefers=["h1", "h2"]) for _ in range(3))
    [on_h1] = c.select([y], instance_group=anti)
    assert on_h1.service_host == "h1"
    answers: list[Selection | SchedulerError] = []
    a.adapter.after(writes(x), lambda: answers.append(b.answer(x, instance_group=anti)))
    answers.append(a.answer(x, instance_group=anti))
    assert len(answers) == 2
    cloud.settle()
    expect_answers_are_held(cloud, x, *answers)


# -- D5, D6: affinity groups of several schedulers -------------------------------------

LARGE = {"vcpus": 512, "memory_mb": 1 << 20, "local_gb": 10_000}
HOSTS = [f"h{number}" for number in range(8)]
N_SEEDS = 2  # tests/simulation draws many more orders


def _hosts_of(answers: Sequence[object]) -> set[str]:
    return {str(a.service_host) for a in answers if isinstance(a, Selection)}


def _counted(n_refused: int, n_apart: int, n_groups: int) -> str:
    return (
        f"{n_refused} of {8 * n_groups} members refused, "
        f"{n_apart} of {n_groups} groups on several hosts"
    )


@pytest.mark.deep
@pytest.mark.parametrize("n_schedulers", [2, 8])
def test_affinity_members_requested_at_once_are_all_placed_together(
    cloud_of: CloudOf, monkeypatch: pytest.MonkeyPatch, n_schedulers: int
) -> None:
    """Eight requests run in turns, a call of Placement each, in orders by seed."""
    cloud = cloud_of(*(host(name, **LARGE) for name in HOSTS))
    turns = Turns(random.Random(0), real_sleep=time.sleep)
    # Not needed once `turns` is handed in as the waiter, too.
    monkeypatch.setattr(time, "sleep", turns.sleep)
    schedulers = [
        cloud.make(
            prefers=[HOSTS[number]],
            adapter=FaultyAdapter(cloud.placement.adapter, step=turns.step),
            parts={"clock": turns.monotonic},
        )
        for number in range(n_schedulers)
    ]
    n_refused, n_apart = 0, 0
    for seed in range(N_SEEDS):
        rng = random.Random(seed)
        turns.reseed(rng)
        members = [str(UUID(int=rng.getrandbits(128), version=4)) for _ in range(8)]
        expected_calls = [
            functools.partial(
                schedulers[number % n_schedulers].answer,
                uuid,
                instance_group=group("affinity", members),
            )
            for number, uuid in enumerate(members)
        ]
        answers = turns.run(expected_calls)
        for uuid, answer in zip(members, answers, strict=True):
            assert isinstance(answer, Selection | SchedulerError), answer
            expect_answers_are_held(cloud, uuid, answer)
            n_refused += isinstance(answer, SchedulerError)
        n_apart += len(_hosts_of(answers)) > 1
    assert n_refused + n_apart == 0, _counted(n_refused, n_apart, N_SEEDS)


@pytest.mark.deep
@pytest.mark.parametrize("n_schedulers", [8])
def test_affinity_members_requested_at_once_in_threads_are_all_placed_together(
    cloud_of: CloudOf, n_schedulers: int
) -> None:
    """The same in the order in which threads happen to run."""
    n_rounds = 2
    cloud = cloud_of(*(host(name, **LARGE) for name in HOSTS))
    schedulers = [cloud.make(prefers=[HOSTS[n]]) for n in range(n_schedulers)]
    n_refused, n_apart = 0, 0
    with ThreadPoolExecutor(8) as pool:
        for _ in range(n_rounds):
            members = group("affinity", new_uuids(8))
            together = threading.Barrier(8)

            def decide(
                number: int,
                members: InstanceGroup = members,
                together: threading.Barrier = together,
            ) -> Selection | SchedulerError:
                together.wait()
                scheduler = schedulers[number % n_schedulers]
                uuid = members.members[number]
                return scheduler.answer(uuid, instance_group=members)

            answers = list(pool.map(decide, range(8)))
            n_refused += sum(isinstance(a, SchedulerError) for a in answers)
            n_apart += len(_hosts_of(answers)) > 1
    assert n_refused + n_apart == 0, _counted(n_refused, n_apart, n_rounds)


@pytest.mark.deep
@pytest.mark.parametrize("n_members", [25, 60])
def test_late_members_of_a_large_affinity_group_are_placed_together(
    cloud_of: CloudOf, n_members: int
) -> None:
    """Each of the last four is claimed before the one that was requested earlier."""
    cloud = cloud_of(*(host(name, **LARGE) for name in HOSTS[:4]))
    members = sorted(new_uuids(n_members))
    affinity = group("affinity", members)
    answers: list[Selection | SchedulerError] = []

    def decide(number: int) -> None:
        scheduler = cloud.make(prefers=[HOSTS[number]])
        uuid = members[-1 - number]
        if number < 3:
            scheduler.adapter.before(
                writes(uuid), functools.partial(decide, number + 1)
            )
        answers.append(scheduler.answer(uuid, instance_group=affinity))

    decide(0)
    assert all(isinstance(answer, Selection) for answer in answers)
    hosts = _hosts_of(answers)
    assert len(hosts) == 1, f"on {len(hosts)} hosts"


# -- D9, D13: what killed processes have left ------------------------------------------


def test_notes_of_two_killed_workers_for_one_instance_leave_no_claim(
    cloud_of: CloudOf, tmp_path: Path
) -> None:
    """B is killed with Y claimed and X to be sent; A with X claimed, Y to be sent.

    So whichever notes are read last, one of the two instances holds what the other
    worker noted.
    """
    cloud = cloud_of("h1", "h2")
    x, y = new_uuids(2)
    left = tmp_path / "left"
    for name, first, second in (("h2", y, x), ("h1", x, y)):
        worker = cloud.make(prefers=[name], claims_directory=tmp_path / f"of-{name}")
        worker.adapter.before(
            writes(second), functools.partial(cloud.kill, worker, left)
        )
        decide = functools.partial(worker.answer, second)
        worker.adapter.after(writes(first), functools.partial(_beside, decide))
        worker.answer(first)
        assert list(cloud.held(first)) == [cloud.node(name)]
    cloud.make(claims_directory=left)
    cloud.settle()
    for uuid in (x, y):
        expect_answers_are_held(cloud, uuid)


class _Disk:
    """A disk with space for so many bytes in a folder; None: unlimited."""

    def __init__(self, folder: Path, write: Callable[[int, Any], int]) -> None:
        self._folder = str(folder)
        self._write = write
        self.room: int | None = None
        self.n_refused = 0

    def write(self, fd: int, data: Any) -> int:
        """Serve as ``os.write``."""
        path = os.readlink(f"/proc/self/fd/{fd}")
        if self.room is None or not path.startswith(self._folder):
            return self._write(fd, data)
        if not self.room:
            self.n_refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(fd, bytes(data)[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 10], ids=["no room", "room for half a line"])
def test_claims_made_while_the_disk_was_full_are_released_after_a_kill(
    cloud_of: CloudOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """X is unsettled; W is answered, Y written to a full disk, Z with space; a kill."""
    cloud = cloud_of("h1")
    notes, left = tmp_path / "notes", tmp_path / "left"
    disk = _Disk(notes, os.write)
    monkeypatch.setattr(os, "write", disk.write)
    w, x, y, z = new_uuids(4)
    a = cloud.make(claims_directory=notes)
    answers: list[Selection | SchedulerError] = []

    def while_x_is_under_way() -> None:
        answers.append(_beside(lambda: a.answer(w)))
        _beside(lambda: a.answer(y))

    def while_y_is_under_way() -> None:
        assert disk.n_refused, "the journal writes by other means than os.write"
        disk.room = None
        _beside(lambda: a.answer(z))

    a.adapter.after(writes(w), lambda: setattr(disk, "room", room))
    a.adapter.after(writes(x), while_x_is_under_way)
    a.adapter.after(writes(y), while_y_is_under_way)
    a.adapter.after(writes(z), functools.partial(cloud.kill, a, left))
    a.answer(x)
    assert all(cloud.held(uuid) for uuid in (w, x, y, z))
    cloud.make(claims_directory=left)
    cloud.settle()
    expect_answers_are_held(cloud, w, *answers)
    for uuid in (x, y, z):
        expect_answers_are_held(cloud, uuid)


def _n_bytes_written() -> int:
    """Return how many bytes this process has written, to whatever."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


@pytest.mark.deep
def test_cost_of_an_entry_does_not_grow_with_open_entries(
    cloud_of: CloudOf, tmp_path: Path
) -> None:
    """Some 50 requests are served while one for 3,000 instances is under way."""
    n_many, n_more = 3_000, 50
    large = {"vcpus": 100_000, "memory_mb": 1 << 24, "local_gb": 1 << 20}
    cloud = cloud_of(host("h1", **large))
    a = cloud.make(claims_directory=tmp_path / "notes")
    n_bytes: list[int] = []

    def serve_others() -> None:
        [file] = (tmp_path / "notes").iterdir()
        n_bytes.append(file.stat().st_size)
        began = _n_bytes_written()
        for uuid in new_uuids(n_more):
            assert isinstance(_beside(functools.partial(a.answer, uuid)), Selection)
        n_bytes.append(_n_bytes_written() - began)

    many = new_uuids(n_many)
    a.adapter.before(writes(many[0]), serve_others)
    a.adapter.fault(FaultKind.AWAY, writes(many[0]))
    with pytest.raises(PlacementError):
        a.select(many, memory_mb=1, root_gb=1)
    size, written = n_bytes
    assert written < 2 * size, f"{n_more} claims wrote {written} bytes beside {size}"


# -- claims of peers, and ages ---------------------------------------------------------


def _announced(a: FaultyScheduler, uuid: str) -> Sequence[dict[str, Any]]:
    """Have a scheduler select for an instance; return what it announces to peers."""
    claims: list[dict[str, Any]] = []
    a.scheduler.publish_claims = lambda news: claims.extend(
        each.to_wire() for each in news
    )
    assert isinstance(a.answer(uuid), Selection)
    assert len(claims) == 1
    return claims


@pytest.mark.parametrize(
    "is_known",
    [True, False],
    ids=["queried after it", "queried before it"],
)
def test_claim_of_a_peer_counts_once(cloud_of: CloudOf, is_known: bool) -> None:
    """A claims; B queries candidates before or after that; then B receives it."""
    cloud = cloud_of(*(host(name, vcpus=3) for name in ("h1", "h2")))
    a, b = (cloud.make(prefers=["h1", "h2"], candidates_max_age=60.0) for _ in range(2))
    x, y, z, last = new_uuids(4)
    claims: Sequence[dict[str, Any]] = []
    if is_known:
        claims = _announced(a, x)
    hosts = [str(b.select([y])[0].service_host)]
    if not is_known:
        claims = _announced(a, x)
    b.scheduler.apply_peer_claims(claims)
    hosts += [str(b.select([uuid])[0].service_host) for uuid in (z, last)]
    assert hosts == ["h1", "h1", "h2"], f"on {hosts}, and h1 has capacity for three"
    assert len(b.adapter.seen(candidates)) == 1
    refused = b.adapter.seen(lambda call: call.verb == "PUT" and call.status != 204)
    assert not refused


def test_claims_are_checked_although_the_clock_went_back(cloud_of: CloudOf) -> None:
    """An allocation is deleted, a minute passes, and the clock is set back an hour."""
    time_ = HandTime()
    cloud = cloud_of("h1")
    a = cloud.make(parts={"clock": time_, "waiter": time_})
    [uuid] = new_uuids()
    assert isinstance(a.answer(uuid), Selection)
    # `build` makes one, too, and runs it in a thread.
    reconciler = ClaimReconciler(
        a.scheduler.table,
        a.scheduler.placement,
        max_age_s=None,
        waiter=time_,
        spawner=ThreadSpawner(),
    )
    reconciler.reconcile()
    cloud.client.delete_allocations(uuid)
    time_.pass_by(60.0)
    time_.wall_s -= 3600.0
    reconciler.reconcile()
    [row] = a.scheduler.table.batch()
    assert row.vcpus_used == 0, "the claim still counts"
