# SPDX-License-Identifier: Apache-2.0
"""A claim is all or nothing, and leaves no orphaned allocation behind."""

import itertools
import random
import uuid
from dataclasses import replace
from typing import Any

import pytest

from moorage.scheduler.errors import (
    AllocationUpdateFailed,
    PlacementUnavailable,
)
from moorage.scheduler.placement.allocations.claims import (
    ClaimAnswer,
    ClaimResult,
    claim,
)
from moorage.scheduler.placement.allocations.engine import AllocationsInDoubt
from moorage.scheduler.placement.allocations.limits import MAX_WRITES
from moorage.scheduler.placement.allocations.releases import release
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.waiting import SystemWaiter

from ....fixtures.database_servers import Database, database_server
from ....fixtures.faulty_placement import (
    Call,
    FaultKind,
    FaultyAdapter,
    reads,
    writes,
)
from ....fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    Misbehaviour,
    PlacementServer,
    adapter_to,
)
from ....fixtures.ports import refusing_url

HOSTS = [str(uuid.UUID(int=i)) for i in (1, 2, 3)]
SHARE = str(uuid.UUID(int=9))
OWNER: dict[str, Any] = {"project_id": "project", "user_id": "user"}


def _consumer():
    return str(uuid.uuid4())


def _request(host, vcpus=1, **more):
    resources = {host: {"VCPU": vcpus}, **more}
    return {
        "allocations": {u: {"resources": r} for u, r in resources.items()},
        "mappings": {"": [host]},
    }


class _NoPauses(SystemWaiter):
    """Make pauses instantaneous, and check that none is long."""

    def sleep(self, seconds):
        assert 0 <= seconds < 2


def _claim(client, consumer, request, **more):
    return _claim_all(client, {consumer: request}, **more)


def _claim_all(client, requests, **more):
    more = {"waiter": _NoPauses(), **more}
    return claim(client, requests, **OWNER, rng=random.Random(1), **more)


def _release(client, answer):
    for consumer, claimed in answer.claims.items():
        release(
            client,
            consumer,
            claimed,
            rng=random.Random(1),
            watch=lambda _late: None,
            before_removal=lambda _claim: None,
            waiter=_NoPauses(),
        )


class _Twice:
    """A proxy that sends each write twice, and hands on the second answer."""

    def __init__(self, adapter, between):
        self.get = adapter.get
        self._put = adapter.put
        self._between = between

    def put(self, url, **options):
        self._put(url, **options)
        self._between()
        return self._put(url, **options)


def _doubling_client(server, between=lambda: None):
    twice: Any = _Twice(adapter_to(server.url), between)
    return PlacementClient(twice)


def _seed(client):
    providers = [
        Provider(u, f"host{u[-1]}", {"VCPU": {"total": 4, "max_unit": 4}})
        for u in HOSTS
    ]
    share = Provider(SHARE, "share", {"DISK_GB": {"total": 100}})
    seed(client, [*providers, share])


@pytest.fixture
def embedded():
    with EmbeddedPlacementFixture() as fixture:
        _seed(fixture.client)
        yield fixture


@pytest.fixture
def client(embedded):
    return embedded.client


def test_allocation_request_is_sent_unchanged(client):
    consumer = _consumer()
    answer = _claim(client, consumer, _request(HOSTS[0]), global_request_id="req-1")
    assert (answer.result, answer.n_attempts) == (ClaimResult.CLAIMED, 1)
    held = client.allocations(consumer)
    assert held.resources == {HOSTS[0]: {"VCPU": 1}}
    assert (held.project_id, held.user_id) == ("project", "user")


@pytest.mark.parametrize(
    ("request_", "status", "detail"),
    [
        (_request(HOSTS[0], 4), 409, "exceed the capacity"),
        (_request(HOSTS[0], 5), 409, "inventory constraints"),
        (_request(str(uuid.UUID(int=77))), 400, "does not exist"),
        (_request(SHARE), 409, "Inventory for 'VCPU'"),
    ],
    ids=["full", "max_unit", "provider gone", "class gone"],
)
def test_dead_candidate_is_refused(client, request_, status, detail):
    _claim(client, _consumer(), _request(HOSTS[0]))
    consumer = _consumer()
    answer = _claim(client, consumer, request_)
    assert (answer.result, answer.last.status) == (ClaimResult.REFUSED, status)
    assert answer.n_attempts == 1
    assert detail in answer.last.detail
    assert client.allocations(consumer).resources == {}


