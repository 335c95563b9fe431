# SPDX-License-Identifier: Apache-2.0
"""Databases that are read again and again, and are left alone while they are away."""

from __future__ import annotations

import contextlib
import datetime
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import sqlalchemy as sa

from ...failures import cause_of
from .engines import is_in_memory, is_local

LOG = logging.getLogger(__name__)

#: Seconds between attempts at a database that is away, at most.
_LONGEST_PAUSE_S: Final = 60.0
#: Seconds after which an attempt that still runs is a sign that the database hangs.
_PROMPT_S: Final = 1.0
#: Attempts that may hang at once: a driver may know no time limit.
_MAX_HANGING: Final = 3

#: Takes over what was read; called with the lock held.
TakeOver = Callable[[], None]
#: Given a connection and the time, reads; what it raises is why that was impossible.
Read = Callable[[sa.Connection, float], TakeOver]


class Attempt:
    """One attempt to read a database.

    Attributes
    ----------
    is_late : bool
        It took longer than it may; its outcome is welcome all the same.
    is_abandoned : bool
        Nobody wants its outcome any more, nor waits for it.
    """

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.is_late = False
        self.is_abandoned = False
        self._began = time.monotonic()
        self._is_done = False
        #: Done or abandoned.
        self._over = threading.Event()
        self._by = threading.current_thread()

    @property
    def is_running(self) -> bool:
        """Whether somebody is at it; in a process forked meanwhile nobody is."""
        return not self._is_done and self._by.is_alive()

    @property
    def age_s(self) -> float:
        """How long ago it began, seconds."""
        return time.monotonic() - self._began

    def wait(self, timeout_s: float) -> bool:
        """Return whether it ended within that time, or was abandoned."""
        return self._over.wait(max(0.0, timeout_s))

    def abandon(self) -> None:
        """Want no outcome of it."""
        self.is_abandoned = True
        self._over.set()

    def make(self, work: Callable[[], None], name: str, *, here: bool) -> None:
        """Do the work, `here` or in a thread of its own."""

        def run() -> None:
            try:
                work()
            finally:
                self._is_done = True
                self._over.set()

        if here:
            run()
        else:
            by = threading.Thread(target=run, name=name, daemon=True)
            by.start()
            self._by = by  # not before it is alive: meanwhile whoever starts it is


