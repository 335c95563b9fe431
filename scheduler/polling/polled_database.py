# SPDX-License-Identifier: Apache-2.0
"""Databases that are polled, with timeouts, and with backoff while unavailable."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import sqlalchemy as sa

from ..clock import utc_text
from ..failures import cause_of
from .engines import is_in_memory, is_local

LOG = logging.getLogger(__name__)

#: Seconds after which a running attempt means that the database is slow or hangs.
_PROMPT_S: Final = 1.0
#: What servers say, as operational errors too, of a wrong user, password or database.
_REFUSALS: Final = (
    "Access denied",
    "Unknown database",
    "authentication failed",
    "does not exist",
)
#: Attempts that may hang at once: a driver may have no timeout.
_MAX_HANGING: Final = 3

#: Applies what was read; called with the lock held.
Apply = Callable[[], None]
#: Reads, given a connection and the time; an exception is the reason of the failure.
Read = Callable[[sa.Connection, float], Apply]


class PollAttempt:
    """One attempt to read a database.

    Attributes
    ----------
    is_overdue : bool
        It exceeded its time limit; its result is still used.
    is_abandoned : bool
        Its result is not used, and no thread waits for it.
    """

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.is_overdue = False
        self.is_abandoned = False
        self._began = time.monotonic()
        self._ended = threading.Event()
        #: Ended or abandoned.
        self._over = threading.Event()
        self._by = threading.current_thread()

    @property
    def is_running(self) -> bool:
        """Whether its thread still works; False in a process forked since."""
        return not self._ended.is_set() and self._by.is_alive()

    @property
    def age_s(self) -> float:
        """The seconds since it began."""
        return time.monotonic() - self._began

    def wait(self, timeout_s: float) -> bool:
        """Return whether it ended, or was abandoned, within that time."""
        return self._over.wait(max(0.0, timeout_s))

    def wait_until_disconnected(self, timeout_s: float) -> None:
        """Wait until it has returned its connection, even if it was abandoned."""
        self._ended.wait(timeout_s)

    def abandon(self) -> None:
        """Ignore its result, and wake the threads that wait for it."""
        self.is_abandoned = True
        self._over.set()

    def run(self, work: Callable[[], None], name: str, *, here: bool) -> None:
        """Run the work, in the caller's thread if `here`, else in a new one."""

        def run() -> None:
            try:
                work()
            finally:
                self._ended.set()
                self._over.set()

        if here:
            run()
        else:
            by = threading.Thread(target=run, name=name, daemon=True)
            by.start()
            self._by = by  # after start(): until then the starting thread counts