def test_contended_provider_is_tried_again(server):
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=2)
    answer = _claim(server.client(), _consumer(), _request(HOSTS[0]))
    assert (answer.result, answer.n_attempts) == (ClaimResult.CLAIMED, 3)


def test_contended_provider_is_given_up_at_the_limit(server):
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=99)
    answer = _claim(server.client(), _consumer(), _request(HOSTS[0]))
    assert (answer.result, answer.n_attempts) == (ClaimResult.CONTENDED, MAX_WRITES)
    assert answer.last.code == "placement.concurrent_update"


def test_repeated_claim_finds_its_own(client):
    consumer = _consumer()
    _claim(client, consumer, _request(HOSTS[0]))
    answer = _claim(client, consumer, _request(HOSTS[0]))
    assert answer.result is ClaimResult.CLAIMED
    # It is rewritten, so that the first claimer cannot release it any more.
    assert client.allocations(consumer).consumer_generation == 3


def test_claim_returns_whether_an_earlier_one_was_found(client):
    consumer = _consumer()
    assert not _claim(client, consumer, _request(HOSTS[0])).is_found
    assert _claim(client, consumer, _request(HOSTS[0])).is_found


def test_claim_that_was_adapted_and_arrives_twice_is_a_claim(client, server):
    consumer = _consumer()
    _claim(client, consumer, _request(HOSTS[0]))
    answer = _claim(
        _doubling_client(server),
        consumer,
        _request(HOSTS[1]),
        evacuated_from={HOSTS[0]},
    )
    assert answer.result is ClaimResult.CLAIMED
    assert set(client.allocations(consumer).resources) == set(HOSTS[:2])
    _release(client, answer)
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}


def test_claim_that_another_request_took_over_by_the_same_write_is_not_ours(server):
    """The other request may have answered it, and both read the same generation."""
    consumer, request, others = _consumer(), _request(HOSTS[0]), []

    class Late:
        """An adapter whose third write arrives after the other request's claim."""

        def __init__(self, adapter):
            self.get = adapter.get
            self._put = adapter.put
            self._n_writes = 0

        def put(self, url, **options):
            self._n_writes += 1
            if self._n_writes == 3:
                others.append(_claim(server.client(), consumer, request))
            return self._put(url, **options)

    late: Any = Late(adapter_to(server.url))
    answer = _claim(PlacementClient(late), consumer, request, final_above={consumer: 2})
    [other] = others
    assert answer.is_found
    assert not answer.claims[consumer].is_ours
    held = server.client().allocations(consumer)
    assert not other.claims[consumer].is_still_ours(held.consumer_generation)
    assert held.consumer_generation % 2, "it is final"


def test_claim_of_another_request_is_told_by_its_lower_generation(client):
    """The instance was deleted since, and requested again elsewhere."""
    consumer, request = _consumer(), _request(HOSTS[0])
    ours = _claim(client, consumer, request, final_above={consumer: 2})
    assert ours.claims[consumer].generation == 3
    _release(client, ours)
    other = _claim(client, consumer, request)
    assert other.claims[consumer].generation == 1
    _release(client, ours)
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}


def test_known_consumer_that_holds_nothing_refuses_a_post_and_no_more(client):
    requests = {_consumer(): _request(HOSTS[i]) for i in range(2)}
    known = next(iter(requests))
    client.put_allocations(
        known, {"allocations": {}, "consumer_generation": None, **OWNER}
    )
    assert _claim_all(client, requests).result is ClaimResult.REFUSED
    assert _claim(client, known, requests[known]).result is ClaimResult.CLAIMED


def test_foreign_allocations_are_a_conflict_and_stay(client):
    consumer = _consumer()
    _claim(client, consumer, _request(HOSTS[0]))
    with pytest.raises(AllocationUpdateFailed, match=f"{consumer}.*{HOSTS[0]}"):
        _claim(client, consumer, _request(HOSTS[1]))
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}


def test_known_consumer_without_allocations_is_taken_over(client):
    consumer = _consumer()
    client.put_allocations(
        consumer, {"allocations": {}, "consumer_generation": None, **OWNER}
    )
    assert _claim(client, consumer, _request(HOSTS[0])).result is ClaimResult.CLAIMED


def test_evacuation_doubles_and_does_not_sum_what_is_shared(client):
    consumer = _consumer()
    disk = {SHARE: {"DISK_GB": 10}}
    _claim(client, consumer, _request(HOSTS[0], **disk))
    answer = _claim(
        client, consumer, _request(HOSTS[1], **disk), evacuated_from={HOSTS[0]}
    )
    assert answer.result is ClaimResult.CLAIMED
    assert client.allocations(consumer).resources == {
        HOSTS[0]: {"VCPU": 1},
        HOSTS[1]: {"VCPU": 1},
        **disk,
    }
    _release(client, answer)
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}, **disk}


