# SPDX-License-Identifier: Apache-2.0
"""Orphaned allocations are released, and allocations in use never are."""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from moorage.scheduler.errors import PlacementError, PlacementUnavailable
from moorage.scheduler.instances import InstanceLocation, InstanceState
from moorage.scheduler.placement.allocations.claims import Claim
from moorage.scheduler.placement.allocations.engine import AllocationsInDoubt
from moorage.scheduler.placement.allocations.limits import (
    CIRCUIT_MAX_FAILURES,
    LATE_WRITE_S,
    MAX_WRITES,
)
from moorage.scheduler.placement.allocations.orphans import Orphan, Orphans
from moorage.scheduler.placement.answers import ConsumerAllocations
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.health import PlacementHealth
from moorage.scheduler.placement.seed import Provider, seed

from ....fixtures.allocations import OWNER, claim_one, release_all, request_of
from ....fixtures.hand_time import HandThreads, HandTime
from ....fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ....fixtures.waiting import wait_until
from ..two_hosts import HOST, OTHER
from ..watched import Clock

TIMEOUT_S = 300.0
#: Evidence that an instance does not use an allocation.
NOT_IN_USE = (InstanceState.GONE, InstanceState.ELSEWHERE)


def _orphans(client: PlacementClient, **more: Any) -> Orphans:
    return Orphans(client, rng=random.Random(1), **more)


def _consumer() -> str:
    return str(uuid.uuid4())


def _claimed(placement: EmbeddedPlacementFixture, provider: str) -> tuple[str, Claim]:
    """A claim that Placement granted."""
    consumer = _consumer()
    answer = claim_one(placement.client, consumer, request_of(provider))
    return consumer, answer.claims[consumer]


def _orphaned(claim: Claim, **more: Any) -> Orphan:
    return Orphan(claim, OWNER, **more)


def _unanswered(named_generation: int | None) -> Claim:
    """A claim of which a write that named a generation got no answer."""
    return Claim(request_of(HOST), named_generation=named_generation, is_in_flight=True)


def _doubted(claim: Claim) -> Claim:
    """The same claim, of a process that does not know whether it was granted."""
    return replace(claim, generation=None, is_ours=False)


def _doubtful(server: MisbehavingServer, consumer: str, **more: Any) -> Claim:
    """A claim that arrives late, while Placement cannot be queried about it."""
    is_evacuated, n_late = bool(more), more.pop("n_late", 1)
    client = server.client()
    allocations, n_reads = client.allocations, itertools.count(0)

    def away_after_the_first(*args: Any, **kwargs: Any) -> Any:
        if not is_evacuated or next(n_reads):
            raise PlacementUnavailable("no answer")
        return allocations(*args, **kwargs)

    client.allocations = away_after_the_first
    if is_evacuated and n_late == 1:
        server.misbehave_second(Misbehaviour.LATE, verb="PUT")
    else:
        server.misbehave(Misbehaviour.LATE, verb="PUT", times=n_late)
    with pytest.raises(AllocationsInDoubt) as raised:
        claim_one(client, consumer, request_of(HOST), waiter=HandTime(), **more)
    return raised.value.unresolved[consumer]


def _held(placement: EmbeddedPlacementFixture, consumer: str) -> Any:
    return placement.client.allocations(consumer).resources


def _write_again(client: PlacementClient, consumer: str) -> None:
    """Write what a consumer holds as it is, which raises its generation."""
    held = client.allocations(consumer)
    body = {
        "allocations": {u: {"resources": r} for u, r in held.resources.items()},
        "consumer_generation": held.consumer_generation,
        **OWNER,
    }
    assert client.put_allocations(consumer, body).is_done


def _after_write(client: Any, number: int, run: Callable[[], object]) -> None:
    """Run something after a write of a client, by number, whatever its answer."""
    write, n_writes = client.write, itertools.count(1)

    def write_and_run(*args: Any, **more: Any) -> Any:
        is_it = next(n_writes) == number
        try:
            return write(*args, **more)
        finally:
            if is_it:
                run()

    client.write = write_and_run


class Watched:
    """Orphans whose thread runs in virtual time, with the evidence that they get."""

    def __init__(self, client: PlacementClient) -> None:
        self.time = HandTime()
        self._threads = HandThreads(self.time)
        self.state = InstanceState.UNKNOWN
        self.is_settled = True
        self.queried: set[tuple[str, ...]] = set()
        self.resolved: list[str] = []
        self.orphans = _orphans(
            client,
            locate=self._locate,
            evidence_timeout_s=lambda: TIMEOUT_S,
            waiter=self.time,
            spawner=self._threads,
        )

    def _locate(self, uuid: str, providers: Collection[str]) -> InstanceLocation:
        self.queried.add((uuid, *providers))
        return InstanceLocation(self.state, is_settled=self.is_settled)

    def add(self, consumer: str, claim: Claim, **more: Any) -> None:
        on_resolved = lambda: self.resolved.append(consumer)  # noqa: E731 - it is one
        self.orphans.add(consumer, _orphaned(claim, on_resolved=on_resolved, **more))

    def run_for(self, seconds: float) -> None:
        self._threads.run_for(seconds)


@pytest.fixture
def watched(placement: EmbeddedPlacementFixture) -> Watched:
    return Watched(placement.client)


