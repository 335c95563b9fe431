# SPDX-License-Identifier: Apache-2.0
"""Two schedulers do not give the last CPUs or devices of a host to two guests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import Selection
from moorage.scheduler.drivers.claims.peer_claims import PeerClaim
from moorage.scheduler.errors import (
    AllocationUpdateFailed,
    NoValidHost,
    PlacementError,
)
from moorage.scheduler.placement.allocations.limits import RESERVATION_GRACE_S
from moorage.testing import builders as b

from ....fixtures.clouds import host, new_uuids
from ....fixtures.faulty_cloud import (
    FaultyCloud,
    FaultyScheduler,
    expect_answers_are_held,
)
from ....fixtures.faulty_placement import Call, FaultKind, writes
from ....fixtures.hand_time import HandTime

FILTERS = ["ComputeFilter", "NUMATopologyFilter", "PciPassthroughFilter"]

#: Placement knows neither: it has 8 vCPUs of each host, for 16 times as many.
CELL = b.numa_topology(b.numa_cell(pcpuset={0, 1}, cpuset={2, 3}))
DEVICE = b.pci_pools(b.pci_pool(1))
GUESTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "pinned CPUs": lambda: {"numa_topology": b.guest_topology(b.guest_cell())},
    "PCI device": lambda: {"pci_requests": b.pci_requests(b.pci_request(1))},
}


@pytest.fixture(params=list(GUESTS))
def guest(request: pytest.FixtureRequest) -> Callable[[], dict[str, Any]]:
    """Make what a guest needs of a host, of which each host has enough for one."""
    return GUESTS[request.param]


@pytest.fixture
def cloud_of(tmp_path: Path) -> Iterator[Callable[..., FaultyCloud]]:
    """Make a cloud of hosts with two pinnable CPUs and one device each."""
    with ExitStack() as stack:

        def make(*names: str) -> FaultyCloud:
            devices = {
                "numa_topology": CELL.obj_to_primitive(),
                "pci_stats": DEVICE.obj_to_primitive(),
            }
            hosts = [host(name, **devices) for name in names]
            return stack.enter_context(FaultyCloud(tmp_path, hosts))

        yield make


class Post:
    """Announcements between schedulers, which arrive when they are delivered."""

    def __init__(self, *schedulers: FaultyScheduler) -> None:
        self._schedulers = schedulers
        self._sent: list[Callable[[], None]] = []
        self.states: list[str] = []
        for each in schedulers:
            each.scheduler.publish_claims = partial(self._publish, each)

    def _publish(self, origin: FaultyScheduler, claims: Sequence[PeerClaim]) -> None:
        self.states += [each.state.value for each in claims]
        wire = [each.to_wire() for each in claims]
        for other in self._schedulers:
            if other is not origin:
                apply = other.scheduler.apply_peer_claims
                self._sent.append(partial(apply, wire))

    def deliver(self) -> None:
        sent, self._sent = self._sent, []
        for each in sent:
            each()


def two_schedulers(
    cloud: FaultyCloud, time: HandTime | None = None
) -> tuple[FaultyScheduler, FaultyScheduler]:
    """Make two, the second with a time of its own if there is one."""
    prefers = ["h1", "h2", "h3"]
    parts = {} if time is None else {"waiter": time}
    return (
        cloud.make(prefers=prefers, filters=FILTERS),
        cloud.make(prefers=prefers, filters=FILTERS, parts=parts),
    )


def hosts_of(*answers: object) -> list[str | None]:
    assert all(isinstance(each, Selection) for each in answers), answers
    return [each.service_host for each in answers if isinstance(each, Selection)]


def results(scheduler: FaultyScheduler) -> list[str]:
    record = scheduler.scheduler.decisions.newest(1)[0]
    return [attempt.result for attempt in record.claims]


def posts(call: Call) -> bool:
    return call.verb == "POST"


def test_later_of_two_guests_leaves_for_another_host(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    """A's reservation reaches B after B selects, before B's claim is granted."""
    cloud = cloud_of("h1", "h2")
    a, other = two_schedulers(cloud)
    post = Post(a, other)
    x, y = new_uuids(2)
    answers: list[object] = []
    a.adapter.before(writes(x), lambda: answers.append(other.answer(y, **guest())))
    other.adapter.before(writes(y), post.deliver)
    answers.append(a.answer(x, **guest()))
    assert hosts_of(*answers) == ["h2", "h1"]
    assert results(other) == ["claimed", "collided", "claimed"]
    assert results(a) == ["claimed"]
    expect_answers_are_held(cloud, y, answers[0])  # type: ignore[arg-type]  # a Selection
    expect_answers_are_held(cloud, x, answers[1])  # type: ignore[arg-type]  # as above
    post.deliver()
    for each in (a, other):
        on = [set(row.instances) for row in each.scheduler.table.batch()]
        assert on == [{x}, {y}], "both know where the guests are"


def test_guest_that_was_announced_is_not_selected_against(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    """A's announcement arrives at B while Placement works on A's claim."""
    cloud = cloud_of("h1", "h2")
    a, other = two_schedulers(cloud)
    post = Post(a, other)
    x, y = new_uuids(2)
    answers: list[object] = []

    def request() -> None:
        post.deliver()
        answers.append(other.answer(y, **guest()))

    a.adapter.before(writes(x), request)
    answers.append(a.answer(x, **guest()))
    assert hosts_of(*answers) == ["h2", "h1"]
    assert results(other) == ["claimed"], "nothing had to be released"


def test_earlier_claim_is_not_kept_beside_a_later_one_that_is_in_use(
    cloud_of: Callable[..., FaultyCloud],
) -> None:
    """B selects the host before A's claim is announced, then gets A's requests, too.

    The first of these requests has B fit all claims again, the earliest first. Then the
    guest of the second one has its CPU, and B's own guest, which is in use, has none.
    """
    cloud = cloud_of("h1")
    a, other = two_schedulers(cloud)
    post = Post(a, other)
    shared, x, y = new_uuids(3)
    of_none = b.guest_topology(b.guest_cell(cpuset={0}, pcpuset=set(), cpu_policy=None))
    assert hosts_of(a.answer(shared, numa_topology=of_none)) == ["h1"]
    post.deliver()
    of_one = {"numa_topology": b.guest_topology(b.guest_cell(pcpuset={0}))}
    of_two = GUESTS["pinned CPUs"]()
    assert hosts_of(a.answer(x, **of_one), other.answer(y, **of_two)) == ["h1", "h1"]
    post.deliver()
    assert hosts_of(other.answer(shared, numa_topology=of_none)) == ["h1"]
    assert isinstance(again := other.answer(x, **of_one), NoValidHost), again


def test_reservation_is_no_claim_that_has_ended(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    """B finds no host, and reviews the claims on them, before A's claim is granted."""
    cloud = cloud_of("h1")
    a, other = two_schedulers(cloud)
    post = Post(a, other)
    x, y = new_uuids(2)
    answers: list[object] = []

    def request() -> None:
        post.deliver()
        answers.append(other.answer(y, **guest()))

    a.adapter.before(writes(x), request)
    answers.append(a.answer(x, **guest()))
    assert isinstance(answers[0], NoValidHost)
    assert hosts_of(answers[1]) == ["h1"]


