# SPDX-License-Identifier: Apache-2.0
"""Wait for signals in the main thread, together with file descriptors."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Collection, Iterator

STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
RELOADING = signal.SIGHUP
REPORTING = signal.SIGUSR2

#: Maximum number of signals between two waits.
_MAX_READ = 512


class Signals:
    """Receives the signals of a process; created in its main thread, one at a time.

    A forked process creates its own, and closes the inherited one.

    Parameters
    ----------
    numbers : collection of signal.Signals
        The signals to receive.
    """

    def __init__(self, numbers: Collection[signal.Signals]) -> None:
        # A Python handler runs late while the main thread is busy, and an event cannot
        # be awaited together with a file: the wakeup fd writes to a pipe instead.
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _ignore)

    def wait(
        self, timeout_s: float | None = None, *, also: Collection[int] = ()
    ) -> tuple[set[int], set[int]]:
        """Wait for a signal, or until one of the file descriptors `also` is readable.

        Returns
        -------
        tuple of (set of int, set of int)
            The signals received, and the readable file descriptors; both are empty
            after the timeout.
        """
        readable, _, _ = select.select([self._read, *also], [], [], timeout_s)
        received = os.read(self._read, _MAX_READ) if self._read in readable else b""
        return set(received), {fd for fd in readable if fd != self._read}

    def close(self) -> None:
        """Close the pipe; called in a forked process that has inherited it."""
        os.close(self._read)
        os.close(self._write)


def _ignore(number: int, frame: object) -> None:
    """Do nothing: a signal is written to the pipe only if it has a Python handler."""


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block all signals; they are delivered afterwards."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