# -- what is held no longer, or was written since --------------------------------------
def test_what_is_held_for_another_reason_is_left_alone(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer, claim = _claimed(placement, OTHER)
    orphans = _orphans(placement.client)
    orphans.add(consumer, _orphaned(replace(claim, request=request_of(HOST))))
    orphans.stop()
    assert not orphans
    assert _held(placement, consumer) == {OTHER: {"VCPU": 1}}


def test_claim_of_another_request_after_a_release_without_an_answer_is_not_released(
    placement: EmbeddedPlacementFixture,
) -> None:
    """It is at the generation at which the released claim was: they begin at 1."""
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        client = server.client()
        allocations, n_reads = client.allocations, itertools.count(1)

        def away_after_the_second(*args: Any, **kwargs: Any) -> Any:
            if next(n_reads) > 2 and _held(placement, consumer) == {}:
                raise PlacementUnavailable("no answer")
            return allocations(*args, **kwargs)

        client.allocations = away_after_the_second
        server.misbehave_second(Misbehaviour.LOST, verb="PUT")
        watched = Watched(client)
        watched.state = InstanceState.PENDING
        watched.add(consumer, claim)
        watched.run_for(TIMEOUT_S / 10)
        assert not _held(placement, consumer), "it was released, without an answer"
        claim_one(placement.client, consumer, request_of(HOST))
        watched.run_for(TIMEOUT_S)
    assert _held(placement, consumer)


def test_claim_that_was_granted_is_not_ours_again_after_the_release_of_a_later_one(
    placement: EmbeddedPlacementFixture,
) -> None:
    """Two requests here left an orphan each; a third claims before both are checked."""
    other, client = placement.client, PlacementClient(placement.adapter)
    consumer, granted = _claimed(placement, HOST)
    later = claim_one(other, consumer, request_of(HOST)).claims[consumer]
    watched = Watched(client)

    def claim_again() -> None:
        claim_one(other, consumer, request_of(HOST))
        watched.state = InstanceState.PENDING

    _after_write(client, 2, claim_again)
    watched.state = InstanceState.GONE
    watched.add(consumer, _doubted(later))
    watched.add(consumer, granted)
    watched.run_for(TIMEOUT_S / 2)
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def test_claim_of_a_running_request_is_not_that_of_a_repeated_one(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    """Both are deliveries of one request; the claim of the first was released."""
    consumer, granted = _claimed(placement, HOST)
    of_running_request = watched.orphans.granted_claims()
    of_running_request[consumer] = granted
    assert placement.client.delete_allocations(consumer)
    late = watched.orphans.late_generations([consumer])
    claim_one(placement.client, consumer, request_of(HOST), final_above=late)
    generation = placement.client.allocations(consumer).consumer_generation or 0
    assert not granted.is_still_ours(generation)
    del of_running_request
    assert not watched.orphans.late_generations([consumer])


@pytest.mark.parametrize("is_ours", [True, False], ids=["granted", "in doubt"])
@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
def test_what_another_request_has_taken_over_needs_evidence(
    placement: EmbeddedPlacementFixture,
    watched: Watched,
    is_ours: bool,
    state: InstanceState,
) -> None:
    """That request may have answered it; if it failed, nobody else releases it."""
    consumer, claim = _claimed(placement, HOST)
    assert claim_one(placement.client, consumer, request_of(HOST)).is_found
    watched.state = state
    watched.add(consumer, claim if is_ours else _doubted(claim))
    watched.run_for(2 * TIMEOUT_S)
    is_known = state in (*NOT_IN_USE, InstanceState.ON_HOST)
    assert watched.resolved == ([consumer] if is_known else [])
    assert watched.orphans.suspected == ([] if is_known else [consumer])
    is_released = state in NOT_IN_USE
    assert _held(placement, consumer) == ({} if is_released else {HOST: {"VCPU": 1}})


@pytest.mark.parametrize(
    "state", [InstanceState.GONE, InstanceState.PENDING, InstanceState.ON_HOST]
)
def test_what_is_taken_over_while_it_is_released_needs_evidence(
    placement: EmbeddedPlacementFixture, state: InstanceState
) -> None:
    consumer, claim = _claimed(placement, HOST)
    other, client = placement.client, PlacementClient(placement.adapter)
    write = client.write
    takes_over = iter([True])
    watched = Watched(client)

    def after_a_takeover(*args: Any, **more: Any) -> Any:
        if next(takes_over, False):
            assert claim_one(other, consumer, request_of(HOST)).is_found
            watched.state = state
        return write(*args, **more)

    client.write = after_a_takeover
    watched.state = InstanceState.PENDING
    watched.add(consumer, claim)
    watched.run_for(2 * TIMEOUT_S)
    is_pending = state is InstanceState.PENDING
    assert watched.resolved == ([] if is_pending else [consumer])
    assert watched.orphans.suspected == ([consumer] if is_pending else [])
    is_released = state is InstanceState.GONE
    assert _held(placement, consumer) == ({} if is_released else {HOST: {"VCPU": 1}})


def test_claim_of_a_new_request_is_not_mistaken_for_the_orphan(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer, claim = _claimed(placement, HOST)
    orphans = _orphans(placement.client)
    allocations = placement.client.allocations
    has_looked, may_go_on = threading.Event(), threading.Event()

    def slow(uuid: str, **more: Any) -> Any:
        held = allocations(uuid, **more)
        if threading.current_thread().name == "orphans":
            has_looked.set()
            may_go_on.wait(60)
        return held

    placement.client.allocations = slow  # type: ignore[assignment]  # accepts any
    orphans.add(consumer, _orphaned(claim))
    assert has_looked.wait(60)

    def claim_anew() -> None:
        orphans.release_before_new_claim([consumer])
        claim_one(placement.client, consumer, request_of(HOST))

    request = threading.Thread(target=claim_anew)
    request.start()
    request.join(0.5)  # without the lock it would have claimed by now
    may_go_on.set()
    request.join()
    orphans.stop()
    assert allocations(consumer).resources == {HOST: {"VCPU": 1}}


def test_release_whose_answer_is_lost_spares_a_later_claim(
    placement: EmbeddedPlacementFixture,
) -> None:
    """The generations of a consumer that was emptied restart."""
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        client = server.client()
        other, request = placement.client, request_of(HOST)
        _after_write(client, 2, lambda: claim_one(other, consumer, request))
        server.misbehave_second(Misbehaviour.LOST, verb="PUT")
        orphans = _orphans(client, waiter=HandTime())
        orphans.add(consumer, _orphaned(claim))
        orphans.stop()
    assert not orphans
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def test_release_without_an_answer_goes_on_with_new_evidence_only(
    placement: EmbeddedPlacementFixture,
) -> None:
    """The instance was gone, and is requested again before the answer is missed."""
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        client = server.client()
        watched = Watched(client)

        def claim_anew() -> None:
            assert placement.client.delete_allocations(consumer)
            claim_one(placement.client, consumer, request_of(HOST))
            watched.state = InstanceState.PENDING

        _after_write(client, 1, claim_anew)
        server.misbehave(Misbehaviour.LOST, verb="PUT")
        watched.state = InstanceState.GONE
        watched.add(consumer, _doubted(claim))
        watched.run_for(TIMEOUT_S / 2)
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


@pytest.mark.parametrize(
    "state", [InstanceState.PENDING, InstanceState.ON_HOST, InstanceState.UNKNOWN]
)
def test_release_whose_first_write_was_slow_goes_on_with_new_evidence_only(
    placement: EmbeddedPlacementFixture, state: InstanceState
) -> None:
    """The instance was gone, and is requested again while that write is on its way."""
    consumer, claim = _claimed(placement, HOST)
    client = PlacementClient(placement.adapter)
    watched = Watched(client)
    _after_write(client, 1, lambda: setattr(watched, "state", state))
    watched.state = InstanceState.GONE
    watched.add(consumer, _doubted(claim))
    watched.run_for(TIMEOUT_S)
    held = placement.client.allocations(consumer)
    assert held.resources == {HOST: {"VCPU": 1}}
    assert (held.consumer_generation or 0) % 2 == 1
    assert watched.orphans.suspected == (
        [] if state is InstanceState.ON_HOST else [consumer]
    )


def test_what_is_in_use_is_left_at_an_odd_generation(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    """A release that was not finished has left it at an even one."""
    consumer, claim = _claimed(placement, HOST)
    _write_again(placement.client, consumer)
    watched.state = InstanceState.ON_HOST
    watched.add(consumer, _doubted(claim))
    watched.run_for(TIMEOUT_S)
    assert watched.resolved == [consumer]
    held = placement.client.allocations(consumer)
    assert held.resources == {HOST: {"VCPU": 1}}
    assert (held.consumer_generation or 0) % 2 == 1


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_was_claimed_while_the_instance_left_its_host_is_released(
    placement: EmbeddedPlacementFixture, watched: Watched, is_settled: bool
) -> None:
    """It was shelved, had been freed, and a request was delivered a second time."""
    consumer, claim = _claimed(placement, HOST)
    watched.state, watched.is_settled = InstanceState.ON_HOST, is_settled
    watched.add(consumer, _doubted(claim))
    watched.run_for(TIMEOUT_S / 4)
    assert watched.resolved == ([consumer] if is_settled else [])
    assert not watched.orphans
    watched.state = InstanceState.GONE
    watched.run_for(TIMEOUT_S)
    assert bool(_held(placement, consumer)) is is_settled


def test_what_is_in_use_and_cannot_be_written_again_is_in_doubt_for_a_while(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    """Its generation stays even."""
    consumer, claim = _claimed(placement, HOST)
    _write_again(placement.client, consumer)
    larger_only = {"VCPU": {"total": 8, "min_unit": 2}}
    seed(placement.client, [Provider(HOST, HOST, larger_only)])
    watched.state = InstanceState.ON_HOST
    watched.add(consumer, _doubted(claim))
    watched.run_for(LATE_WRITE_S / 2)
    assert watched.resolved == []
    watched.run_for(LATE_WRITE_S)
    assert watched.resolved == [consumer]
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def test_write_of_a_release_that_arrives_late_replaces_no_later_claim(
    placement: EmbeddedPlacementFixture,
) -> None:
    """The first one raises the generation, and writes the claim again for that."""
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        watched = Watched(server.client())
        server.misbehave(Misbehaviour.LATE, verb="PUT", times=1)
        watched.state = InstanceState.PENDING
        watched.add(consumer, claim)
        watched.run_for(TIMEOUT_S)
        assert _held(placement, consumer) == {}
        late = watched.orphans.late_generations([consumer])
        claimed = claim_one(
            placement.client, consumer, request_of(OTHER), final_above=late
        )
        assert claimed.claims
        server.let_late_ones_go()
    assert _held(placement, consumer) == {OTHER: {"VCPU": 1}}
    watched.run_for(LATE_WRITE_S)
    assert not watched.orphans
    assert _held(placement, consumer) == {OTHER: {"VCPU": 1}}


def test_what_is_in_use_is_not_written_again_for_an_answered_write_of_a_release(
    placement: EmbeddedPlacementFixture,
) -> None:
    """It would be at the generation of the removal, which may be late, for a moment."""
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        client = server.client()
        watched = Watched(client)

        def claim_anew() -> None:
            assert placement.client.delete_allocations(consumer)
            claim_one(placement.client, consumer, request_of(OTHER))
            watched.state = InstanceState.ON_HOST

        _after_write(client, 2, claim_anew)
        server.misbehave_second(Misbehaviour.LATE, verb="PUT")
        watched.state = InstanceState.GONE
        watched.add(consumer, replace(_doubted(claim), is_in_flight=True))
        watched.run_for(TIMEOUT_S)
        server.let_late_ones_go()
    held = placement.client.allocations(consumer)
    assert held.resources == {OTHER: {"VCPU": 1}}
    assert held.consumer_generation == 1


# -- what may be claimed late ----------------------------------------------------------
def test_claim_still_in_transit_is_never_executed(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer = _consumer()
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        claim = _doubtful(server, consumer)
        is_pending = InstanceLocation(InstanceState.PENDING)
        orphans = _orphans(placement.client, locate=lambda *_: is_pending)
        orphans.add(consumer, _orphaned(claim))
        orphans.stop()
        assert not orphans
        server.let_late_ones_go()
    assert _held(placement, consumer) == {}


@pytest.mark.parametrize(
    ("state", "is_watched"),
    [
        (InstanceState.ON_HOST, False),
        (InstanceState.ELSEWHERE, False),
        (InstanceState.UNKNOWN, False),
        (InstanceState.PENDING, True),
    ],
)
def test_consumer_that_nova_may_write_does_not_come_to_exist(
    placement: EmbeddedPlacementFixture,
    watched: Watched,
    state: InstanceState,
    is_watched: bool,
) -> None:
    """A move that fails, or the build of an answered instance: nova names None."""
    consumer = _consumer()
    watched.state = state
    watched.add(consumer, _unanswered(None), is_watched=is_watched)
    watched.run_for(LATE_WRITE_S / 2)
    back = {**request_of(HOST), **OWNER, "consumer_generation": None}
    assert placement.client.put_allocations(consumer, back).is_done


@pytest.mark.parametrize("n_late", [1, 2])
def test_evacuation_still_in_transit_is_never_executed(
    placement: EmbeddedPlacementFixture, n_late: int
) -> None:
    consumer, _ = _claimed(placement, OTHER)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        claim = _doubtful(server, consumer, evacuated_from={OTHER}, n_late=n_late)
        orphans = _orphans(placement.client)
        orphans.add(consumer, _orphaned(claim))
        orphans.stop()
        assert not orphans
        server.let_late_ones_go()
    held = placement.client.allocations(consumer)
    assert held.resources == {OTHER: {"VCPU": 1}}
    assert (held.consumer_generation or 0) % 2 == 1, "what is in use"


def test_late_claim_for_a_known_consumer_that_is_empty_is_watched_for(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    """Nothing but a claim changes the generation of such a consumer."""
    consumer, client = _consumer(), placement.client
    nothing = {"allocations": {}, "consumer_generation": None, **OWNER}
    assert client.put_allocations(consumer, nothing).is_done
    body = {**request_of(HOST), "consumer_generation": None, **OWNER}
    refused = client.put_allocations(consumer, body)
    named = int(refused.detail.partition("expected ")[2].split()[0])
    watched.add(consumer, _unanswered(named))
    watched.run_for(100)
    assert len(watched.orphans) == 1
    body["consumer_generation"] = named
    assert client.put_allocations(consumer, body).is_done, "it arrives"
    watched.state = InstanceState.GONE
    watched.run_for(100)
    assert _held(placement, consumer) == {}
    watched.run_for(LATE_WRITE_S)
    assert watched.resolved == [consumer]


def test_known_consumer_that_is_empty_is_forgotten_once_no_write_may_be_late(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer = _consumer()
    nothing = {"allocations": {}, "consumer_generation": None, **OWNER}
    assert placement.client.put_allocations(consumer, nothing).is_done
    watched.add(consumer, _unanswered(1))
    watched.run_for(LATE_WRITE_S - 1)
    assert len(watched.orphans) == 1
    watched.run_for(62)
    assert not watched.orphans


def test_empty_consumer_is_forgotten_if_no_write_is_in_transit(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, claim = _claimed(placement, HOST)
    release_all(placement.client, {consumer: claim})
    watched.add(consumer, claim)
    watched.run_for(2)
    assert watched.resolved == [consumer]
    assert claim_one(placement.client, consumer, request_of(HOST)).n_attempts == 1, (
        "the write did not reach Placement"
    )


def test_released_claim_is_not_restored_by_a_late_write(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, claim = _claimed(placement, HOST)
    watched.state = InstanceState.GONE
    watched.add(consumer, replace(_doubted(claim), is_in_flight=True))
    watched.run_for(2)
    assert _held(placement, consumer) == {}
    late = {**request_of(HOST), "consumer_generation": None, **OWNER}
    assert not placement.client.put_allocations(consumer, late).is_done
    assert not watched.orphans
    assert watched.resolved == [], "it is watched for as long as it may come"
    watched.run_for(LATE_WRITE_S + 62)
    assert watched.resolved == [consumer]


# -- what is held as it was claimed ----------------------------------------------------
def test_orphan_is_released_once_placement_answers(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.ERROR, verb="GET", times=1)
        orphans = _orphans(server.client())
        orphans.add(consumer, _orphaned(claim))
        wait_until(lambda: not orphans)
        orphans.stop()
    assert _held(placement, consumer) == {}


def test_interrupted_release_of_ours_continues(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, claim = _claimed(placement, HOST)
    _write_again(placement.client, consumer)
    watched.add(consumer, claim)
    watched.run_for(2)
    assert watched.resolved == [consumer]
    assert _held(placement, consumer) == {}


@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
def test_what_placement_granted_us_is_released_unless_it_is_in_use(
    placement: EmbeddedPlacementFixture, watched: Watched, state: InstanceState
) -> None:
    # Generations restart: a later request may have claimed the same at the same one.
    consumer, claim = _claimed(placement, HOST)
    watched.state = state
    watched.add(consumer, claim)
    watched.run_for(2)
    assert watched.resolved == [consumer]
    is_in_use = state is InstanceState.ON_HOST
    assert _held(placement, consumer) == ({HOST: {"VCPU": 1}} if is_in_use else {})


def test_evacuation_that_was_granted_is_released_and_the_source_stays(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, _ = _claimed(placement, OTHER)
    answer = claim_one(
        placement.client, consumer, request_of(HOST), evacuated_from={OTHER}
    )
    watched.add(consumer, answer.claims[consumer])
    watched.run_for(2)
    held = placement.client.allocations(consumer)
    assert held.resources == {OTHER: {"VCPU": 1}}
    assert (held.consumer_generation or 0) % 2 == 1, "what is in use"


# -- evidence --------------------------------------------------------------------------
@pytest.mark.parametrize("state", NOT_IN_USE, ids=lambda state: state.name)
@pytest.mark.parametrize("generation", [1, 2])
def test_what_is_in_doubt_is_released_once_its_instance_is_not_there(
    placement: EmbeddedPlacementFixture,
    watched: Watched,
    generation: int,
    state: InstanceState,
) -> None:
    consumer, claim = _claimed(placement, HOST)
    if generation == 2:  # another request may be about to take it over
        _write_again(placement.client, consumer)
    watched.add(consumer, _doubted(claim))
    watched.run_for(2)
    assert _held(placement, consumer)
    watched.state = state
    watched.run_for(4)
    assert watched.queried == {(consumer, HOST)}
    assert watched.resolved == [consumer]
    assert _held(placement, consumer) == {}


def test_what_is_in_doubt_is_kept_once_its_instance_is_on_a_host(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, claim = _claimed(placement, HOST)
    watched.add(consumer, _doubted(claim))
    watched.state = InstanceState.PENDING
    watched.run_for(TIMEOUT_S - 1)
    watched.state = InstanceState.ON_HOST
    watched.run_for(2)
    assert watched.resolved == [consumer]
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


@pytest.mark.parametrize("state", [InstanceState.UNKNOWN, InstanceState.PENDING])
def test_what_no_evidence_explains_is_reported_once_and_kept(
    placement: EmbeddedPlacementFixture,
    watched: Watched,
    caplog: pytest.LogCaptureFixture,
    state: InstanceState,
) -> None:
    """Slow builds, a nova-compute that restarts, and agents that are away pend."""
    consumer, claim = _claimed(placement, HOST)
    watched.state = state
    watched.add(consumer, _doubted(claim))
    watched.run_for(TIMEOUT_S - 1)
    assert watched.orphans.suspected == []
    watched.run_for(20 * TIMEOUT_S)
    assert watched.orphans.suspected == [consumer]
    text = f"Suspected orphan: consumer {consumer} holds an allocation of the resource"
    assert caplog.text.count(text) == 1
    assert HOST in caplog.text
    assert f"resource provider allocation delete {consumer}" in caplog.text
    assert len(watched.orphans) == 1
    assert watched.resolved == []
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def _doubtful_evacuation(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> tuple[str, dict[str, Any]]:
    """Add an evacuation of whose claim it is not known who made it."""
    consumer, _ = _claimed(placement, OTHER)
    source = _held(placement, consumer)
    answer = claim_one(
        placement.client, consumer, request_of(HOST), evacuated_from={OTHER}
    )
    watched.add(consumer, _doubted(answer.claims[consumer]))
    return consumer, source


@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
def test_evacuation_in_doubt_is_settled_by_where_the_instance_is(
    placement: EmbeddedPlacementFixture, watched: Watched, state: InstanceState
) -> None:
    """Once it is over: on the source, ELSEWHERE; on the destination, ON_HOST."""
    consumer, source = _doubtful_evacuation(placement, watched)
    watched.state = state
    watched.run_for(TIMEOUT_S - 1)
    is_known = state in (*NOT_IN_USE, InstanceState.ON_HOST)
    assert watched.resolved == ([consumer] if is_known else [])
    if state is InstanceState.GONE:
        source = {}
    is_released = state in NOT_IN_USE
    assert (_held(placement, consumer) == source) is is_released


@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
def test_what_was_added_is_released_after_the_evacuated_host_was_removed(
    placement: EmbeddedPlacementFixture, watched: Watched, state: InstanceState
) -> None:
    consumer, _ = _claimed(placement, OTHER)
    source = _held(placement, consumer)
    answer = claim_one(
        placement.client, consumer, request_of(HOST), evacuated_from={OTHER}
    )
    claimed = answer.claims[consumer]
    assert claimed.before is not None
    # When HOST was added, the instance held a third host, which a conductor removed.
    before = replace(claimed.before, resources={**source, _consumer(): {"VCPU": 1}})
    watched.add(consumer, replace(claimed, before=before))
    watched.state = state
    watched.run_for(TIMEOUT_S - 1)
    if state is InstanceState.GONE:
        source = {}
    is_released = state in NOT_IN_USE
    assert (_held(placement, consumer) == source) is is_released


def test_what_was_added_is_released_if_the_evacuated_host_is_removed_meanwhile(
    placement: EmbeddedPlacementFixture,
) -> None:
    """Two writes of a conductor come before the first one of the release."""
    other, client = placement.client, PlacementClient(placement.adapter)
    consumer, _ = _claimed(placement, OTHER)
    answer = claim_one(other, consumer, request_of(HOST), evacuated_from={OTHER})
    write, writes = client.write, itertools.count()
    watched = Watched(client)

    def after_the_removal(*args: Any, **more: Any) -> Any:
        for _ in range(0 if next(writes) else 2):
            generation = other.allocations(consumer).consumer_generation
            body = {**request_of(HOST), **OWNER, "consumer_generation": generation}
            assert other.put_allocations(consumer, body).is_done
        return write(*args, **more)

    client.write = after_the_removal
    watched.state = InstanceState.PENDING
    watched.add(consumer, answer.claims[consumer])
    watched.run_for(TIMEOUT_S / 2)
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}
    watched.state = InstanceState.ELSEWHERE
    watched.run_for(TIMEOUT_S)
    assert not _held(placement, consumer)
    assert watched.resolved == [consumer]


@pytest.mark.parametrize("known", ["both", "earlier", "later"])
def test_what_two_requests_for_an_evacuation_have_added_is_released(
    placement: EmbeddedPlacementFixture, watched: Watched, known: str
) -> None:
    """Each scheduler releases what it has added, whatever another has added since."""
    consumer, _ = _claimed(placement, OTHER)
    source, third = _held(placement, consumer), _consumer()
    inventory = {"VCPU": {"total": 1}}
    seed(placement.client, [Provider(third, third, inventory)])
    for target, name in ((HOST, "earlier"), (third, "later")):
        held = placement.client.allocations(consumer)
        answer = claim_one(
            placement.client,
            consumer,
            request_of(target),
            evacuated_from=frozenset(held.resources),
        )
        claim = replace(_doubted(answer.claims[consumer]), is_in_flight=True)
        if known in (name, "both"):
            watched.add(consumer, claim)
    watched.state = InstanceState.PENDING
    watched.run_for(TIMEOUT_S / 4)
    watched.state = InstanceState.ELSEWHERE
    watched.run_for(TIMEOUT_S)
    left = {"both": [], "earlier": [third], "later": [HOST]}[known]
    assert _held(placement, consumer).keys() == {*source, *left}


def test_late_write_that_names_no_evacuated_host_is_released(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    """It was sent before it was known what the instance held, and arrives after it."""
    consumer, late = _claimed(placement, HOST)
    before = ConsumerAllocations({OTHER: {"VCPU": 1}}, 1, **OWNER)
    watched.state = InstanceState.GONE
    watched.add(
        consumer,
        replace(_doubted(late), before=before, is_in_flight=True),
        is_watched=True,
    )
    watched.run_for(TIMEOUT_S)
    assert not _held(placement, consumer)


def test_advice_for_an_evacuation_keeps_the_allocation_on_the_source(
    placement: EmbeddedPlacementFixture,
    watched: Watched,
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer, _ = _doubtful_evacuation(placement, watched)
    watched.run_for(2 * TIMEOUT_S)
    assert watched.orphans.suspected == [consumer]
    assert f"allocation unset --provider {HOST} {consumer}" in caplog.text
    assert "for an evacuation" in caplog.text
    assert OTHER not in caplog.text
    assert "allocation delete" not in caplog.text


def test_suspected_orphan_is_released_once_there_is_evidence(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, claim = _claimed(placement, HOST)
    watched.add(consumer, _doubted(claim))
    watched.run_for(2 * TIMEOUT_S)
    watched.state = InstanceState.GONE
    watched.run_for(62)
    assert watched.orphans.suspected == []
    assert _held(placement, consumer) == {}


@pytest.mark.parametrize("is_ours", [True, False], ids=["granted", "in doubt"])
def test_orphan_of_an_instance_that_was_claimed_for_since_is_forgotten(
    placement: EmbeddedPlacementFixture, watched: Watched, is_ours: bool
) -> None:
    consumer, claim = _claimed(placement, HOST)
    watched.add(consumer, claim if is_ours else _doubted(claim))
    watched.orphans.forget_claimed({_consumer(): claim, consumer: claim})
    assert watched.resolved == [consumer]
    watched.state = InstanceState.GONE
    watched.run_for(2)
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def test_orphan_of_another_claim_of_an_answered_instance_is_not_forgotten(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    """A later claim of another request may have replaced what was answered."""
    consumer, claim = _claimed(placement, HOST)
    watched.add(consumer, _doubted(claim))
    watched.orphans.forget_claimed(
        {consumer: replace(claim, request=request_of(OTHER))}
    )
    watched.state = InstanceState.GONE
    watched.run_for(TIMEOUT_S)
    assert watched.resolved == [consumer]
    assert _held(placement, consumer) == {}


@pytest.mark.parametrize("provider", [HOST, OTHER])
def test_orphan_of_which_another_scheduler_published_the_same_needs_evidence(
    placement: EmbeddedPlacementFixture, watched: Watched, provider: str
) -> None:
    """The other claim is in use, or was released before the orphan was claimed."""
    consumer, claim = _claimed(placement, HOST)
    watched.state = InstanceState.PENDING
    watched.add(consumer, claim)
    watched.orphans.doubt(_consumer(), {provider: {"VCPU": 1}})
    watched.orphans.doubt(consumer, {provider: {"VCPU": 1}})
    watched.run_for(TIMEOUT_S / 2)
    assert bool(_held(placement, consumer)) is (provider == HOST)
    watched.state = InstanceState.GONE
    watched.run_for(TIMEOUT_S)
    assert _held(placement, consumer) == {}
    assert watched.resolved == [consumer]


@pytest.mark.parametrize("written", [1, 2])
def test_orphan_that_another_request_wrote_since_needs_evidence(
    placement: EmbeddedPlacementFixture, watched: Watched, written: int
) -> None:
    """Its generation may be that of a third claim, once the consumer was deleted."""
    consumer, claim = _claimed(placement, HOST)
    watched.state = InstanceState.PENDING
    watched.add(consumer, claim)
    watched.add(consumer, replace(_doubted(claim), written_generation=written))
    watched.run_for(TIMEOUT_S / 2)
    assert bool(_held(placement, consumer)) is (written > 1)


# -- what is in use, of which a write may be late --------------------------------------
@pytest.fixture
def in_use(placement: EmbeddedPlacementFixture, watched: Watched) -> Any:
    """A claim that was answered, of which one write is still on its way."""
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.LATE, verb="PUT")
        consumer = _consumer()
        client = server.client()
        answer = claim_one(client, consumer, request_of(HOST), waiter=HandTime())
        claim = answer.claims[consumer]
        assert claim.is_in_flight
        watched.add(consumer, claim, is_watched=True)
        yield consumer, server
        server.let_late_ones_go()


def test_what_is_in_use_is_no_orphan_and_stays(
    placement: EmbeddedPlacementFixture, watched: Watched, in_use: Any
) -> None:
    consumer, server = in_use
    assert not watched.orphans
    server.let_late_ones_go()
    watched.run_for(LATE_WRITE_S - 1)
    assert watched.resolved == []
    watched.run_for(62)
    assert watched.resolved == [consumer]
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def test_late_write_is_refused_once_its_instance_was_deleted(
    placement: EmbeddedPlacementFixture, watched: Watched, in_use: Any
) -> None:
    consumer, server = in_use
    watched.state = InstanceState.GONE
    placement.client.delete_allocations(consumer)
    watched.run_for(2)
    server.let_late_ones_go()
    assert _held(placement, consumer) == {}
    watched.run_for(LATE_WRITE_S + 62)
    assert watched.resolved == [consumer]


@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
def test_late_write_for_a_deleted_instance_is_released_where_that_is_known(
    placement: EmbeddedPlacementFixture,
    watched: Watched,
    in_use: Any,
    state: InstanceState,
) -> None:
    consumer, server = in_use
    placement.client.delete_allocations(consumer)
    server.let_late_ones_go()
    watched.state = state
    watched.run_for(LATE_WRITE_S + 124)
    is_released = state in NOT_IN_USE
    is_known = is_released or state is InstanceState.ON_HOST
    assert watched.resolved == ([consumer] if is_known else [])
    assert watched.orphans.suspected == ([] if is_known else [consumer])
    assert bool(_held(placement, consumer)) is not is_released


@pytest.mark.parametrize("state", InstanceState, ids=lambda state: state.name)
def test_late_write_does_not_replace_a_later_claim_that_is_in_use(
    placement: EmbeddedPlacementFixture, watched: Watched, state: InstanceState
) -> None:
    """Generations restart with a deleted consumer: both name generation 1."""
    consumer, _ = _claimed(placement, OTHER)
    late = {**request_of(HOST), "consumer_generation": 1, **OWNER}
    watched.add(consumer, _unanswered(1))
    watched.state = state
    watched.run_for(100)
    held = placement.client.allocations(consumer)
    assert held.resources == {OTHER: {"VCPU": 1}}
    # A request that has not answered yet releases its claim at the generation it wrote.
    is_in_use = state is InstanceState.ON_HOST
    assert held.consumer_generation == (3 if is_in_use else 1)
    arrived = placement.client.put_allocations(consumer, late)
    assert arrived.is_done is not is_in_use


@pytest.mark.parametrize("is_watched", [True, False])
def test_what_is_in_use_is_written_on_to_an_odd_generation(
    placement: EmbeddedPlacementFixture, watched: Watched, is_watched: bool
) -> None:
    """A write to use up a generation was late, and a late release matches even ones."""
    consumer, _ = _claimed(placement, OTHER)
    _write_again(placement.client, consumer)
    late_release = {"allocations": {}, "consumer_generation": 2, **OWNER}
    watched.add(consumer, _unanswered(None), is_watched=is_watched)
    watched.state = InstanceState.ON_HOST
    watched.run_for(2)
    assert not placement.client.put_allocations(consumer, late_release).is_done
    assert _held(placement, consumer) == {OTHER: {"VCPU": 1}}


def test_rewrite_after_a_lost_claim_may_arrive_late_too(
    placement: EmbeddedPlacementFixture,
) -> None:
    """The claim named no generation; the late rewrite of what was found names one."""
    consumer, client = _consumer(), placement.client
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.LOST, verb="PUT")
        server.misbehave(Misbehaviour.LATE, verb="PUT")
        claimed = claim_one(server.client(), consumer, request_of(HOST))
        watched = Watched(client)
        watched.add(consumer, claimed.claims[consumer])
        watched.orphans.forget_claimed(claimed.claims)  # the answer named it
        assert client.delete_allocations(consumer)
        claim_one(client, consumer, request_of(OTHER))
        watched.state = InstanceState.ON_HOST
        watched.run_for(100)
        server.let_late_ones_go()
    assert _held(placement, consumer) == {OTHER: {"VCPU": 1}}


def test_new_claim_ends_above_the_generation_of_a_late_write(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, client = _consumer(), placement.client
    late = {**request_of(HOST), "consumer_generation": 1, **OWNER}
    watched.add(consumer, _unanswered(1))
    above = watched.orphans.late_generations([consumer, "another"])
    assert above == {consumer: 1}
    answer = claim_one(client, consumer, request_of(OTHER), final_above=above)
    assert not client.put_allocations(consumer, late).is_done
    assert _held(placement, consumer) == {OTHER: {"VCPU": 1}}
    release_all(client, answer.claims)
    assert _held(placement, consumer) == {}


def test_late_write_of_an_evacuation_names_each_generation_up_to_its_last_write(
    watched: Watched,
) -> None:
    consumer = _consumer()
    before = ConsumerAllocations({OTHER: {"VCPU": 1}}, 1, **OWNER)
    claim = replace(_unanswered(2), before=before, written_generation=4)
    watched.add(consumer, claim)
    assert watched.orphans.late_generations([consumer]) == {consumer: 3}


def test_claim_like_an_answered_one_needs_evidence_at_whichever_generation(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, claim = _claimed(placement, HOST)
    watched.add(
        consumer,
        replace(claim, generation=3, named_generation=1, is_in_flight=True),
        is_watched=True,
    )
    watched.state = InstanceState.PENDING  # it was deleted, and requested again
    watched.run_for(2)
    for _ in range(2):
        _write_again(placement.client, consumer)
    watched.run_for(TIMEOUT_S / 2)
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


@pytest.mark.parametrize("state", [InstanceState.GONE, InstanceState.PENDING])
def test_what_is_like_an_answered_claim_is_released_once_its_instance_is_gone(
    placement: EmbeddedPlacementFixture, watched: Watched, state: InstanceState
) -> None:
    """That was deleted, and a late write made the same again at its generation."""
    consumer, claim = _claimed(placement, HOST)
    for _ in range(2):
        _write_again(placement.client, consumer)
    answered = replace(claim, generation=3, written_generation=3, is_in_flight=True)
    watched.state = state
    watched.add(consumer, answered, is_watched=True)
    watched.run_for(TIMEOUT_S)
    assert bool(_held(placement, consumer)) is (state is InstanceState.PENDING)


def test_orphan_with_a_late_write_is_watched_once_its_claim_is_in_use(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, claim = _claimed(placement, HOST)
    watched.add(consumer, replace(_doubted(claim), is_in_flight=True))
    watched.orphans.forget_claimed({consumer: claim})
    assert not watched.orphans
    assert watched.resolved == []
    watched.run_for(LATE_WRITE_S + 62)
    assert watched.resolved == [consumer]
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


# -- a new request for the same instance -----------------------------------------------
def test_new_request_finds_nothing_held(
    placement: EmbeddedPlacementFixture,
) -> None:
    """A request that asks for an instance again does not use the unanswered claim."""
    consumer, claim = _claimed(placement, HOST)
    orphans = _orphans(placement.client)
    orphans.add(consumer, _orphaned(claim))
    orphans.release_before_new_claim([consumer, _consumer()])
    assert not orphans
    assert _held(placement, consumer) == {}
    orphans.stop()


def test_new_request_releases_nothing_that_another_one_may_have_answered(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    """The same request may have been delivered twice."""
    consumer, claim = _claimed(placement, HOST)
    watched.state = InstanceState.PENDING
    watched.add(consumer, _doubted(claim))
    watched.orphans.release_before_new_claim([consumer])
    assert len(watched.orphans) == 1
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def test_evacuation_leaves_the_orphan_on_the_source_alone(
    placement: EmbeddedPlacementFixture, watched: Watched
) -> None:
    consumer, claim = _claimed(placement, HOST)
    watched.add(consumer, _doubted(claim))
    watched.orphans.release_before_new_claim([consumer], excluding={HOST})
    assert len(watched.orphans) == 1
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def _open(client: PlacementClient, server: MisbehavingServer) -> None:
    server.misbehave(Misbehaviour.BAD_GATEWAY, times=CIRCUIT_MAX_FAILURES)
    for _ in range(CIRCUIT_MAX_FAILURES):
        with pytest.raises(PlacementError):
            client.allocations(_consumer())
    assert client.health.is_down


def test_new_request_fails_and_the_orphan_is_kept_while_placement_is_away(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        client = server.client()
        _open(client, server)
        orphans = _orphans(client)
        orphans.add(consumer, _orphaned(claim))
        with pytest.raises(PlacementUnavailable, match="Placement are suspended"):
            orphans.release_before_new_claim([consumer])
        assert len(orphans) == 1
        wait_until(lambda: not orphans)
        orphans.stop()
    assert _held(placement, consumer) == {}


def test_what_placement_does_not_release_now_fails_no_new_request(
    placement: EmbeddedPlacementFixture, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=MAX_WRITES)
        orphans = _orphans(server.client(), waiter=HandTime())
        orphans.add(consumer, _orphaned(claim))
        orphans.release_before_new_claim([consumer])
        expected = f"Continuing, although a release failed: Consumer {consumer}"
        assert expected in caplog.text
        assert len(orphans) == 1, "it is tried again later"
        orphans.stop()
    assert not orphans
    assert _held(placement, consumer) == {}


# -- many, and the end -----------------------------------------------------------------
def test_orphan_that_cannot_be_released_does_not_hold_up_the_others(
    placement: EmbeddedPlacementFixture,
) -> None:
    stuck, other = _claimed(placement, HOST), _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=MAX_WRITES)
        orphans = _orphans(server.client())
        for consumer, claim in (stuck, other):
            orphans.add(consumer, _orphaned(claim))
        wait_until(lambda: len(orphans) == 1)
        assert _held(placement, stuck[0])
        assert not _held(placement, other[0])
        wait_until(lambda: not orphans)
        orphans.stop()


def test_what_cannot_be_released_is_reported_at_the_end(
    placement: EmbeddedPlacementFixture, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.ERROR, verb="GET", times=9)
        orphans = _orphans(server.client())
        orphans.add(consumer, _orphaned(claim))
        orphans.stop()
    expected = f"Consumer {consumer} may hold an allocation that is not in use: "
    assert f"{expected}GET /allocations/{consumer}" in caplog.text


def test_what_is_in_doubt_still_is_reported_at_the_end(
    placement: EmbeddedPlacementFixture,
    watched: Watched,
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer, claim = _claimed(placement, HOST)
    watched.add(consumer, _doubted(claim))
    watched.orphans.stop()
    assert "not in use: nothing shows whether it is in use" in caplog.text
    assert _held(placement, consumer) == {HOST: {"VCPU": 1}}


def test_last_try_at_the_end_waits_for_no_pause(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer, claim = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        # Its clock does not advance: no pause ever ends.
        adapter = adapter_to(server.url)
        client = PlacementClient(adapter, health=PlacementHealth(clock=Clock()))
        _open(client, server)
        orphans = _orphans(client)
        orphans.add(consumer, _orphaned(claim))
        orphans.stop()
    assert not orphans
    assert _held(placement, consumer) == {}
