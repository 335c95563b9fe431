# SPDX-License-Identifier: Apache-2.0
"""What a failed request may have left behind is released once Placement answers."""

from __future__ import annotations

import itertools
import threading
import uuid
from typing import Any

import numpy as np
import pytest

from moorage.scheduler.errors import PlacementError, PlacementUnavailable
from moorage.scheduler.placement.circuit import MAX_FAILURES, Circuit
from moorage.scheduler.placement.claims import ClaimInDoubt, claim
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.orphans import Orphan, Orphans

from ...fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ...fixtures.waiting import wait_until
from .two_hosts import HOST, OTHER, OWNER
from .watched import Clock


def _request(provider: str) -> dict[str, object]:
    return {"allocations": {provider: {"resources": {"VCPU": 1}}}}


def _claimed(placement: EmbeddedPlacementFixture, provider: str) -> str:
    consumer = str(uuid.uuid4())
    rng = np.random.default_rng(0)
    claim(placement.client, consumer, _request(provider), rng=rng, **OWNER)
    return consumer


def _doubted(server: MisbehavingServer, **more: Any) -> tuple[str, ClaimInDoubt]:
    """A claim that arrives late, while nobody can be asked about it."""
    consumer = more.pop("consumer", str(uuid.uuid4()))
    client = server.client(timeout_s=1.5)
    allocations, n_looks = client.allocations, itertools.count(0)

    def away_after_the_first(*args: Any, **kwargs: Any) -> Any:
        if not more or next(n_looks):
            raise PlacementUnavailable("nobody answers")
        return allocations(*args, **kwargs)

    client.allocations = away_after_the_first
    late = server.misbehave_second if more else server.misbehave
    late(Misbehaviour.LATE, verb="PUT")
    rng = np.random.default_rng(0)
    with pytest.raises(ClaimInDoubt) as raised:
        claim(client, consumer, _request(HOST), rng=rng, **OWNER, **more)
    return consumer, raised.value


def test_claim_that_is_still_on_its_way_is_never_made(
    placement: EmbeddedPlacementFixture,
) -> None:
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        consumer, error = _doubted(server)
        orphans = Orphans(placement.client)
        orphans.add(consumer, Orphan(_request(HOST), doubt=error.doubts[consumer]))
        orphans.stop()
        assert not orphans
        server.let_late_ones_go()
    assert placement.client.allocations(consumer).resources == {}


def test_evacuation_that_is_still_on_its_way_is_never_made(
    placement: EmbeddedPlacementFixture,
) -> None:
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        consumer = _claimed(placement, OTHER)
        _, error = _doubted(server, consumer=consumer, evacuated_from={OTHER})
        doubt = error.doubts[consumer]
        orphans = Orphans(placement.client)
        orphans.add(consumer, Orphan(_request(HOST), doubt.before, doubt))
        orphans.stop()
        server.let_late_ones_go()
    assert placement.client.allocations(consumer).resources == {OTHER: {"VCPU": 1}}