def test_answer_lost_after_the_claim_was_made_is_a_claim(server):
    server.misbehave(Misbehaviour.LOST, verb="PUT")
    consumer = _consumer()
    answer = _claim(server.client(), consumer, _request(HOSTS[0]))
    assert answer.result is ClaimResult.CLAIMED
    assert server.client().allocations(consumer).resources


def test_answer_lost_after_an_evacuation_was_claimed_is_a_claim(client, server):
    consumer = _consumer()
    _claim(client, consumer, _request(HOSTS[0]))
    server.misbehave_second(Misbehaviour.LOST, verb="PUT")
    answer = _claim(
        server.client(), consumer, _request(HOSTS[1]), evacuated_from={HOSTS[0]}
    )
    assert answer.result is ClaimResult.CLAIMED
    assert set(client.allocations(consumer).resources) == set(HOSTS[:2])


def test_resize_that_is_reverted_meanwhile_adds_nothing_to_the_source(client, server):
    """A conductor gives the source's allocations back, as if it was an evacuation."""
    server.misbehave(Misbehaviour.LOST, verb="PUT")
    consumer, remote = _consumer(), server.client()
    write, n_writes = remote.write, itertools.count(1)

    def after_the_revert(*args, **more):
        if next(n_writes) == 2:
            client.delete_allocations(consumer)
            for _ in range(2):  # a conductor's move ends at generation 3, too
                _claim(client, consumer, _request(HOSTS[0]))
        return write(*args, **more)

    remote.write = after_the_revert
    with pytest.raises(AllocationUpdateFailed, match=HOSTS[0]):
        _claim(remote, consumer, _request(HOSTS[1]), evacuated_from={HOSTS[0]})
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}


def test_part_of_a_claim_that_is_left_is_in_doubt(client, server):
    """The other part was removed between the claim and a proxy's second try."""
    left, removed = _consumer(), _consumer()
    remote = server.client()
    write, n_writes = remote.write, itertools.count(1)

    def twice(*args, **more):
        if next(n_writes) == 1:
            assert write(*args, **more).is_done
            client.delete_allocations(removed)
        return write(*args, **more)

    remote.write = twice
    requests = {left: _request(HOSTS[0]), removed: _request(HOSTS[1])}
    with pytest.raises(AllocationUpdateFailed, match=left) as raised:
        _claim_all(remote, requests)
    assert raised.value.unresolved.keys() == {left}


def test_claim_that_was_not_made_leaves_nothing(client, server):
    server.misbehave(Misbehaviour.ERROR, verb="PUT", times=MAX_WRITES)
    consumer = _consumer()
    with pytest.raises(PlacementUnavailable) as raised:
        _claim(server.client(), consumer, _request(HOSTS[0]))
    assert not isinstance(raised.value, AllocationsInDoubt)
    assert client.allocations(consumer).resources == {}


def test_claim_without_an_answer_to_its_last_write_is_watched_for(client, server):
    server.misbehave(Misbehaviour.BAD_GATEWAY, verb="PUT", times=MAX_WRITES)
    consumer = _consumer()
    with pytest.raises(AllocationsInDoubt) as raised:
        _claim(server.client(), consumer, _request(HOSTS[0]))
    assert client.allocations(consumer).resources == {}
    assert raised.value.unresolved[consumer].is_in_flight


def test_claim_that_placement_failed_to_make_is_sent_again(server):
    server.misbehave(Misbehaviour.ERROR, verb="PUT")
    answer = _claim(server.client(), _consumer(), _request(HOSTS[0]))
    assert (answer.result, answer.n_attempts) == (ClaimResult.CLAIMED, 2)


def test_claim_that_arrives_late_is_claimed_once(client, server):
    server.misbehave(Misbehaviour.LATE, verb="PUT")
    consumer = _consumer()
    answer = _claim(server.client(), consumer, _request(HOSTS[0]))
    assert answer.result is ClaimResult.CLAIMED
    server.let_late_ones_go()
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}
    _release(client, answer)
    assert client.allocations(consumer).resources == {}


