# SPDX-License-Identifier: Apache-2.0
"""A scheduler is ready once Placement answers, and finds that out by itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from moorage.scheduler.errors import PlacementError
from moorage.scheduler.placement import health as health_module
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.health import PlacementHealth

from ...fixtures.placement_servers import (
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ...fixtures.ports import refusing_url
from ...fixtures.waiting import wait_until

ALWAYS = 1000
CONSUMER = "7f1d7d0a-41a9-4e2b-8f6b-2f0c9d3b6a10"

#: Seconds of silence after which Placement is probed here: soon.
PROBE_AFTER_S = 1.0

Start = Callable[[PlacementClient], PlacementHealth]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start to watch Placement through a client, until the end of the test."""
    monkeypatch.setattr(health_module, "PROBE_AFTER_S", PROBE_AFTER_S)
    with contextlib.ExitStack() as stack:

        def start_one(client: PlacementClient) -> PlacementHealth:
            stack.callback(client.health.stop)
            client.health.start(client.probe)
            return client.health

        yield start_one


def test_placement_that_answers_is_ready(
    server: MisbehavingServer, start: Start
) -> None:
    client = server.client()
    health = client.health
    assert not health.is_ready
    assert "not been polled yet" in health.note
    start(client)
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
    start: Start,
    caplog: pytest.LogCaptureFixture,
    wrong: Misbehaviour,
    message: str,
) -> None:
    server.misbehave(wrong, times=ALWAYS)
    client = server.client(timeout_s=0.5 if wrong is Misbehaviour.HANG else 60.0)
    health = start(client)
    assert not health.is_ready
    assert message in health.note
    assert "Placement does not answer yet" in caplog.text
    server.behave()
    wait_until(lambda: health.is_ready)
    assert health.note == ""


def test_first_call_that_fails_makes_it_unready_until_it_is_back(
    server: MisbehavingServer, start: Start
) -> None:
    client = server.client()
    health = start(client)
    server.misbehave(Misbehaviour.BAD_GATEWAY, times=ALWAYS)
    with pytest.raises(PlacementError):
        client.allocations(CONSUMER)
    assert not health.is_ready
    assert "Placement fails: since 20" in health.note
    assert "answered 502" in health.note
    wait_until(lambda: health.is_down)  # probes fail, too
    server.behave()
    wait_until(lambda: health.is_ready)  # without any request
    assert health.note == ""
    client.allocations(CONSUMER)


@pytest.mark.parametrize("wrong", [Misbehaviour.BAD_GATEWAY, Misbehaviour.HANG])
def test_placement_that_goes_away_makes_it_unready_without_any_request(
    server: MisbehavingServer, start: Start, wrong: Misbehaviour
) -> None:
    client = server.client(timeout_s=0.5 if wrong is Misbehaviour.HANG else 60.0)
    health = start(client)
    server.misbehave(wrong, times=ALWAYS)
    wait_until(lambda: not health.is_ready)
    server.behave()
    wait_until(lambda: health.is_ready)


@pytest.mark.deep
def test_busy_placement_is_not_probed(server: MisbehavingServer, start: Start) -> None:
    client = server.client()
    start(client)
    n_calls = 0
    until = time.monotonic() + PROBE_AFTER_S + 2
    while time.monotonic() < until:
        client.allocations(CONSUMER)
        n_calls += 1
    assert len(server.seen) == 1 + n_calls


def test_empty_placement_is_ready_with_a_note(
    server: MisbehavingServer, start: Start
) -> None:
    client = server.client()
    health = start(client)
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