def test_claim_of_a_new_request_is_not_taken_for_the_orphan(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer = _claimed(placement, HOST)
    orphans = Orphans(placement.client)
    allocations = placement.client.allocations
    has_looked, may_go_on = threading.Event(), threading.Event()

    def slow(uuid: str, **more: Any) -> Any:
        held = allocations(uuid, **more)
        if threading.current_thread().name == "orphans":
            has_looked.set()
            may_go_on.wait(20)
        return held

    placement.client.allocations = slow  # type: ignore[assignment]  # takes any
    orphans.add(consumer, Orphan(_request(HOST)))
    assert has_looked.wait(20)

    def claim_anew() -> None:
        orphans.make_way([consumer])
        claim(
            placement.client,
            consumer,
            _request(HOST),
            rng=np.random.default_rng(0),
            **OWNER,
        )

    request = threading.Thread(target=claim_anew)
    request.start()
    request.join(0.5)  # where nobody waits for whom, it has claimed by now
    may_go_on.set()
    request.join()
    orphans.stop()
    assert allocations(consumer).resources == {HOST: {"VCPU": 1}}


def test_orphan_is_released_once_placement_answers(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.ERROR, verb="GET", times=1)
        orphans = Orphans(server.client())
        orphans.add(consumer, Orphan(_request(HOST)))
        wait_until(lambda: not orphans)
        orphans.stop()
    assert placement.client.allocations(consumer).resources == {}


def test_what_is_held_for_another_reason_is_left_alone(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer = _claimed(placement, OTHER)
    orphans = Orphans(placement.client)
    orphans.add(consumer, Orphan(_request(HOST)))
    orphans.stop()
    assert not orphans
    assert placement.client.allocations(consumer).resources == {OTHER: {"VCPU": 1}}


def test_new_request_finds_the_way_free(placement: EmbeddedPlacementFixture) -> None:
    consumer = _claimed(placement, HOST)
    orphans = Orphans(placement.client)
    orphans.add(consumer, Orphan(_request(HOST)))
    orphans.make_way([consumer, str(uuid.uuid4())])
    assert not orphans
    assert placement.client.allocations(consumer).resources == {}
    orphans.stop()


def test_what_cannot_be_released_is_told_at_the_end(
    placement: EmbeddedPlacementFixture, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.ERROR, verb="GET", times=9)
        orphans = Orphans(server.client())
        orphans.add(consumer, Orphan(_request(HOST)))
        orphans.stop()
    assert f"Consumer {consumer} may hold an allocation of nobody's" in caplog.text


def _open(client: PlacementClient, server: MisbehavingServer) -> None:
    server.misbehave(Misbehaviour.BAD_GATEWAY, times=MAX_FAILURES)
    for _ in range(MAX_FAILURES):
        with pytest.raises(PlacementError):
            client.allocations(str(uuid.uuid4()))
    assert client.circuit.is_open


def test_new_request_fails_and_the_orphan_is_kept_while_placement_is_away(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        client = server.client()
        _open(client, server)
        orphans = Orphans(client)
        orphans.add(consumer, Orphan(_request(HOST)))
        with pytest.raises(PlacementUnavailable, match="Placement is not asked"):
            orphans.make_way([consumer])
        assert len(orphans) == 1
        wait_until(lambda: not orphans)
        orphans.stop()
    assert placement.client.allocations(consumer).resources == {}


def test_what_placement_will_never_release_is_in_no_new_requests_way(
    placement: EmbeddedPlacementFixture, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.CONTENDED, verb="DELETE", times=9)
        orphans = Orphans(server.client())
        orphans.add(consumer, Orphan(_request(HOST)))
        orphans.make_way([consumer])
        assert not orphans
        orphans.stop()
    assert f"{consumer}: DELETE" in caplog.text


def test_orphan_that_cannot_be_released_does_not_hold_up_the_others(
    placement: EmbeddedPlacementFixture,
) -> None:
    stuck, other = _claimed(placement, HOST), _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.CONTENDED, verb="DELETE")
        orphans = Orphans(server.client())
        for consumer in (stuck, other):
            orphans.add(consumer, Orphan(_request(HOST)))
        wait_until(lambda: len(orphans) == 1)
        assert placement.client.allocations(stuck).resources
        assert not placement.client.allocations(other).resources
        wait_until(lambda: not orphans)
        orphans.stop()


def test_last_try_at_the_end_waits_for_no_pause(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        # Its clock stands still: no pause is ever over.
        adapter = adapter_to(server.url)
        client = PlacementClient(adapter, circuit=Circuit(clock=Clock()))
        _open(client, server)
        orphans = Orphans(client)
        orphans.add(consumer, Orphan(_request(HOST)))
        orphans.stop()
    assert not orphans
    assert placement.client.allocations(consumer).resources == {}