def test_evacuation_that_arrives_late_is_claimed_once(client, server):
    consumer = _consumer()
    _claim(client, consumer, _request(HOSTS[0]))
    server.misbehave_second(Misbehaviour.LATE, verb="PUT")
    remote = server.client()
    answer = _claim(remote, consumer, _request(HOSTS[1]), evacuated_from={HOSTS[0]})
    assert answer.result is ClaimResult.CLAIMED
    server.let_late_ones_go()
    assert set(client.allocations(consumer).resources) == set(HOSTS[:2])
    _release(client, answer)
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}


def test_late_evacuation_of_an_instance_that_was_deleted_is_known_as_a_whole(
    client, server
):
    """The claim went on alone, and one of its earlier writes gives the source back."""
    consumer = _consumer()
    _claim(client, consumer, _request(HOSTS[0]))
    server.misbehave_second(Misbehaviour.LATE, verb="PUT")
    remote = server.client()
    write, n_writes = remote.write, itertools.count(1)

    def deleted_after_the_second(*args, **more):
        try:
            return write(*args, **more)
        finally:
            if next(n_writes) == 2:
                assert client.delete_allocations(consumer)

    remote.write = deleted_after_the_second
    answer = _claim(remote, consumer, _request(HOSTS[1]), evacuated_from={HOSTS[0]})
    assert client.allocations(consumer).resources.keys() == {HOSTS[1]}
    held = client.allocations(consumer)
    late = replace(held, resources={**held.resources, HOSTS[0]: {"VCPU": 1}})
    assert answer.claims[consumer].as_held(held) is not None
    assert answer.claims[consumer].as_held(late) is not None


def test_nova_can_give_an_instance_allocations_back_after_a_refused_claim(
    client, server
):
    """It names no generation for a consumer that holds nothing, known or unknown."""
    rival = _claim(client, _consumer(), _request(HOSTS[0], 4))
    server.misbehave(Misbehaviour.LATE, verb="PUT")
    consumer = _consumer()
    answer = _claim(server.client(), consumer, _request(HOSTS[0]))
    assert answer.result is ClaimResult.REFUSED
    assert answer.unresolved[consumer].is_in_flight
    _release(client, rival)  # now the late one would fit
    back = {**_request(HOSTS[1]), **OWNER, "consumer_generation": None}
    assert client.put_allocations(consumer, back).is_done
    server.let_late_ones_go()
    assert client.allocations(consumer).resources == {HOSTS[1]: {"VCPU": 1}}


@pytest.mark.parametrize("n_late", [1, 2])
def test_generation_of_the_source_rejects_a_late_evacuation(client, server, n_late):
    """Two are late: one for a new consumer, and one for what it turned out to be."""
    consumer = _consumer()
    _claim(client, consumer, _request(HOSTS[0]))
    rival = _claim(client, _consumer(), _request(HOSTS[1], 4))
    if n_late == 1:
        server.misbehave_second(Misbehaviour.LATE, verb="PUT")
    else:
        server.misbehave(Misbehaviour.LATE, verb="PUT", times=2)
    remote = server.client()
    answer = _claim(remote, consumer, _request(HOSTS[1]), evacuated_from={HOSTS[0]})
    assert answer.result is ClaimResult.REFUSED
    _release(client, rival)  # now the late one would fit
    server.let_late_ones_go()
    held = client.allocations(consumer)
    assert held.resources == {HOSTS[0]: {"VCPU": 1}}
    assert held.consumer_generation % 2 == 1, "what is in use"


def test_evacuation_that_is_found_was_added_to_what_is_held_of_shared_storage(client):
    """The storage is part of both: a release must not take it from the instance."""
    consumer, disk = _consumer(), {SHARE: {"DISK_GB": 1}}
    _claim(client, consumer, _request(HOSTS[0], **disk))
    evacuated = {"evacuated_from": {HOSTS[0]}, "shared": {SHARE}}
    for is_found in (False, True):
        answer = _claim(client, consumer, _request(HOSTS[1], **disk), **evacuated)
        assert answer.is_found is is_found
        assert answer.claims[consumer].before.resources.keys() == {HOSTS[0], SHARE}


def test_release_that_others_kept_from_ending_goes_on(client, server):
    consumer = _consumer()
    answer = _claim(client, consumer, _request(HOSTS[0]))
    server.misbehave_second(Misbehaviour.LATE, verb="PUT")
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=MAX_WRITES - 1)
    remote = server.client()
    with pytest.raises(AllocationsInDoubt, match=consumer):
        _release(remote, answer)
    _release(remote, answer)
    assert client.allocations(consumer).resources == {}


