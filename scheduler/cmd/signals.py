# SPDX-License-Identifier: Apache-2.0
"""Signals as something that a process's main thread waits for, among other things."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Collection, Iterator

STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
RELOADING = signal.SIGHUP
REPORTING = signal.SIGUSR2

#: Signals that come between two waits, at most.
_MAX_READ = 512


class Signals:
    """Take the signals of a process; made in its main thread, one at a time.

    A forked process makes its own, and closes those that it inherited.

    Parameters
    ----------
    numbers : collection of signal.Signals
        Which ones.
    """

    def __init__(self, numbers: Collection[signal.Signals]) -> None:
        # A handler of Python's runs late where the main thread is busy, and an event
        # that it sets cannot be waited for beside a file: Python writes to a pipe.
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _noted)

    def wait(
        self, timeout_s: float | None = None, *, also: Collection[int] = ()
    ) -> tuple[set[int], set[int]]:
        """Wait for a signal, or until one of some files can be read.

        Returns
        -------
        tuple of (set of int, set of int)
            Signals that came, and files that can be read.
        """
        readable, _, _ = select.select([self._read, *also], [], [], timeout_s)
        came = os.read(self._read, _MAX_READ) if self._read in readable else b""
        return set(came), {fd for fd in readable if fd != self._read}

    def close(self) -> None:
        """Let go of the pipe that a process inherited; it has its own by then."""
        os.close(self._read)
        os.close(self._write)


def _noted(number: int, frame: object) -> None:
    """Do nothing: with a handler, the number is written to the pipe."""


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let no signal through meanwhile; they come after."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
