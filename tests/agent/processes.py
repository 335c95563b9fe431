# SPDX-License-Identifier: Apache-2.0
"""moorage-agent in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import fixtures

START_S = 60.0
STOP_S = 30.0


class AgentProcess(fixtures.Fixture):
    """A running moorage-agent, which is asked to stop after.

    Parameters
    ----------
    config_file : Path
        What it is started with.

    Attributes
    ----------
    log : list of str
        Lines that it printed so far.
    """

    def __init__(self, config_file: Path) -> None:
        super().__init__()
        self._config_file = config_file

    def _setUp(self) -> None:
        self.log: list[str] = []
        self._is_reporting = threading.Event()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", "moorage.agent.cmd"),
                *("--config-file", str(self._config_file)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        self.addCleanup(self._process.stdout.close)
        self.addCleanup(reader.join, STOP_S)
        self.addCleanup(self.stop)
        reports = self._is_reporting.wait(START_S) and self._process.poll() is None
        assert reports, "it does not report:\n" + "".join(self.log[-20:])

    def _read(self) -> None:
        for line in self._process.stdout:
            self.log.append(line)
            if "Reporting" in line:
                self._is_reporting.set()
        self._is_reporting.set()  # it ended: nothing more to wait for

    def reload(self) -> None:
        """Have it read its files again."""
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        """Ask it to stop, and return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_S)
