# SPDX-License-Identifier: Apache-2.0
"""Services in processes of their own, each with a log file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import fixtures

START_S = 120.0
STOP_S = 30.0
_LOOK_EVERY_S = 0.1
_TOLD_LINES = 40


class Daemon(fixtures.Fixture):
    """A running service and what it forked; killed after, if it still runs.

    Its start is not waited for, so that several can start at a time.

    Parameters
    ----------
    name : str
        Of the log file.
    command : sequence of str
    folder : Path
        Where the log goes: standard output and error.
    environment : mapping, optional
        Variables beside those of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self._environment = {
            **os.environ,
            "OS_NOVA_DISABLE_EVENTLET_PATCHING": "1",
            **(environment or {}),
        }
        self._command = command
        self._path = folder / f"{name}.log"

    def _setUp(self) -> None:
        with self._path.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self.addCleanup(self._kill)

    @property
    def log(self) -> str:
        """Its output so far."""
        return self._path.read_text(errors="replace")

    def count(self, pattern: str) -> int:
        """Return the number of lines of the log that match a regular expression."""
        return sum(bool(re.search(pattern, line)) for line in self.log.splitlines())

    def matches(self, pattern: str) -> list[str]:
        """Return what the group of a regular expression matched in the log."""
        return re.findall(pattern, self.log)

    def wait_for(self, pattern: str, *, within_s: float = START_S) -> None:
        """Wait until a line of the log matches a regular expression."""
        deadline = time.monotonic() + within_s
        while not self.count(pattern):
            assert self._process.poll() is None, f"{self.name} ended:\n{self.tail()}"
            assert time.monotonic() < deadline, (
                f"{self.name} says no {pattern!r}:\n{self.tail()}"
            )
            time.sleep(_LOOK_EVERY_S)

    def tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.splitlines()[-_TOLD_LINES:])

    def stop(self) -> int:
        """Ask it to stop, and return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_S)

    def _kill(self) -> None:
        if self._process.poll() is None:
            # nova's own way of stopping waits for tasks for minutes.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S)
