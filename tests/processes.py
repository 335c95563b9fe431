# SPDX-License-Identifier: Apache-2.0
"""moorage-scheduler in processes of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import fixtures

START_S = 60.0
STOP_S = 30.0


class SchedulerProcess(fixtures.Fixture):
    """A running moorage-scheduler, which is asked to stop after.

    Parameters
    ----------
    config_file : Path
        What it is started with.
    n_workers : int
        How many workers it is told to have, whose start is waited for.
    environment : mapping, optional
        Variables beside those of this process.
    until : str, optional
        What its log has to say before it counts as started, instead of that it serves.

    Attributes
    ----------
    log : list of str
        Lines that it printed so far.
    """

    def __init__(
        self,
        config_file: Path,
        *,
        n_workers: int = 1,
        environment: Mapping[str, str] | None = None,
        until: str = "",
    ) -> None:
        super().__init__()
        self._config_file = config_file
        self._n_workers = n_workers
        several = f"All {n_workers} workers serve"
        self._until = until or (several if n_workers > 1 else "Serving")
        self._environment = {**os.environ, **(environment or {})}

    def _setUp(self) -> None:
        self.log: list[str] = []
        self._changed = threading.Condition()
        self._has_ended = False
        workers_file = self._config_file.with_suffix(".workers")
        workers_file.write_text(f"[scheduler]\nworkers = {self._n_workers}\n")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore"),
                *("-m", "moorage.scheduler.cmd.scheduler"),
                *("--config-file", str(workers_file)),
                *("--config-file", str(self._config_file)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        self.addCleanup(self._process.stdout.close)
        self.addCleanup(reader.join, STOP_S)
        self.addCleanup(self.stop)
        self.wait_for(self._until, within_s=START_S)

    def _read(self) -> None:
        for line in self._process.stdout:
            with self._changed:
                self.log.append(line)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        """The process that was started: the supervisor, where there are several."""
        return self._process.pid

    @property
    def workers(self) -> list[int]:
        """The process of each worker, by its number."""
        told = [
            re.search(r"Worker (\d+) is process (\d+)", line) for line in list(self.log)
        ]
        found = {int(each[1]): int(each[2]) for each in told if each}
        return [found[number] for number in sorted(found)]

    def count(self, pattern: str) -> int:
        """How many lines of the log match a regular expression."""
        return sum(bool(re.search(pattern, line)) for line in list(self.log))

    def wait_for(self, pattern: str, *, times: int = 1, within_s: float = 30) -> None:
        """Wait until that many lines of the log match a regular expression."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.count(pattern) >= times or self._has_ended, within_s
            )
        assert self.count(pattern) >= times, f"no {times} times {pattern!r}:\n" + (
            "".join(self.log[-30:])
        )

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def is_running(self) -> bool:
        """Tell whether it has not ended."""
        return self._process.poll() is None

    def wait(self, within_s: float = STOP_S) -> int:
        """Wait for its end, and return its exit status."""
        return self._process.wait(within_s)

    def stop(self) -> int:
        """Ask it to stop, and return its exit status."""
        self.send(signal.SIGTERM)
        return self.wait()
