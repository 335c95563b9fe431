# SPDX-License-Identifier: Apache-2.0
"""Waits, elapsed time, threads and locks as injected dependencies.

Code that claims, releases and watches allocations uses these interfaces instead of
`time` and `threading`, so that a test can run several schedulers on virtual time and
choose which thread runs next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Waiter(Protocol):
    """A monotonic clock and waits."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary time, unaffected by clock changes."""

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""


class Rng(Protocol):
    """The part of ``random.Random`` and ``numpy.random.Generator`` that is used."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between `a` and `b`."""


class Event(Protocol):
    """A flag that threads can wait for, as ``threading.Event``."""

    def is_set(self) -> bool:
        """Return whether the flag is set."""

    def set(self) -> None:
        """Set the flag, and wake waiting threads."""

    def clear(self) -> None:
        """Clear the flag."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, `timeout` seconds at most; return `is_set`."""


class Task(Protocol):
    """A function that runs concurrently with the thread that spawned it."""

    def is_alive(self) -> bool:
        """Return whether the function has not ended."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until the function has ended, `timeout` seconds at most."""


class Spawner(Protocol):
    """Starts threads, and creates locks and events for them."""

    def spawn(self, run: Callable[[], object], *, name: str) -> Task:
        """Run a function in a separate thread, which ends with the process.

        Raises
        ------
        RuntimeError
            The system cannot start a thread.
        """

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock that one thread at a time holds, for ``with``."""

    def event(self) -> Event:
        """Return an event that is not set."""


class SystemWaiter:
    """The system's time."""

    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        time.sleep(seconds)


class ThreadSpawner:
    """The operating system's threads."""

    def spawn(self, run: Callable[[], object], *, name: str) -> Task:
        """Start a daemon thread."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def lock(self) -> AbstractContextManager[object]:
        """Return a ``threading.Lock``."""
        return threading.Lock()

    def event(self) -> Event:
        """Return a ``threading.Event``."""
        return threading.Event()
