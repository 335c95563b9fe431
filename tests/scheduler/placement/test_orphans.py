# SPDX-License-Identifier: Apache-2.0
"""What a failed request may have left behind is released once Placement answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from moorage.scheduler.errors import PlacementError, PlacementUnavailable
from moorage.scheduler.placement.circuit import MAX_FAILURES, Circuit
from moorage.scheduler.placement.claims import claim
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.orphans import Orphan, Orphans
from moorage.scheduler.placement.seed import Provider, seed

from ...placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from .watched import Clock

HOST, OTHER = (str(uuid.UUID(int=i)) for i in (1, 2))
OWNER = {"project_id": "p", "user_id": "u"}


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacementFixture]:
    with EmbeddedPlacementFixture() as placement:
        seed(
            placement.client,
            [Provider(h, h, {"VCPU": {"total": 8}}) for h in (HOST, OTHER)],
        )
        yield placement


def _request(provider: str) -> dict[str, object]:
    return {"allocations": {provider: {"resources": {"VCPU": 1}}}}


def _claimed(placement: EmbeddedPlacementFixture, provider: str) -> str:
    consumer = str(uuid.uuid4())
    rng = np.random.default_rng(0)
    claim(placement.client, consumer, _request(provider), rng=rng, **OWNER)
    return consumer


def _await(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_orphan_is_released_once_placement_answers(
    placement: EmbeddedPlacementFixture,
) -> None:
    consumer = _claimed(placement, HOST)
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        server.misbehave(Misbehaviour.ERROR, verb="GET", times=1)
        orphans = Orphans(server.client())
        orphans.add(consumer, Orphan(_request(HOST)))
        _await(lambda: not orphans)
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
        _await(lambda: not orphans)
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
        _await(lambda: len(orphans) == 1)
        assert placement.client.allocations(stuck).resources
        assert not placement.client.allocations(other).resources
        _await(lambda: not orphans)
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