class Part:
    """One database, and whether it answers.

    Parameters
    ----------
    what : str
        Its name for people.
    connect : callable
        Return its engine; it may fail, as reading may.
    lock : threading.RLock
        Held while what was read is taken over, and while this changes.
    clock : callable
        Seconds since the epoch.

    Attributes
    ----------
    seen_at : float or None
        When the last look began that read it to its end.
    away_since : float or None
        Since when it does not answer in time; None: it does, or was never asked.
    """

    #: Whether a start goes on without it; else who starts says why it cannot be read.
    may_be_away = True

    def __init__(
        self,
        what: str,
        connect: Callable[[], sa.Engine],
        lock: threading.RLock,
        clock: Callable[[], float],
    ) -> None:
        self.what = what
        self.seen_at: float | None = None
        self.away_since: float | None = None
        self.reason = ""
        self._connect = connect
        self._lock = lock
        self._clock = clock
        self._engine: sa.Engine | None = None
        self._failures = 0
        self._retry_at: float | None = None
        self._attempt: Attempt | None = None
        self._hanging: list[Attempt] = []
        self._is_gone = False

    def renew(self) -> None:
        """Forget what reading keeps: the next attempt reads everything."""

    @property
    def is_up(self) -> bool:
        """Whether it answered in time when it was asked last."""
        return self.away_since is None

    @property
    def is_prompt(self) -> bool:
        """Whether any thread may read it now and soon has an answer."""
        attempt = self.attempt
        is_slow = attempt is not None and attempt.age_s > _PROMPT_S
        return self.is_up and not self.is_in_memory and not is_slow

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that is being made, if one is."""
        attempt = self._attempt
        return attempt if attempt is not None and attempt.is_running else None

    def engine(self) -> sa.Engine:
        """Return its engine, made once."""
        if self._engine is None:
            self._engine = self._connect()
        return self._engine

    @property
    def is_local(self) -> bool:
        """Whether it is read by whoever asks."""
        return self._engine is not None and is_local(self._engine)

    @property
    def is_in_memory(self) -> bool:
        """Whether no thread of ours may read it."""
        return self._engine is not None and is_in_memory(self._engine)

    def describe(self) -> str:
        """Return since when it does not answer, and why, for people."""
        since = "" if self.away_since is None else f" since {_written(self.away_since)}"
        return f"{self._named()} does not answer{since}: {self.reason}"

    def _named(self) -> str:
        """Return its name, with the URL that it is reached by once that is known."""
        if self._engine is None:
            return self.what
        url = self._engine.url.set(query={}).render_as_string(hide_password=True)
        return f"{self.what} ({url})"

    # -- attempts ----------------------------------------------------------------------

    def begin(
        self, reading: Callable[[], Read], *, is_forced: bool = False
    ) -> Attempt | None:
        """Read it, in a thread of its own; SQLite in the caller's, as it never hangs.

        Parameters
        ----------
        reading : callable
            Return what reads; called with the lock held, once an attempt that hangs
            has been given up.
        is_forced : bool
            Also if it is away and was to be left alone.

        Returns
        -------
        Attempt or None
            None: it is being read already, is to be left alone, or is gone.
        """
        with self._lock:
            if not self._may_begin(is_forced):
                return None
            try:
                engine = self.engine()
            except Exception as e:  # not ours: whatever is wrong with its URL
                self.fail(cause_of(e))
                return None
            if self.attempt is not None:
                self._leave(self.attempt)
            attempt = self._attempt = Attempt(self._clock())
            read = reading()
        attempt.make(
            lambda: self._read(engine, attempt, read),
            f"moorage {self.what}",
            here=is_local(engine),
        )
        return attempt

    def _may_begin(self, is_forced: bool) -> bool:
        attempt = self.attempt
        if self._is_gone or (attempt is not None and not attempt.is_late):
            return False
        self._hanging = [each for each in self._hanging if each.is_running]
        if len(self._hanging) >= _MAX_HANGING:
            return False
        if is_forced or self._retry_at is None:
            return True
        # A clock that was put back does not make the pause longer.
        return not 0 < self._retry_at - self._clock() <= _LONGEST_PAUSE_S

    def _leave(self, attempt: Attempt) -> None:
        attempt.abandon()
        self._hanging.append(attempt)
        self._attempt = None
        self.renew()

    def abandon(self) -> None:
        """Want no outcome of an attempt that is being made."""
        with self._lock:
            if self.attempt is not None:
                self._leave(self.attempt)

    def drop(self) -> None:
        """Read it never again: it is gone, or is found elsewhere."""
        with self._lock:
            self._is_gone = True
            self.abandon()

    def _read(self, engine: sa.Engine, attempt: Attempt, read: Read) -> None:
        take_over: TakeOver | None = None
        reason = ""
        try:
            with _snapshot(engine) as connection:
                take_over = read(connection, attempt.began_at)
        except Exception as e:  # whatever a driver makes of a server that talks garbage
            reason = cause_of(e)
        # Not inside of `except`: the log would repeat the error.
        with self._lock:
            if attempt.is_abandoned:
                return
            if take_over is None:
                self.fail(reason)
            else:
                self._take(attempt, take_over)

    def _take(self, attempt: Attempt, take_over: TakeOver) -> None:
        try:
            take_over()
        except Exception as e:  # what was read has to be read again, as a whole
            LOG.exception("%s was read, but cannot be taken over", self.what)
            self.fail(cause_of(e))
            return
        self.seen_at = attempt.began_at
        self._retry_at = None
        if not attempt.is_late and self.away_since is not None:
            LOG.info("%s answers again", self.what)
            self.away_since = None
            self._failures = 0

    def note_lateness(self, limit_s: float, *, had_its_time: bool = False) -> None:
        """Count it as away if the attempt that is being made takes too long."""
        with self._lock:
            attempt = self.attempt
            if attempt is None or attempt.is_late:
                return
            if had_its_time or attempt.age_s >= limit_s:
                attempt.is_late = True
                self._go_away(f"no answer within {limit_s:g} s")

    def fail(self, reason: str) -> None:
        """Count it as away; it is left alone for a while, and then read whole."""
        self._go_away(reason)
        self.renew()

    def _go_away(self, reason: str) -> None:
        now = self._clock()
        self._retry_at = now + min(_LONGEST_PAUSE_S, 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        self.reason = reason
        if self.away_since is None:
            self.away_since = now
            level = (
                logging.WARNING if self.seen_at or self.may_be_away else logging.DEBUG
            )
            LOG.log(
                level, "%s cannot be read and is tried again: %s", self._named(), reason
            )
        else:
            LOG.debug("%s still cannot be read: %s", self.what, reason)


@contextlib.contextmanager
def _snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Yield a connection whose statements all see one state, where that is possible.

    MariaDB's default isolation gives it; SQLite has no such thing for reads that
    somebody else's engine makes.
    """
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection = connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        yield connection


def _written(moment_s: float) -> str:
    moment = datetime.datetime.fromtimestamp(moment_s, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
