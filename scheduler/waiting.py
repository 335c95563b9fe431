# SPDX-License-Identifier: Apache-2.0
"""Waits, elapsed time, threads and locks as dependencies that are handed in.

What claims, releases and watches allocations uses these and nothing of `time` or
`threading` itself, so that a test can run several schedulers on a time of its own and
choose which thread goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Waiter(Protocol):
    """Measure time that passes, and wait for it."""

    def monotonic(self) -> float:
        """Return seconds since some moment; setting the system's clock changes none."""

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""


class Rng(Protocol):
    """What is asked of ``random.Random`` or ``numpy.random.Generator``."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between `a` and `b`."""


class Event(Protocol):
    """A flag that threads can wait for, as ``threading.Event``."""

    def is_set(self) -> bool:
        """Return whether it is set."""

    def set(self) -> None:
        """Set it; threads that wait go on."""

    def clear(self) -> None:
        """Set it no more."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, `timeout` seconds at most; return whether it is."""


class Task(Protocol):
    """Something that runs beside the thread which spawned it."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, `timeout` seconds at most."""


class Spawner(Protocol):
    """Start threads, and make what they wait for each other with."""

    def spawn(self, run: Callable[[], object], *, name: str) -> Task:
        """Run a function in a thread of its own, which does not outlive the process."""

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock that one thread at a time holds, for ``with``."""

    def event(self) -> Event:
        """Return an event that is not set."""


class SystemWaiter:
    """The time of this machine."""

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        time.sleep(seconds)


class ThreadSpawner:
    """Threads of the operating system."""

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
