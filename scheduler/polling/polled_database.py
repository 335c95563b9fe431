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
#: Texts of the operational errors of a server that answers, but rejects the user, the
#: password or the database.
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
        Whether the attempt has exceeded its time limit; its result is still used.
    is_abandoned : bool
        Whether the attempt's result is ignored; no thread waits for it any more.
    """

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.is_overdue = False
        self.is_abandoned = False
        self._began = time.monotonic()
        self._ended = threading.Event()
        #: Set when the attempt has ended or was abandoned.
        self._over = threading.Event()
        self._thread = threading.current_thread()

    @property
    def is_running(self) -> bool:
        """Whether its thread still works; False in a process that was forked later."""
        return not self._ended.is_set() and self._thread.is_alive()

    @property
    def age_s(self) -> float:
        """The seconds since the attempt began."""
        return time.monotonic() - self._began

    def wait(self, timeout_s: float) -> bool:
        """Return whether the attempt ends, or is abandoned, within the timeout."""
        return self._over.wait(max(0.0, timeout_s))

    def wait_until_disconnected(self, timeout_s: float) -> None:
        """Wait until the attempt has returned its connection, even an abandoned one."""
        self._ended.wait(timeout_s)

    def abandon(self) -> None:
        """Ignore the attempt's result, and wake the threads that wait for it."""
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
            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            self._thread = thread  # after start(): until then, the caller's counts


class PolledDatabase:
    """One database that is polled, and whether it is available.

    Parameters
    ----------
    what : str
        The name of the database in messages.
    connect : callable
        Returns the engine of the database; may raise any exception.
    lock : threading.RLock
        Held while results are applied, and while this object changes.
    clock : callable
        Seconds since the epoch.

    Attributes
    ----------
    seen_at : float or None
        When the last successful attempt began.
    unavailable_since : float or None
        Since when the database does not answer in time; None: it answers, or was never
        read.
    reason : str
        Why the newest failed attempt failed.
    is_unreachable : bool
        Whether the server could not be reached at the last failure.
    """

    #: Whether the scheduler can start without this database. If not, the start itself
    #: reports the failure.
    may_be_unavailable = True
    #: Longest backoff while the database is unavailable, seconds.
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
        """Reset a subclass's readers, so that the next attempt reads everything."""

    @property
    def is_up(self) -> bool:
        """Whether the database answered in time when it was last read."""
        return self.unavailable_since is None

    @property
    def is_prompt(self) -> bool:
        """Whether any thread may read the database now and can expect a fast answer."""
        attempt = self.attempt
        is_slow = attempt is not None and attempt.age_s > _PROMPT_S
        return self.is_up and not self.is_in_memory and not is_slow

    @property
    def attempt(self) -> PollAttempt | None:
        """The running attempt, if any."""
        attempt = self._attempt
        return attempt if attempt is not None and attempt.is_running else None

    def engine(self) -> sa.Engine:
        """Return the engine of the database, which is created once."""
        if self._engine is None:
            self._engine = self._connect()
        return self._engine

    @property
    def is_local(self) -> bool:
        """Whether the database is read in the caller's thread."""
        return self._engine is not None and is_local(self._engine)

    @property
    def is_in_memory(self) -> bool:
        """Whether background threads must not read the database."""
        return self._engine is not None and is_in_memory(self._engine)

    def describe(self) -> str:
        """Return since when the database does not answer, and why, for messages."""
        failed_at = self.unavailable_since
        since = "" if failed_at is None else f" since {utc_text(failed_at)}"
        return f"{self._named()} does not answer{since}: {self.reason}"

    def _named(self) -> str:
        """Return the name of the database, with its URL without password, if known."""
        if self._engine is None:
            return self.what
        url = self._engine.url.set(query={}).render_as_string(hide_password=True)
        return f"{self.what} ({url})"

    # -- attempts ----------------------------------------------------------------------

    def start_attempt(
        self, reading: Callable[[], Read], *, is_forced: bool = False
    ) -> PollAttempt | None:
        """Read the database in a new thread; SQLite, which never hangs, in this one.

        Parameters
        ----------
        reading : callable
            Returns the function that reads; called with the lock held, after a hanging
            attempt was abandoned.
        is_forced : bool
            Read the database even during its backoff.

        Returns
        -------
        PollAttempt or None
            None: the database is being read already, is in backoff, is retired or has
            an invalid URL, or too many attempts hang.
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
        """Never read the database again: its mapping was deleted or has changed."""
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
        """Mark the database as unavailable if the running attempt takes too long."""
        with self._lock:
            attempt = self.attempt
            if attempt is None or attempt.is_overdue:
                return
            if is_timed_out or attempt.age_s >= limit_s:
                attempt.is_overdue = True
                self._mark_unavailable(f"no answer within {limit_s:g} s")

    def mark_failed(self, reason: str) -> None:
        """Mark the database as unavailable; after a backoff all of it is read again."""
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

    A caller waits for a run that began after its call: a run that is already in
    progress may have missed the change that the caller knows of.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_begun = 0
        self._n_ended = 0

    def run(self, work: Callable[[], None]) -> None:
        """Return once a run that began after this call has ended, in any thread."""
        with self._changed:
            run_number = self._n_begun + 1
            while self._n_ended < run_number and self._n_begun != self._n_ended:
                self._changed.wait()
            if self._n_ended >= run_number:
                return
            self._n_begun += 1
        try:
            work()
        finally:
            with self._changed:
                self._n_ended = self._n_begun
                self._changed.notify_all()