def test_release_that_arrives_late_spares_the_next_claim(client, server):
    consumer = _consumer()
    first = _claim(client, consumer, _request(HOSTS[0]))
    server.misbehave_second(Misbehaviour.LATE, verb="PUT")
    _release(server.client(), first)
    assert client.allocations(consumer).resources == {}
    _claim(client, consumer, _request(HOSTS[0]))
    server.let_late_ones_go()
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}


def test_claim_that_another_request_rewrote_may_be_of_both(client, server):
    """Neither knows whether the other one is answered with it."""
    consumer, request = _consumer(), _request(HOSTS[0])
    others: list[ClaimAnswer] = []

    def take_over():
        if not others:
            others.append(_claim(client, consumer, request, is_held=True))

    answer = _claim(_doubling_client(server, take_over), consumer, request)
    assert (others[0].is_found, answer.is_found) == (True, True)


def test_claim_taken_over_by_another_request_is_not_released(client):
    consumer = _consumer()
    first = _claim(client, consumer, _request(HOSTS[0]))
    second = _claim(client, consumer, _request(HOSTS[0]))
    assert second.is_found
    _release(client, first)
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}


def test_lost_refusal_of_a_foreign_consumer_is_no_doubt(client, server):
    consumer = _consumer()
    _claim(client, consumer, _request(HOSTS[0]))
    server.misbehave(Misbehaviour.LOST, verb="PUT")
    with pytest.raises(AllocationUpdateFailed, match=HOSTS[0]):
        _claim(server.client(), consumer, _request(HOSTS[1]))
    assert client.allocations(consumer).resources == {HOSTS[0]: {"VCPU": 1}}


def test_late_claim_is_reported_where_another_request_was_faster(client, server):
    server.misbehave(Misbehaviour.LATE, verb="PUT")
    consumer, pauses = _consumer(), []
    n_sent = itertools.count()

    def sending(*_):
        if next(n_sent) == 1:
            _claim(client, consumer, _request(HOSTS[1]))

    class Counting(SystemWaiter):
        def sleep(self, seconds):
            pauses.append(seconds)

    with pytest.raises(AllocationUpdateFailed, match=HOSTS[1]) as raised:
        _claim(
            server.client(),
            consumer,
            _request(HOSTS[0]),
            before_write=sending,
            waiter=Counting(),
        )
    assert len(pauses) == 2, "before the second write, and before it is read"
    left = raised.value.unresolved[consumer]
    assert (left.request, left.named_generation, left.is_in_flight) == (
        _request(HOSTS[0]),
        None,
        True,
    )


def test_generation_of_a_deleted_consumer_is_not_named(client):
    """A late write that names it would match the first claim of a new consumer."""
    consumer, named = _consumer(), []
    other = [_claim(client, consumer, _request(HOSTS[1]))]

    class Deleting(SystemWaiter):
        def sleep(self, seconds):
            if other:
                other.clear()
                client.delete_allocations(consumer)

    answer = _claim(
        client,
        consumer,
        _request(HOSTS[0]),
        waiter=Deleting(),
        before_write=lambda generations, *_: named.append(generations[consumer]),
    )
    assert answer.result is ClaimResult.CLAIMED
    assert named == [None, None]


def test_unknown_outcome_names_the_consumer(server):
    server.misbehave(Misbehaviour.LOST, verb="PUT")
    server.misbehave(Misbehaviour.ERROR, verb="GET", times=99)
    consumer = _consumer()
    with pytest.raises(AllocationsInDoubt, match=consumer) as raised:
        _claim(server.client(), consumer, _request(HOSTS[0]))
    assert set(raised.value.unresolved) == {consumer}


def test_dead_placement_is_not_called_twice():
    client = PlacementClient(adapter_to(refusing_url()))
    with pytest.raises(PlacementUnavailable) as raised:
        _claim(client, _consumer(), _request(HOSTS[0]))
    assert not isinstance(raised.value, AllocationsInDoubt)


def test_several_are_claimed_in_one_post(server):
    requests = {_consumer(): _request(HOSTS[i]) for i in range(3)}
    client = server.client()
    assert _claim_all(client, requests).result is ClaimResult.CLAIMED
    assert [verb for verb, _, _ in server.seen] == ["POST"]
    assert all(client.allocations(c).resources for c in requests)


def test_one_refused_refuses_all(client):
    requests = {_consumer(): _request(HOSTS[0]), _consumer(): _request(HOSTS[1], 5)}
    assert _claim_all(client, requests).result is ClaimResult.REFUSED
    assert not any(client.allocations(c).resources for c in requests)