def test_reservation_of_a_claim_that_failed_is_withdrawn(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    cloud = cloud_of("h1")
    a, other = two_schedulers(cloud)
    post = Post(a, other)
    x, y = new_uuids(2)
    a.adapter.fault(FaultKind.AWAY, writes(x), times=None)
    a.adapter.before(writes(x), post.deliver)
    assert isinstance(a.answer(x, **guest()), PlacementError)
    assert post.states == ["reserved", "withdrawn"]
    post.deliver()
    assert hosts_of(other.answer(y, **guest())) == ["h1"]


@pytest.mark.parametrize("is_reported", [False, True], ids=["granted", "reported"])
def test_withdrawal_spares_what_another_scheduler_was_granted_for_the_instance(
    cloud_of: Callable[..., FaultyCloud],
    guest: Callable[[], dict[str, Any]],
    is_reported: bool,
) -> None:
    """A gives up after the conductor has asked B, which Placement answers."""
    cloud = cloud_of("h1")
    a, other = two_schedulers(cloud, time := HandTime())
    post = Post(a, other)
    x, y = new_uuids(2)
    answers: list[object] = []

    def request() -> None:
        if answers:
            return
        post.deliver()
        time.pass_by(RESERVATION_GRACE_S)  # no longer than a conductor waits
        answers.append(other.answer(x, **guest()))
        post.deliver()
        if is_reported:
            a.scheduler.table.set_instances("h1", [x])
            a.scheduler.table.claims.mark_reported(cloud.node("h1"), [x])

    a.adapter.fault(FaultKind.AWAY, writes(x), times=None)
    a.adapter.before(writes(x), request)
    assert isinstance(a.answer(x, **guest()), PlacementError)
    assert hosts_of(*answers) == ["h1"]
    post.deliver()
    for each in (a, other):
        assert each.scheduler.table.instances.hosts_of(x) == ("h1",)
    assert isinstance(other.answer(y, **guest()), NoValidHost)


def test_reservation_of_a_scheduler_that_died_is_reviewed_before_a_refusal(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    """A dies after its announcement, so that B never hears that it is withdrawn."""
    cloud = cloud_of("h1")
    a, other = two_schedulers(cloud, time := HandTime())
    post = Post(a, other)
    x, y = new_uuids(2)
    a.adapter.fault(FaultKind.AWAY, writes(x), times=None)
    a.adapter.before(writes(x), post.deliver)
    assert isinstance(a.answer(x, **guest()), PlacementError)
    assert isinstance(other.answer(y, **guest()), NoValidHost), "A may be claiming"
    time.pass_by(RESERVATION_GRACE_S)
    assert hosts_of(other.answer(y, **guest())) == ["h1"]


def test_reservation_that_was_granted_survives_the_review(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    """A dies after its claim, so that B never hears that it was granted."""
    cloud = cloud_of("h1")
    a, other = two_schedulers(cloud, time := HandTime())
    post = Post(a, other)
    x, y = new_uuids(2)
    a.adapter.before(writes(x), post.deliver)
    assert hosts_of(a.answer(x, **guest())) == ["h1"]
    time.pass_by(RESERVATION_GRACE_S)
    for _ in range(2):
        assert isinstance(other.answer(y, **guest()), NoValidHost)


def given_away_during(
    scheduler: FaultyScheduler,
    time: HandTime,
    x: str,
    y: str,
    guest: Callable[[], dict[str, Any]],
) -> list[object]:
    """Have y placed on h1 while the claim for x is late; its answer comes first."""
    answers: list[object] = []

    def request() -> None:
        time.pass_by(RESERVATION_GRACE_S)
        answers.append(scheduler.answer(y, ignore_hosts=["h2"], **guest()))

    scheduler.adapter.before(writes(x), request)
    return answers


def test_guest_whose_device_was_given_away_while_it_was_claimed_gets_another_host(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    """Placement answers so late that its reservation seems to be of one that ended."""
    cloud = cloud_of("h1", "h2")
    _, other = two_schedulers(cloud, time := HandTime())
    x, y = new_uuids(2)
    answers = given_away_during(other, time, x, y, guest)
    answers.append(other.answer(x, **guest()))
    assert hosts_of(*answers) == ["h1", "h2"]
    expect_answers_are_held(cloud, y, answers[0])  # type: ignore[arg-type]  # a Selection
    expect_answers_are_held(cloud, x, answers[1])  # type: ignore[arg-type]  # as above


def test_unanswered_claim_whose_device_was_given_away_is_not_kept(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    """It is found, so that it may be that of another request."""
    cloud = cloud_of("h1", "h2")
    _, other = two_schedulers(cloud, time := HandTime())
    x, y = new_uuids(2)
    answers = given_away_during(other, time, x, y, guest)
    other.adapter.fault(FaultKind.LOST, writes(x), times=2)
    refused = other.answer(x, **guest())
    assert isinstance(refused, AllocationUpdateFailed)
    assert hosts_of(*answers) == ["h1"]


def test_instance_of_a_request_for_two_leaves_for_another_host(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    """A selects two hosts; B's reservation of the first arrives before A's claim."""
    cloud = cloud_of("h1", "h2", "h3")
    a, other = two_schedulers(cloud)
    post = Post(a, other)
    y, *several = new_uuids(3)
    answers: list[Selection] = []
    other.adapter.before(
        writes(y), lambda: answers.extend(a.select(several, **guest()))
    )
    a.adapter.before(posts, post.deliver)
    assert hosts_of(other.answer(y, **guest())) == ["h1"]
    assert sorted(map(str, hosts_of(*answers))) == ["h2", "h3"]
    assert results(a) == ["claimed", "collided", "claimed"]
    for uuid, answer in zip(several, answers, strict=True):
        expect_answers_are_held(cloud, uuid, answer)


def test_guest_is_not_checked_where_no_filter_checks_it(
    cloud_of: Callable[..., FaultyCloud], guest: Callable[[], dict[str, Any]]
) -> None:
    cloud = cloud_of("h1")
    scheduler = cloud.make(filters=["ComputeFilter"])
    post = Post(scheduler)
    for uuid in new_uuids(2):
        assert hosts_of(scheduler.answer(uuid, **guest())) == ["h1"]
    assert set(post.states) == {"granted"}, "nothing is reserved"
