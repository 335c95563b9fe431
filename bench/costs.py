# SPDX-License-Identifier: Apache-2.0
"""What a call costs: wall time, and CPU of this process and of servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


class Costs:
    """Measure a call's wall time, and CPU of this process and of servers'."""

    def __init__(self, *server_pids: int) -> None:
        self._servers = [Path(f"/proc/{pid}/task") for pid in server_pids]

    def of(self, call: Callable[[], object]) -> tuple[float, ...]:
        """Return milliseconds: wall, CPU of this process, and of each server."""
        before = [_server_ms(tasks) for tasks in self._servers]
        wall, ours = time.perf_counter(), time.process_time()
        call()
        ours, wall = time.process_time() - ours, time.perf_counter() - wall
        after = [_server_ms(tasks) for tasks in self._servers]
        theirs = (b - a for a, b in zip(before, after, strict=True))
        return wall * 1000, ours * 1000, *theirs


def _server_ms(tasks: Path) -> float:
    total_ns = 0
    for task in tasks.iterdir():
        try:
            total_ns += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return total_ns / 1e6