def test_repeated_claim_of_several_finds_its_own(client):
    requests = {_consumer(): _request(HOSTS[i]) for i in range(2)}
    _claim_all(client, requests)
    assert _claim_all(client, requests).result is ClaimResult.CLAIMED


def test_rest_of_a_claim_of_which_another_writer_removed_a_part_is_reported(client):
    """It was granted, and is removed while it is written again to be final."""
    first, second = _consumer(), _consumer()
    n_sent = itertools.count()

    def remove(*_):
        if next(n_sent) == 1:
            client.delete_allocations(second)

    requests = {first: _request(HOSTS[0]), second: _request(HOSTS[1])}
    with pytest.raises(AllocationUpdateFailed) as raised:
        _claim_all(client, requests, before_write=remove, final_above={second: 1})
    assert client.allocations(first).resources == {HOSTS[0]: {"VCPU": 1}}
    assert raised.value.unresolved[first].request == requests[first]


def test_one_foreign_consumer_among_several_is_a_conflict(client):
    requests = {_consumer(): _request(HOSTS[i]) for i in range(2)}
    foreign = next(iter(requests))
    _claim(client, foreign, _request(HOSTS[2]))
    with pytest.raises(AllocationUpdateFailed, match=foreign):
        _claim_all(client, requests)


def test_several_that_arrive_late_are_claimed_once(client, server):
    requests = {_consumer(): _request(HOSTS[i]) for i in range(3)}
    server.misbehave(Misbehaviour.LATE, verb="POST")
    answer = _claim_all(server.client(), requests)
    assert answer.result is ClaimResult.CLAIMED
    server.let_late_ones_go()
    for consumer, request in requests.items():
        assert client.allocations(consumer).matches(request)


def test_lost_answer_for_several_that_were_made_is_a_claim(server):
    requests = {_consumer(): _request(HOSTS[i]) for i in range(3)}
    server.misbehave(Misbehaviour.LOST, verb="POST")
    assert _claim_all(server.client(), requests).result is ClaimResult.CLAIMED


def test_doubled_claim_of_several_stays_in_doubt_until_all_is_read_twice(embedded):
    """What the first read shows cannot be ours alone; the second read fails."""
    adapter = FaultyAdapter(embedded.adapter)
    a, b = _consumer(), _consumer()
    adapter.fault(FaultKind.DOUBLED, writes(a))
    adapter.before(reads(a), lambda: embedded.client.delete_allocations(b))
    adapter.after(reads(b), adapter.cut)
    with pytest.raises(AllocationsInDoubt) as raised:
        _claim_all(
            PlacementClient(adapter), {a: _request(HOSTS[0]), b: _request(HOSTS[1])}
        )
    assert set(raised.value.unresolved) == {a, b}


def test_all_consumers_of_a_claim_are_in_doubt_where_one_is_written_last(embedded):
    adapter = FaultyAdapter(embedded.adapter)
    a, b = _consumer(), _consumer()

    def writes_only_one(call: Call) -> bool:
        return call.verb == "PUT"

    def write_b_again() -> None:
        held = embedded.client.allocations(b)
        body = {**_request(HOSTS[1]), "consumer_generation": held.consumer_generation}
        assert embedded.client.put_allocations(b, {**body, **OWNER}).is_done

    adapter.fault(FaultKind.DOUBLED, writes(a))
    adapter.before(reads(a), write_b_again)
    adapter.fault(FaultKind.LOST, writes_only_one)
    adapter.after(writes_only_one, adapter.cut)
    with pytest.raises(AllocationsInDoubt) as raised:
        _claim_all(
            PlacementClient(adapter), {a: _request(HOSTS[0]), b: _request(HOSTS[1])}
        )
    assert len(adapter.seen(writes_only_one)) == 1
    assert set(raised.value.unresolved) == {a, b}


@pytest.mark.deep
@pytest.mark.database
@pytest.mark.parametrize("kind", Database, ids=lambda kind: kind.name.lower())
def test_claims_on_a_real_database(kind):
    with PlacementServer(database_server(kind)) as placement:
        _seed(placement.client)
        consumer = _consumer()
        first = _claim(placement.client, consumer, _request(HOSTS[0]))
        full = _claim(placement.client, _consumer(), _request(HOSTS[0], 4))
        _release(placement.client, first)
        assert (first.result, full.result) == (ClaimResult.CLAIMED, ClaimResult.REFUSED)
        assert placement.client.allocations(consumer).resources == {}