class PolledDatabase:
    """One database that is polled, and whether it is available.

    Parameters
    ----------
    what : str
        Its name in messages.
    connect : callable
        Returns its engine; may raise, as reading may.
    lock : threading.RLock
        Held while results are applied, and while this object changes.
    clock : callable
        Seconds since the epoch.

    Attributes
    ----------
    seen_at : float or None
        When the last successful attempt began.
    unavailable_since : float or None
        Since when it does not answer in time; None: it does, or was never read.
    is_unreachable : bool
        Whether the last failure was that its server could not be reached.
    """

    #: Whether a start succeeds without it; if not, the start reports the failure.
    may_be_unavailable = True
    #: Longest backoff while it is unavailable, seconds.
    max_backoff_s = 60.0

    def __init__(
        self,
        what: str,
        connect: Callable[[], sa.Engine],
        lock: threading.RLock,
        clock: Callable[[], float],
    ) -> None:
        self.what = what
        self.seen_at: float | None = None
        self.unavailable_since: float | None = None
        self.reason = ""
        self.is_unreachable = False
        self._connect = connect
        self._lock = lock
        self._clock = clock
        self._engine: sa.Engine | None = None
        self._failures = 0
        self._retry_at: float | None = None
        self._attempt: PollAttempt | None = None
        self._hanging: list[PollAttempt] = []
        self._is_retired = False

    def reset(self) -> None:
        """Reset the readers, so that the next attempt reads everything."""

    @property
    def is_up(self) -> bool:
        """Whether it answered in time when it was last read."""
        return self.unavailable_since is None

    @property
    def is_prompt(self) -> bool:
        """Whether any thread may read it now and can expect a fast answer."""
        attempt = self.attempt
        is_slow = attempt is not None and attempt.age_s > _PROMPT_S
        return self.is_up and not self.is_in_memory and not is_slow

    @property
    def attempt(self) -> PollAttempt | None:
        """The running attempt, if any."""
        attempt = self._attempt
        return attempt if attempt is not None and attempt.is_running else None

    def engine(self) -> sa.Engine:
        """Return its engine, which is created once."""
        if self._engine is None:
            self._engine = self._connect()
        return self._engine

    @property
    def is_local(self) -> bool:
        """Whether it is read in the caller's thread."""
        return self._engine is not None and is_local(self._engine)

    @property
    def is_in_memory(self) -> bool:
        """Whether background threads must not read it."""
        return self._engine is not None and is_in_memory(self._engine)

    def describe(self) -> str:
        """Return since when it does not answer, and why, for messages."""
        at_s = self.unavailable_since
        since = "" if at_s is None else f" since {utc_text(at_s)}"
        return f"{self._named()} does not answer{since}: {self.reason}"

    def _named(self) -> str:
        """Return its name, with its URL without the password once that is known."""
        if self._engine is None:
            return self.what
        url = self._engine.url.set(query={}).render_as_string(hide_password=True)
        return f"{self.what} ({url})"

    # -- attempts ----------------------------------------------------------------------

    def start_attempt(
        self, reading: Callable[[], Read], *, is_forced: bool = False
    ) -> PollAttempt | None:
        """Read it in a new thread; SQLite in the caller's, as it never hangs.

        Parameters
        ----------
        reading : callable
            Returns the function that reads; called with the lock held, after a hanging
            attempt was abandoned.
        is_forced : bool
            Read it even during its backoff.

        Returns
        -------
        PollAttempt or None
            None: it is being read already, is in backoff, or is retired.
        """
        with self._lock:
            if not self._may_begin(is_forced):
                return None
            try:
                engine = self.engine()
            except Exception as e:  # from the driver: the URL is invalid
                self.mark_failed(cause_of(e))
                return None
            if self.attempt is not None:
                self._give_up(self.attempt)
            attempt = self._attempt = PollAttempt(self._clock())
            read = reading()
        attempt.run(
            lambda: self._read(engine, attempt, read),
            f"moorage {self.what}",
            here=is_local(engine),
        )
        return attempt

    def _may_begin(self, is_forced: bool) -> bool:
        attempt = self.attempt
        if self._is_retired or (attempt is not None and not attempt.is_overdue):
            return False
        self._hanging = [hanging for hanging in self._hanging if hanging.is_running]
        if len(self._hanging) >= _MAX_HANGING:
            return False
        if is_forced or self._retry_at is None:
            return True
        # A clock that was set back must not prolong the backoff.
        return not 0 < self._retry_at - self._clock() <= self.max_backoff_s

    def _give_up(self, attempt: PollAttempt) -> None:
        attempt.abandon()
        self._hanging.append(attempt)
        self._attempt = None
        self.reset()

    def abandon(self) -> None:
        """Abandon the running attempt, if any."""
        with self._lock:
            if self.attempt is not None:
                self._give_up(self.attempt)

    def retire(self) -> None:
        """Never read it again: it was deleted, or its mapping has changed."""
        with self._lock:
            self._is_retired = True
            self.abandon()

    def _read(self, engine: sa.Engine, attempt: PollAttempt, read: Read) -> None:
        apply: Apply | None = None
        reason = ""
        try:
            with _snapshot(engine) as connection:
                apply = read(connection, attempt.began_at)
        except Exception as e:  # whatever the driver raises
            reason = cause_of(e)
            self.is_unreachable = not is_local(engine) and _is_unreachable(e)
        # Not inside `except`: the log would repeat the error.
        with self._lock:
            if attempt.is_abandoned:
                return
            if apply is None:
                self.mark_failed(reason)
            else:
                self._apply(attempt, apply)

    def _apply(self, attempt: PollAttempt, apply: Apply) -> None:
        try:
            apply()
        except Exception as e:  # everything must be read again
            LOG.exception("Applying what was read of %s failed; retrying", self.what)
            self.mark_failed(cause_of(e))
            return
        self.seen_at = attempt.began_at
        self._retry_at = None
        if not attempt.is_overdue and self.unavailable_since is not None:
            LOG.info("%s answers again", self.what)
            self.unavailable_since = None
            self._failures = 0

    def check_timeout(self, limit_s: float, *, is_timed_out: bool = False) -> None:
        """Mark it as unavailable if the running attempt takes too long."""
        with self._lock:
            attempt = self.attempt
            if attempt is None or attempt.is_overdue:
                return
            if is_timed_out or attempt.age_s >= limit_s:
                attempt.is_overdue = True
                self._mark_unavailable(f"no answer within {limit_s:g} s")

    def mark_failed(self, reason: str) -> None:
        """Mark it as unavailable; after a backoff everything is read again."""
        self._mark_unavailable(reason)
        self.reset()

    def _mark_unavailable(self, reason: str) -> None:
        now = self._clock()
        self._retry_at = now + min(self.max_backoff_s, 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        self.reason = reason
        if self.unavailable_since is None:
            self.unavailable_since = now
            may_start = self.seen_at or self.may_be_unavailable
            level = logging.WARNING if may_start else logging.DEBUG
            LOG.log(level, "%s cannot be read; retrying: %s", self._named(), reason)
        else:
            LOG.debug("%s still cannot be read: %s", self.what, reason)


@contextlib.contextmanager
def _snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Yield a connection whose statements all read one snapshot, where possible.

    MariaDB's default isolation level provides it; SQLite has none for reads through an
    engine that was passed in.
    """
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection = connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        yield connection


def _is_unreachable(error: Exception) -> bool:
    """Return whether an error came from the network or a server that is not ready."""
    cause = getattr(error, "inner_exception", error)  # of oslo.db's errors
    is_of_server = isinstance(cause, sa.exc.OperationalError | sa.exc.InterfaceError)
    return is_of_server and not any(words in str(error) for words in _REFUSALS)


class SharedRefresh:
    """Let concurrent callers share one run of some work.

    A caller waits for a run that began after its call: one that is already in progress
    may have missed the change the caller knows of.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_begun = 0
        self._n_ended = 0

    def run(self, work: Callable[[], None]) -> None:
        """Return once a run that began after this call has ended, in any thread."""
        with self._changed:
            wanted = self._n_begun + 1
            while self._n_ended < wanted and self._n_begun != self._n_ended:
                self._changed.wait()
            if self._n_ended >= wanted:
                return
            self._n_begun += 1
        try:
            work()
        finally:
            with self._changed:
                self._n_ended = self._n_begun
                self._changed.notify_all()
