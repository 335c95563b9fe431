# SPDX-License-Identifier: Apache-2.0
"""A periodic thread survives what it calls; an outage is logged when it changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from moorage.scheduler.periodic import Outage, Periodic

from ..fixtures.hand_time import HandThreads, HandTime
from ..fixtures.waiting import wait_until

LOG = logging.getLogger(__name__)


def periodic(
    run: Callable[[], object],
    interval_s: float | Callable[[], float] = 10.0,
    *,
    is_immediate: bool = False,
    spawner: HandThreads | None = None,
) -> Periodic:
    return Periodic(
        run, interval_s, log=LOG, what="Polling", name="poller",
        spawner=spawner, is_immediate=is_immediate,
    )  # fmt: skip


@pytest.mark.parametrize(("is_immediate", "n_calls"), [(False, 3), (True, 4)])
def test_function_is_called_once_an_interval(is_immediate: bool, n_calls: int) -> None:
    calls: list[None] = []
    threads = HandThreads(HandTime())
    periodic(
        lambda: calls.append(None), is_immediate=is_immediate, spawner=threads
    ).start()
    threads.run_for(35.0)
    assert len(calls) == n_calls


def test_interval_may_depend_on_the_last_call() -> None:
    time = HandTime()
    threads = HandThreads(time)
    called_at: list[float] = []
    polling = periodic(
        lambda: called_at.append(time.elapsed_s),
        lambda: 2.0 ** len(called_at),
        spawner=threads,
    )
    polling.start()
    began = time.elapsed_s
    threads.run_for(16.0)
    assert [at - began for at in called_at] == [1.0, 3.0, 7.0, 15.0]


def test_exception_is_logged_and_the_thread_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = HandThreads(HandTime())
    periodic(lambda: 1 / 0, spawner=threads).start()
    threads.run_for(25.0)
    assert [record.getMessage() for record in caplog.records] == [
        "Polling failed; retrying",
        "Polling failed; retrying",
    ]
    assert caplog.records[0].exc_info


def test_wake_calls_at_once_and_stop_ends_the_thread() -> None:
    calls: list[str] = []
    polling = periodic(
        lambda: calls.append(threading.current_thread().name), interval_s=3600.0
    )
    assert not polling.is_started
    polling.start()
    polling.start()  # does nothing
    assert polling.is_started
    polling.wake()
    wait_until(lambda: calls)
    polling.stop(5.0)
    polling.wake()
    assert calls == ["poller"]
    assert "poller" not in {thread.name for thread in threading.enumerate()}


def test_function_can_end_its_thread() -> None:
    calls: list[None] = []
    threads = HandThreads(HandTime())
    polling = periodic(lambda: (calls.append(None), polling.end()), spawner=threads)
    polling.start()
    threads.run_for(35.0)
    assert len(calls) == 1
    assert polling.is_stopping


def test_repeated_failure_is_logged_at_debug_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(LOG)
    with caplog.at_level(logging.DEBUG):
        for cause in ("refused", "timeout"):
            outage.fail(cause, "It fails: %s", cause)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "It fails: refused"),
        ("DEBUG", "It fails: timeout"),
    ]


def test_first_failure_and_recovery_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(LOG)
    with caplog.at_level(logging.INFO):
        outage.end("Works again")
        for cause in ("refused", "refused", "timeout"):
            outage.fail(cause, "It fails: %s", cause)
        assert (outage.cause, outage.n_failures) == ("timeout", 3)
        outage.end("Works again")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "It fails: refused"),
        ("INFO", "Works again"),
    ]
    assert (outage.cause, outage.n_failures) == ("", 0)


def test_other_cause_is_logged_where_causes_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(LOG, logs_causes=True)
    for cause in ("refused", "refused", "timeout"):
        outage.fail(cause, "It fails: %s", cause, level=logging.ERROR)
    outage.end()
    assert [record.getMessage() for record in caplog.records] == [
        "It fails: refused",
        "It fails: timeout",
    ]


def test_backoff_doubles_up_to_a_limit() -> None:
    outage, seconds = Outage(LOG), []
    for _ in range(6):
        outage.fail("refused", "It fails")
        seconds.append(outage.backoff_s(1.0, 30.0))
    assert seconds == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
