# SPDX-License-Identifier: Apache-2.0
"""What a failed request may have left behind is released once Placement answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from moorage.scheduler.placement.claims import claim
from moorage.scheduler.placement.orphans import Orphan, Orphans
from moorage.scheduler.placement.seed import Provider, seed

from ...placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
)

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
