# SPDX-License-Identifier: Apache-2.0
"""Periodic threads, and outages: log a failure once, back off, log the recovery."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from .waiting import Spawner, Task, ThreadSpawner


class Periodic:
    """Calls a function in a separate thread, once an interval, until it is stopped.

    An exception is logged as "<what> failed; retrying", and does not end the thread.

    Parameters
    ----------
    run : callable
        The function.
    interval_s : float or callable
        Seconds between the end of a call and the next call; a callable is called each
        time.
    log : logging.Logger
        The logger of the caller.
    what : str
        What the function does, such as "Polling nova's databases".
    name : str
        The name of the thread.
    is_immediate : bool
        Whether the first call is made when the thread starts, not an interval later.

    Attributes
    ----------
    is_stopping : bool
        Whether `stop` or `end` was called; a long call should then return early.
    """

    def __init__(
        self,
        run: Callable[[], object],
        interval_s: float | Callable[[], float],
        *,
        log: logging.Logger,
        what: str,
        name: str,
        spawner: Spawner | None = None,
        is_immediate: bool = False,
    ) -> None:
        self._run_once = run
        self._interval_s = interval_s
        self._log = log
        self._what = what
        self._name = name
        self._spawner = spawner or ThreadSpawner()
        self._is_immediate = is_immediate
        self._wake = self._spawner.event()
        self._task: Task | None = None
        self.is_stopping = False

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._task is not None

    def start(self) -> None:
        """Start the thread, unless it was started before."""
        if self._task is None:
            self._task = self._spawner.spawn(self._run, name=self._name)

    def wake(self) -> None:
        """Make the next call now."""
        self._wake.set()

    def end(self) -> None:
        """Make no further call, without waiting; the function may call it."""
        self.is_stopping = True
        self._wake.set()

    def stop(self, timeout_s: float | None = None) -> None:
        """Make no further call; wait for one in progress, `timeout_s` at most."""
        self.end()
        if self._task is not None:
            self._task.join(timeout_s)

    def _run(self) -> None:
        if not self._is_immediate:
            self._pause()
        while not self.is_stopping:
            try:
                self._run_once()
            except Exception:  # the thread must survive it; the next call may succeed
                self._log.exception("%s failed; retrying", self._what)
            self._pause()

    def _pause(self) -> None:
        interval_s = self._interval_s
        self._wake.wait(interval_s() if callable(interval_s) else interval_s)
        self._wake.clear()


class Outage:
    """Logs when something begins to fail and when it works again, and counts failures.

    Parameters
    ----------
    log : logging.Logger
        The logger of the caller.
    logs_causes : bool
        Whether a failure is logged again when its cause changes.

    Attributes
    ----------
    cause : str
        Why it fails, not empty during an outage; "" while it works.
    n_failures : int
        The number of failures since the outage began.
    """

    def __init__(self, log: logging.Logger, *, logs_causes: bool = False) -> None:
        self._log = log
        self._logs_causes = logs_causes
        self._lock = threading.Lock()
        self.cause = ""
        self.n_failures = 0

    def fail(
        self, cause: object, text: str, *values: object, level: int = logging.WARNING
    ) -> None:
        """Count a failure, and log the first one; repetitions at debug level.

        Parameters
        ----------
        text, *values
            The message and its arguments, as for ``logging.Logger.log``.
        """
        with self._lock:
            previous_cause, self.cause = self.cause, str(cause)
            self.n_failures += 1
        is_new = not previous_cause or (
            self._logs_causes and previous_cause != self.cause
        )
        self._log.log(level if is_new else logging.DEBUG, text, *values)

    def end(self, text: str = "", *values: object, level: int = logging.INFO) -> None:
        """Record that it works; if it failed before, log `text` unless it is empty."""
        with self._lock:
            previous_cause, self.cause, self.n_failures = self.cause, "", 0
        if previous_cause and text:
            self._log.log(level, text, *values)

    def backoff_s(self, first_s: float, longest_s: float) -> float:
        """Return the seconds until the next attempt, doubled after each failure.

        Parameters
        ----------
        first_s, longest_s : float
            The seconds after the first failure, and the maximum.
        """
        return min(longest_s, first_s * 2.0 ** min(self.n_failures - 1, 60))
