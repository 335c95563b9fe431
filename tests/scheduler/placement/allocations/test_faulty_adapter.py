# SPDX-License-Identifier: Apache-2.0
"""A client sees the injected faults as the errors that they imitate."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.scheduler.errors import PlacementUnavailable
from moorage.scheduler.placement.adapter import AnswerLost, Verb
from moorage.scheduler.placement.client import PlacementClient

from ....fixtures.allocations import OWNER
from ....fixtures.faulty_placement import (
    FAULTS_OF,
    FaultKind,
    FaultyAdapter,
    reads,
    releases,
    writes,
)
from ....fixtures.placement_servers import EmbeddedPlacementFixture
from ..two_hosts import HOST

CONSUMER = str(uuid.UUID(int=3))


@pytest.fixture
def adapter(placement: EmbeddedPlacementFixture) -> Iterator[FaultyAdapter]:
    adapter = FaultyAdapter(placement.adapter)
    yield adapter
    adapter.heal()


def _body(generation: int | None = None) -> dict[str, Any]:
    return {
        "allocations": {HOST: {"resources": {"VCPU": 1}}},
        "consumer_generation": generation,
        **OWNER,
    }


@pytest.mark.parametrize(
    ("kind", "is_executed", "is_in_flight"),
    [
        (FaultKind.LOST, True, True),
        (FaultKind.LATE, False, True),
        (FaultKind.UNAVAILABLE_BEFORE, False, True),
        (FaultKind.UNAVAILABLE_AFTER, True, True),
        (FaultKind.ERROR_BEFORE, False, False),
        (FaultKind.ERROR_AFTER, True, False),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_write_without_an_answer_is_in_doubt(
    placement: EmbeddedPlacementFixture,
    adapter: FaultyAdapter,
    kind: FaultKind,
    is_executed: bool,
    is_in_flight: bool,
) -> None:
    adapter.fault(kind, writes(CONSUMER))
    with pytest.raises(AnswerLost) as raised:
        PlacementClient(adapter).put_allocations(CONSUMER, _body())
    assert raised.value.is_in_flight is is_in_flight
    assert bool(placement.client.allocations(CONSUMER).resources) is is_executed
    adapter.deliver()
    held = bool(placement.client.allocations(CONSUMER).resources)
    assert held is (is_executed or kind is FaultKind.LATE)


def test_refused_connection_sends_nothing(adapter: FaultyAdapter) -> None:
    client = PlacementClient(adapter)
    adapter.cut()
    with pytest.raises(PlacementUnavailable) as raised:
        client.put_allocations(CONSUMER, _body())
    assert not isinstance(raised.value, AnswerLost)
    adapter.heal()
    assert client.put_allocations(CONSUMER, _body()).is_done


def test_doubled_write_gets_the_second_answer(adapter: FaultyAdapter) -> None:
    adapter.fault(FaultKind.DOUBLED)
    answer = PlacementClient(adapter).put_allocations(CONSUMER, _body())
    assert answer.is_consumer_conflict
    assert [call.statuses for call in adapter.calls] == [[204, 409]]


def test_conflicts_are_worded_as_placement_words_them(adapter: FaultyAdapter) -> None:
    client = PlacementClient(adapter)
    adapter.fault(FaultKind.CONSUMER_CONFLICT)
    adapter.fault(FaultKind.PROVIDER_CONFLICT)
    made_up, other = (client.put_allocations(CONSUMER, _body()) for _ in range(2))
    assert client.put_allocations(CONSUMER, _body()).is_done
    assert made_up == client.put_allocations(CONSUMER, _body())
    assert other.is_concurrent_update
    assert not other.is_consumer_conflict


def test_hooks_run_around_a_call(adapter: FaultyAdapter) -> None:
    client, events = PlacementClient(adapter), list[str]()
    adapter.before(reads(CONSUMER), lambda: events.append("before"))
    adapter.after(
        reads(CONSUMER), lambda: client.put_allocations(CONSUMER, _body()).status
    )
    assert not client.allocations(CONSUMER).resources
    assert client.allocations(CONSUMER).resources
    assert events == ["before"]


def test_releases_are_distinguished_from_claims(adapter: FaultyAdapter) -> None:
    client = PlacementClient(adapter)
    client.put_allocations(CONSUMER, _body())
    client.put_allocations(CONSUMER, {**_body(1), "allocations": {}})
    client.write(Verb.POST, "/allocations", {CONSUMER: _body()})
    client.delete_allocations(CONSUMER)
    assert [call.verb for call in adapter.seen(writes(CONSUMER))] == ["PUT", "POST"]
    assert [call.verb for call in adapter.seen(releases(CONSUMER))] == ["PUT", "DELETE"]


def test_same_seed_draws_the_same_faults(placement: EmbeddedPlacementFixture) -> None:
    def drawn(seed: int) -> list[FaultKind | None]:
        rates = dict.fromkeys(FaultKind, 0.05)
        adapter = FaultyAdapter(placement.adapter, rng=random.Random(seed), rates=rates)
        for number in range(100):
            send = adapter.get if number % 2 else adapter.delete
            try:
                send(f"/allocations/{CONSUMER}")
            except Exception:
                continue  # some faults are exceptions
        return [call.fault for call in adapter.calls]

    faults = drawn(1)
    assert faults == drawn(1) != drawn(2)
    assert {f for f in faults[1::2] if f} <= FAULTS_OF["GET"]
    assert {f for f in faults[::2] if f} - FAULTS_OF["GET"]
