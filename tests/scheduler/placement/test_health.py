# SPDX-License-Identifier: Apache-2.0
"""A Placement that is away is called seldom, and only one call waits for it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moorage.scheduler.errors import (
    PlacementError,
    PlacementRejected,
    PlacementUnavailable,
)
from moorage.scheduler.placement.adapter import AnswerLost, Verb
from moorage.scheduler.placement.allocations.limits import (
    CIRCUIT_FIRST_PAUSE_S,
    CIRCUIT_MAX_FAILURES,
    CIRCUIT_MAX_LOST_S,
    CIRCUIT_MAX_PAUSE_S,
)
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.health import CallOutcome, PlacementHealth

from ...fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ...fixtures.ports import refusing_url
from ...fixtures.waiting import wait_until
from .watched import WAIT_S, Clock, vcpu_query

CONSUMER = "7f1d7d0a-41a9-4e2b-8f6b-2f0c9d3b6a10"
EMPTY = {"allocations": {}, "project_id": "p", "user_id": "u"}
REFUSED = "Calls to Placement are suspended"
MANY = 1000


class FlakyApplication:
    """A WSGI application that answers 503 while it is down, at a cost, when let."""

    def __init__(self, clock: Clock) -> None:
        self.is_down = True
        self.costs_s = 0.0
        self.go = threading.Event()
        self.go.set()
        self.arrived = threading.Semaphore(0)
        self._clock = clock

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        is_down = self.is_down
        self.arrived.release()
        assert self.go.wait(WAIT_S)
        self._clock.now += self.costs_s
        status = "503 Away" if is_down else "200 OK"
        start_response(status, [("Content-Type", "application/json")])
        return [b"away" if is_down else b'{"allocations": {}}']


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def application(clock: Clock) -> FlakyApplication:
    return FlakyApplication(clock)


@pytest.fixture
def server(application: FlakyApplication) -> Iterator[MisbehavingServer]:
    with MisbehavingServer(application) as server:
        yield server
        application.go.set()


def _client(url: str, clock: Clock, *, timeout_s: float = 10.0) -> PlacementClient:
    health = PlacementHealth(clock=clock, rng=random.Random(1))
    return PlacementClient(adapter_to(url, timeout_s=timeout_s), health=health)


@pytest.fixture
def client(server: MisbehavingServer, clock: Clock) -> PlacementClient:
    return _client(server.url, clock)


def _fail(client: PlacementClient, times: int = CIRCUIT_MAX_FAILURES) -> None:
    for _ in range(times):
        with pytest.raises(PlacementError) as raised:
            client.allocations(CONSUMER)
        assert REFUSED not in str(raised.value)


def _assert_refused(client: PlacementClient, message: str = "") -> str:
    with pytest.raises(PlacementUnavailable, match=REFUSED) as raised:
        client.allocations(CONSUMER)
    assert message in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Misbehaviour.ERROR, "answered 500"),
        (Misbehaviour.UNAUTHORIZED, "answered 401"),
        (Misbehaviour.FORBIDDEN, "answered 403"),
        (Misbehaviour.NOT_ACCEPTABLE, "supports 1.0 to 1.30"),
        (Misbehaviour.BAD_GATEWAY, "answered 502"),
        (Misbehaviour.HTML, "not JSON"),
        (Misbehaviour.TRUNCATED, "got no answer"),
        (Misbehaviour.GARBAGE, "not JSON"),
        (Misbehaviour.WRONG_SHAPE, "not Placement's"),
        (Misbehaviour.HANG, "timed out"),
    ],
)
def test_failures_in_a_row_open_it_and_nothing_is_sent_any_more(
    server: MisbehavingServer, clock: Clock, wrong: Misbehaviour, message: str
) -> None:
    timeout_s = 0.1 if wrong is Misbehaviour.HANG else 60.0
    client = _client(server.url, clock, timeout_s=timeout_s)
    server.misbehave(wrong, times=MANY)
    _fail(client)
    n_seen = len(server.seen)
    text = _assert_refused(client, message)
    assert "since 20" in text
    assert f"failed {CIRCUIT_MAX_FAILURES} time(s)" in text
    assert f"Next retry in {client.health.pause_left_s:.1f} s" in text
    assert len(server.seen) == n_seen == CIRCUIT_MAX_FAILURES


def test_refused_connections_open_it(clock: Clock) -> None:
    client = _client(refusing_url(), clock)
    _fail(client)
    _assert_refused(client, "got no answer")


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.put_allocations(CONSUMER, EMPTY),
        lambda client: client.write(Verb.POST, "/allocations", {CONSUMER: EMPTY}),
        lambda client: client.delete_allocations(CONSUMER),
        lambda client: client.allocation_candidates(vcpu_query()),
        lambda client: client.probe(),
    ],
    ids=["put", "post", "delete", "candidates", "probe"],
)
def test_every_call_is_refused_and_a_write_is_not_in_doubt(
    client: PlacementClient, call: Callable[[PlacementClient], object]
) -> None:
    _fail(client)
    with pytest.raises(PlacementUnavailable, match=REFUSED) as raised:
        call(client)
    assert not isinstance(raised.value, AnswerLost)


def test_lost_writes_open_it(
    server: MisbehavingServer, client: PlacementClient
) -> None:
    server.misbehave(Misbehaviour.LOST, times=MANY)
    for _ in range(CIRCUIT_MAX_FAILURES):
        with pytest.raises(AnswerLost):
            client.put_allocations(CONSUMER, EMPTY)
    _assert_refused(client)


def test_failed_writes_in_placements_own_words_do_not_open_it(
    server: MisbehavingServer, client: PlacementClient
) -> None:
    server.misbehave(Misbehaviour.ERROR, times=2 * CIRCUIT_MAX_FAILURES)
    for _ in range(2 * CIRCUIT_MAX_FAILURES):
        with pytest.raises(AnswerLost, match="answered 500"):
            client.put_allocations(CONSUMER, EMPTY)
    assert not client.health.is_down


def test_conflicts_and_refusals_are_no_failures(clock: Clock) -> None:
    with (
        EmbeddedPlacementFixture() as embedded,
        MisbehavingServer(embedded.placement.wsgi_app) as server,
    ):
        client = _client(server.url, clock)
        server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=CIRCUIT_MAX_FAILURES)
        for _ in range(CIRCUIT_MAX_FAILURES):
            assert client.put_allocations(CONSUMER, EMPTY).is_concurrent_update
        for _ in range(CIRCUIT_MAX_FAILURES):
            assert client.put_allocations(CONSUMER, EMPTY).status == 400
        for _ in range(CIRCUIT_MAX_FAILURES):
            assert not client.delete_allocations(CONSUMER)
        for _ in range(CIRCUIT_MAX_FAILURES):
            with pytest.raises(PlacementRejected):
                client.read("/allocation_candidates?resources=NO_SUCH:1")
        assert not client.health.is_down


def test_answer_in_between_makes_the_count_start_again(
    client: PlacementClient, application: FlakyApplication
) -> None:
    for _ in range(3):
        application.is_down = True
        _fail(client, CIRCUIT_MAX_FAILURES - 1)
        application.is_down = False
        client.allocations(CONSUMER)
    assert not client.health.is_down


def test_one_slow_failure_opens_the_circuit(
    client: PlacementClient, application: FlakyApplication
) -> None:
    application.costs_s = CIRCUIT_MAX_LOST_S
    _fail(client, 1)
    _assert_refused(client)


def test_failures_of_calls_from_before_the_last_answer_do_not_count(
    client: PlacementClient, application: FlakyApplication, clock: Clock
) -> None:
    with ThreadPoolExecutor(CIRCUIT_MAX_FAILURES) as pool:
        application.go.clear()
        calls = [
            pool.submit(client.allocations, CONSUMER)
            for _ in range(CIRCUIT_MAX_FAILURES)
        ]
        for _ in calls:
            assert application.arrived.acquire(timeout=WAIT_S)
        clock.now += 1
        application.is_down = False
        held, application.go = application.go, threading.Event()
        application.go.set()
        client.allocations(CONSUMER)  # it overtakes those that are held up
        held.set()
        for call in calls:
            assert isinstance(call.exception(WAIT_S), PlacementUnavailable)
    assert not client.health.is_down


def test_one_call_tries_when_the_pause_is_over_and_others_are_refused(
    server: MisbehavingServer,
    client: PlacementClient,
    application: FlakyApplication,
    clock: Clock,
) -> None:
    _fail(client)
    clock.now += client.health.pause_left_s
    application.is_down = False
    application.go.clear()
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(client.allocations, CONSUMER)
        wait_until(lambda: len(server.seen) == CIRCUIT_MAX_FAILURES + 1)
        _assert_refused(client, "A retry is in progress")
        assert client.health.is_down
        application.go.set()
        trying.result(WAIT_S)
    assert not client.health.is_down
    assert client.health.outage == ""
    client.allocations(CONSUMER)
    assert len(server.seen) == CIRCUIT_MAX_FAILURES + 2


def test_pauses_double_are_jittered_and_limited(
    client: PlacementClient, clock: Clock
) -> None:
    _fail(client)
    pauses = []
    for _ in range(2000):  # half a day
        pauses.append(client.health.pause_left_s)
        clock.now += pauses[-1]
        with pytest.raises(PlacementUnavailable), client.health.guarding(_failed):
            raise PlacementUnavailable("away")
    for n, pause_s in enumerate(pauses):
        longest_s = min(CIRCUIT_FIRST_PAUSE_S * 2.0 ** min(n, 9), CIRCUIT_MAX_PAUSE_S)
        assert longest_s / 2 <= pause_s <= longest_s
    assert len({round(pause_s, 3) for pause_s in pauses}) > CIRCUIT_MAX_FAILURES


def _failed(_error: PlacementError) -> CallOutcome:
    return CallOutcome.FAILED


def test_failed_attempt_has_the_newest_cause_and_the_first_time(
    server: MisbehavingServer, client: PlacementClient, clock: Clock
) -> None:
    _fail(client)
    since = _assert_refused(client, "answered 503").partition(" it has")[0]
    clock.now += client.health.pause_left_s
    server.misbehave(Misbehaviour.UNAUTHORIZED)
    _fail(client, 1)
    text = _assert_refused(client, "answered 401")
    assert f"{CIRCUIT_MAX_FAILURES + 1} time(s)" in text
    assert text[: len("Calls to Placement are suspended: since 20")] in since


def test_try_that_is_killed_does_not_leave_it_open_for_ever(
    server: MisbehavingServer, application: FlakyApplication, clock: Clock
) -> None:
    class Killing:
        is_killed = False

        def get(self, url: str, **more: Any) -> Any:
            if self.is_killed:
                raise KeyboardInterrupt
            return adapter_to(server.url).get(url, **more)

    adapter: Any = Killing()
    client = PlacementClient(adapter, health=PlacementHealth(clock=clock))
    _fail(client)
    clock.now += CIRCUIT_MAX_PAUSE_S
    adapter.is_killed = True
    with pytest.raises(KeyboardInterrupt):
        client.allocations(CONSUMER)
    adapter.is_killed = application.is_down = False
    client.allocations(CONSUMER)
    assert not client.health.is_down


def test_many_threads_call_an_absent_placement_a_few_times_only(
    server: MisbehavingServer, client: PlacementClient
) -> None:
    n_threads = 8

    def call(_: int) -> bool:
        try:
            client.allocations(CONSUMER)
        except PlacementUnavailable:
            return False
        return True

    with ThreadPoolExecutor(n_threads) as pool:
        assert not any(pool.map(call, range(400)))
    # Those that were on their way when it opened, beside those that opened it.
    assert len(server.seen) <= CIRCUIT_MAX_FAILURES + n_threads - 1


def test_outage_and_its_end_are_logged_once(
    client: PlacementClient,
    application: FlakyApplication,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _fail(client)
    clock.now += CIRCUIT_MAX_PAUSE_S
    _fail(client, 1)
    errors = [r for r in caplog.records if r.levelname == "ERROR"]
    assert [REFUSED in r.getMessage() for r in errors] == [True]
    clock.now += CIRCUIT_MAX_PAUSE_S
    application.is_down = False
    client.allocations(CONSUMER)
    assert caplog.text.count(f"answers again, after {2 * CIRCUIT_MAX_PAUSE_S} s") == 1
