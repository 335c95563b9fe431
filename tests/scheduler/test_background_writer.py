# SPDX-License-Identifier: Apache-2.0
"""A writer goes on, whatever a write raises, and logs each failure once."""

from __future__ import annotations

import itertools
import logging

import pytest

from moorage.scheduler import background_writer
from moorage.scheduler.background_writer import BackgroundWriter
from moorage.scheduler.database import StoreUnavailable, StoreUnusable
from moorage.testing.builders import NOW

from ..fixtures.waiting import wait_until


class ThingsWriter(BackgroundWriter):
    """Counts its writes; each of the first ones raises one of `errors`."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__("things", self._count_disconnect, clock=lambda: NOW)
        self.errors = list(errors)
        self.n_writes = self.n_intervals = self.n_disconnects = 0

    def _count_disconnect(self) -> None:
        self.n_disconnects += 1

    def write(self) -> None:
        self.n_writes += 1
        if self.errors:
            raise self.errors.pop(0)

    def each_interval(self) -> None:
        self.n_intervals += 1


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of a millisecond."""
    monkeypatch.setattr(background_writer, "_INTERVAL_S", 0.001)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    "error", [StoreUnavailable("it is away."), RuntimeError("a\nbug"), KeyError("x")]
)
def test_any_failure_is_logged_once_and_retried(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    writer = ThingsWriter(error, error, error)
    with caplog.at_level(logging.WARNING):
        writer.start()
        wait_until(lambda: writer.n_writes > 4)
        writer.stop()
    # Threads that an earlier test has left may log, too.
    away, back = (
        record.getMessage()
        for record in caplog.records
        if record.name == background_writer.__name__
    )
    assert away.startswith("The store of things cannot be used: ")
    assert "\n" not in away
    assert back == "The store of things answers again; 0 things were not stored"
    assert (writer.failure, writer.failed_since) == ("", NOW)


@pytest.mark.usefixtures("fast")
def test_retries_are_rarer_and_intervals_go_on() -> None:
    writer = ThingsWriter(*itertools.repeat(StoreUnavailable("away."), 1000))
    writer.start()
    wait_until(lambda: writer.n_intervals > 100)
    assert writer.n_writes < 20
    n_before = writer.n_writes
    writer.stop()
    assert writer.n_writes > n_before, "the last attempt ignores the backoff"
    assert writer.failure == "away."


@pytest.mark.usefixtures("fast")
def test_a_failure_between_writes_is_logged_and_writing_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailsFirst(ThingsWriter):
        def each_interval(self) -> None:
            super().each_interval()
            if self.n_intervals == 1:
                raise RuntimeError("a bug")

    writer = FailsFirst()
    writer.start()
    wait_until(lambda: writer.n_writes > 4)
    writer.stop()
    [failed] = [each for each in caplog.records if each.exc_info]
    assert failed.getMessage().startswith("Preparing to write things failed; retrying")


def test_a_retry_that_is_demanded_ignores_the_backoff() -> None:
    writer = ThingsWriter(StoreUnavailable("away."))
    writer.mark_failed("away.")
    writer.start()
    writer.retry_now()
    wait_until(lambda: writer.n_writes == 1)
    writer.retry_now()
    wait_until(lambda: not writer.failure)
    writer.stop()


def test_a_thread_that_does_not_stop_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background_writer, "_STOP_S", 0.0)
    writer = ThingsWriter()
    with writer._write_lock:  # noqa: SLF001 - as a database that hangs
        writer.start()
        writer.stop()
    assert "Writing things does not stop in time" in caplog.text


def test_what_no_retry_can_help_stops_the_start() -> None:
    def refuse() -> None:
        raise StoreUnusable("wrong password")

    def fail() -> None:
        raise StoreUnavailable("away.")

    writer = ThingsWriter()
    with pytest.raises(StoreUnusable):
        writer.prepare(refuse, StoreUnusable)
    assert not writer.failure
    writer.prepare(fail, StoreUnusable)
    assert (writer.failure, writer.n_disconnects) == ("away.", 2)
