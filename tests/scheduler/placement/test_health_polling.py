# SPDX-License-Identifier: Apache-2.0
"""A scheduler is ready once Placement answers, and finds that out by itself."""

from __future__ import annotations

import threading

import pytest

from moorage.scheduler.errors import PlacementError
from moorage.scheduler.placement.allocations.limits import CIRCUIT_MAX_FAILURES
from moorage.scheduler.placement.client import PlacementClient

from ...fixtures.placement_servers import (
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ...fixtures.ports import refusing_url
from ...fixtures.waiting import wait_until

ALWAYS = 1000
CONSUMER = "7f1d7d0a-41a9-4e2b-8f6b-2f0c9d3b6a10"


def test_placement_that_answers_is_ready(server: MisbehavingServer) -> None:
    client = server.client()
    health = client.health
    assert not health.is_ready
    assert "not been polled yet" in health.note
    health.start(client.probe)
    assert health.is_ready
    assert health.note == ""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Misbehaviour.ERROR, "answered 500"),
        (Misbehaviour.UNAUTHORIZED, "answered 401"),
        (Misbehaviour.NOT_ACCEPTABLE, "1.0 to 1.30"),
        (Misbehaviour.HTML, "not JSON"),
        (Misbehaviour.TRUNCATED, "got no answer"),
        (Misbehaviour.HANG, "timed out"),
    ],
)
def test_placement_that_is_away_at_the_start_is_warned_of_and_waited_for(
    server: MisbehavingServer,
    caplog: pytest.LogCaptureFixture,
    wrong: Misbehaviour,
    message: str,
) -> None:
    server.misbehave(wrong, times=ALWAYS)
    client = server.client(timeout_s=0.5 if wrong is Misbehaviour.HANG else 60.0)
    health = client.health
    health.start(client.probe)
    assert not health.is_ready
    assert message in health.note
    assert "Placement does not answer yet" in caplog.text
    server.behave()
    wait_until(lambda: health.is_ready)
    assert health.note == ""


def test_placement_that_goes_away_makes_it_unready_until_it_is_back(
    server: MisbehavingServer,
) -> None:
    client = server.client()
    health = client.health
    health.start(client.probe)
    server.misbehave(Misbehaviour.BAD_GATEWAY, times=ALWAYS)
    for _ in range(CIRCUIT_MAX_FAILURES):
        with pytest.raises(PlacementError):
            client.allocations(CONSUMER)
    assert not health.is_ready
    assert "since" in health.note
    server.behave()
    wait_until(lambda: health.is_ready)  # without any request
    client.allocations(CONSUMER)
    health.stop()


def test_empty_placement_is_ready_with_a_note(server: MisbehavingServer) -> None:
    client = server.client()
    health = client.health
    health.start(client.probe)
    assert client.is_empty()
    assert health.is_ready
    assert "No compute service has registered" in health.note


def test_no_call_is_sent_after_the_stop() -> None:
    client = PlacementClient(adapter_to(refusing_url()))
    health = client.health
    health.start(client.probe)
    assert _watches()
    health.stop()
    assert not _watches()
    health.start(client.probe)
    assert not _watches()
    assert not health.is_ready
    assert "got no answer" in health.note


def _watches() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "placement-watch"]
