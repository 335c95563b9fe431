# SPDX-License-Identifier: Apache-2.0
"""Write to a store in the background, in batches; retry while its database fails."""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable
from typing import Final

from .database import StoreUnavailable
from .failures import one_line
from .periodic import Outage
from .waiting import Spawner, Task, ThreadSpawner

LOG = logging.getLogger(__name__)

#: Seconds between batches; a killed process loses what it queued since the last one.
_INTERVAL_S: Final = 1.0
#: The longest backoff while the store is unavailable, in intervals.
_MAX_BACKOFF: Final = 31
#: Seconds that `stop` waits for a write in progress.
_STOP_S: Final = 15.0


class BackgroundWriter(abc.ABC):
    """Calls `write` in a thread, every second; while `write` fails, with a backoff.

    The first failure is logged, and the first success after it.

    Parameters
    ----------
    what : str
        What is stored, in the plural.
    disconnect : callable
        Closes the connections to the store; they are opened again when needed.
    clock : callable
        Returns the current time, seconds since the epoch.

    Attributes
    ----------
    n_dropped : int
        The number of queued items that will not be stored.
    failed_since : float
        When the last outage of the store began, seconds since the epoch.
    """

    def __init__(
        self,
        what: str,
        disconnect: Callable[[], None],
        *,
        clock: Callable[[], float],
        spawner: Spawner | None = None,
    ) -> None:
        self._what = what
        self._disconnect = disconnect
        self._clock = clock
        self._spawner = spawner or ThreadSpawner()
        self._write_lock = self._spawner.lock()
        self._wake = self._spawner.event()
        self._has_ended = self._spawner.event()
        self._is_stopping = False
        self._task: Task | None = None
        self._outage = Outage(LOG)
        #: Intervals until the next attempt to write.
        self._n_skipped = 0
        self.n_dropped = 0
        self.failed_since = 0.0

    @property
    def failure(self) -> str:
        """Why the store cannot be used; "" while it works."""
        return self._outage.cause

    @abc.abstractmethod
    def write(self) -> None:
        """Write what is queued, and keep what cannot be written.

        Any exception is a failure of the store.
        """

    @abc.abstractmethod
    def each_interval(self) -> None:
        """Prepare to write; called in the thread every second, even during backoff."""

    def start(self) -> None:
        """Start the thread that writes."""
        name = f"moorage-store-of-{self._what}"
        self._task = self._spawner.spawn(self._run, name=name)

    def stop(self) -> None:
        """Write what is queued, if the store answers, and stop the thread."""
        self._is_stopping = True
        self._wake.set()
        if self._task is not None:
            self._task.join(_STOP_S)
            if not self._has_ended.is_set():
                LOG.warning("Writing %s does not stop in time", self._what)

    def retry_now(self) -> None:
        """Retry an unavailable store without waiting for the backoff."""
        self._n_skipped = 0
        self._wake.set()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(_INTERVAL_S)
            self._wake.clear()
            is_last = self._is_stopping
            if not is_last:
                self._prepare_interval()
            if self._n_skipped and not is_last:
                self._n_skipped -= 1
            else:
                self.flush()
        self._has_ended.set()

    def _prepare_interval(self) -> None:
        try:
            self.each_interval()
        except Exception:  # the thread must survive it
            LOG.exception(
                "Preparing to write %s failed; retrying in %g s",
                self._what, _INTERVAL_S,
            )  # fmt: skip

    def flush(self) -> None:
        """Write what is queued now; what cannot be written is retried later."""
        with self._write_lock:
            failure = self._failure_of_write()
        if failure:
            self.mark_failed(failure)
        else:
            self._n_skipped = 0
            self._outage.end(
                "The store of %s answers again; %d %s were not stored",
                self._what, self.n_dropped, self._what, level=logging.WARNING,
            )  # fmt: skip

    def _failure_of_write(self) -> str:
        # Not logged inside `except`: oslo.log would append the error once more.
        try:
            self.write()
        except StoreUnavailable as e:
            return str(e)
        except Exception as e:  # the thread must survive what a driver raises
            self._disconnect()
            return f"{one_line(repr(e))}."
        return ""

    def prepare(
        self, open_store: Callable[[], None], fatal: type[StoreUnavailable]
    ) -> None:
        """Open the store before `start`; if it does not answer, it is opened later.

        It leaves no connection open, so that the process may be forked afterwards.

        Raises
        ------
        StoreUnavailable
            An error of the type `fatal`, after which no retry can succeed.
        """
        failure = ""
        try:
            open_store()
        except fatal:
            raise
        except StoreUnavailable as e:
            failure = str(e)
        finally:
            self._disconnect()
        if failure:
            self.mark_failed(failure)

    def mark_failed(self, failure: str) -> None:
        """Record that the store cannot be used; the first time, log a warning."""
        if not self.failure:
            self.failed_since = self._clock()
        self._outage.fail(
            failure,
            "The store of %s cannot be used: %s Scheduling continues; the store is "
            "retried, and the newest %s are written once it answers.",
            self._what, failure, self._what,
        )  # fmt: skip
        # The interval that ends the backoff is not skipped.
        self._n_skipped = int(self._outage.backoff_s(2, _MAX_BACKOFF)) - 1
