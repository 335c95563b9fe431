# SPDX-License-Identifier: Apache-2.0
"""Workers are replaced, signalled and ended by the process that forked them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

WITHIN_S = 60.0

Start = Callable[..., "Process"]


class Process:
    """A supervisor with workers of some kind."""

    def __init__(self, kind: str, n_workers: int) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.scheduler.cmd.supervised",
                kind,
                str(n_workers),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self._lines: IO[str] = self._process.stdout
        self.seen: list[str] = []

    def read_until(self, text: str, *, times: int = 1) -> None:
        """Read lines until some of them have a text; all lines are in `seen`."""
        while sum(text in line for line in self.seen) < times:
            line = self._lines.readline()
            assert line, f"it ended without {times} times {text!r}: {self.seen}"
            self.seen.append(line)

    def pids(self) -> dict[int, int]:
        """The process of each worker."""
        reported = [line.split() for line in self.seen if " is process " in line]
        return {int(words[1]): int(words[4]) for words in reported}

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        self.seen += self._lines.readlines()
        return self._process.wait(WITHIN_S)

    def clean_up(self) -> None:
        self._process.kill()
        self._process.wait()
        self._lines.close()


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Process] = []

    def start(kind: str, n_workers: int = 2) -> Process:
        started.append(Process(kind, n_workers))
        return started[-1]

    yield start
    for process in started:
        process.clean_up()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_get_the_signal_to_end(start: Start, number: signal.Signals) -> None:
    process = start("well_behaved", 3)
    process.read_until("All 3 workers serve")
    process.send(number)
    assert process.wait() == 0
    assert sum("['SIGTERM']" in line for line in process.seen) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in process.pids().values())


def test_reload_reaches_this_process_and_all_workers(start: Start) -> None:
    process = start("well_behaved")
    process.read_until("All 2 workers serve")
    process.send(signal.SIGHUP)
    process.read_until("['SIGHUP']", times=2)
    assert any("options are read" in line for line in process.seen)
    process.send(signal.SIGTERM)
    assert process.wait() == 0


def test_worker_that_dies_at_once_is_replaced_ever_later(start: Start) -> None:
    process = start("dies_at_once", 1)
    process.read_until("was killed by SIGKILL: replacing it in 4 s")
    reported = [line.partition(", ")[2].partition(", ")[2] for line in process.seen]
    assert [line.strip() for line in reported if line] == [
        "ended with status 3: replacing it in 1 s",
        "was killed by SIGKILL: replacing it in 2 s",
        "was killed by SIGKILL: replacing it in 4 s",
    ]
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    texts = "".join(process.seen)
    assert " is process " not in texts.partition("Stopping;")[2], "none is begun for it"


def test_bug_in_a_worker_is_reported_with_its_traceback(start: Start) -> None:
    process = start("raises", 1)
    process.read_until("LookupError: a bug")
    process.read_until("ended with status 1")


def test_worker_that_does_not_end_is_killed(start: Start) -> None:
    process = start("does_not_end")
    process.read_until("All 2 workers serve")
    process.send(signal.SIGTERM)
    assert process.wait() == 1
    reported = "has not ended within graceful_shutdown_timeout, 1 s, and is killed"
    assert sum(reported in line for line in process.seen) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in process.pids().values())


def test_workers_learn_that_this_process_was_killed(start: Start) -> None:
    process = start("well_behaved")
    process.read_until("All 2 workers serve")
    process.send(signal.SIGKILL)
    process.read_until("gone", times=2)
    assert process.wait() == -signal.SIGKILL
