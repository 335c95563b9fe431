# SPDX-License-Identifier: Apache-2.0
"""Requests for one and for many instances, without Placement, beside their targets.

The CPU time of the deciding thread is measured, too, and includes the canned Placement:
it shows the same on a machine that others use.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rich.console import Console

from .clouds import make_cloud
from .decisions import MeasuredScheduler
from .requests import DECISIONS, plain
from .tables import make_table
from .timing import NONE, Percentiles, Plan, format_number

_NUMBERS: Final = (1, 10, 100)

#: Milliseconds in which the median is to be, by hosts, request and instances, on two
#: idle cores.
_TARGETS: Final[Mapping[tuple[int, str, int], float]] = MappingProxyType(
    {
        (1_000, "plain", 1): 0.6,
        (10_000, "plain", 1): 1.0,
        (10_000, "plain", 10): 4.0,
        (10_000, "anti-affinity", 10): 6.0,
        (10_000, "plain", 100): 25.0,
        (100_000, "plain", 1): 4.0,
        (100_000, "plain", 10): 20.0,
        (100_000, "anti-affinity", 10): 25.0,
        (100_000, "plain", 100): 120.0,
    }
)

#: The worst times in milliseconds, on two idle cores, and with both cores busy; and the
#: decisions a second of one process.
_WORST: Final[Mapping[tuple[int, str, int], float]] = MappingProxyType(
    {
        (10_000, "plain", 1): 5.0,
        (100_000, "plain", 1): 20.0,
        (100_000, "plain", 10): 60.0,
        (100_000, "anti-affinity", 10): 60.0,
    }
)
_WORST_BUSY: Final = MappingProxyType({10_000: 30.0, 100_000: 100.0})
_PER_S: Final = MappingProxyType({10_000: 800.0, 100_000: 200.0})


def print_instances(
    console: Console, sizes: Sequence[int], plan: Plan, say: Callable[[str], None]
) -> None:
    """Print the times of decisions by hosts, request and number of instances."""
    table = make_table(
        "Instances in one request, without Placement, ms",
        "hosts|request|instances",
        "target|median|p99|worst, target|worst|CPU",
        "Targets hold on two idle cores. CPU: of the deciding thread, the median, with "
        "the canned Placement and the decoding of the request.",
    )
    for n_hosts in sizes:
        say(f"many instances in one request, {n_hosts:,} hosts")
        cloud = make_cloud(n_hosts)
        scheduler = MeasuredScheduler(cloud)
        for make_request in DECISIONS:
            for n_instances in _NUMBERS:
                request = make_request(cloud, n_instances)
                samples = scheduler.own_ms(request, plan)
                times = Percentiles.of(samples)
                cpu = scheduler.cpu_ms(request, plan)
                key = n_hosts, request.name, n_instances
                table.add_row(
                    f"{n_hosts:,}",
                    request.name,
                    str(n_instances),
                    _limit(_TARGETS.get(key)),
                    *map(format_number, (times.median, times.p99)),
                    _limit(_WORST.get(key)),
                    *map(format_number, (max(samples), cpu.median)),
                )
    console.print(table)


def _limit(target: float | None, sign: str = "≤") -> str:
    return NONE if target is None else f"{sign} {format_number(target)}"


def print_sustained(
    console: Console, sizes: Sequence[int], seconds: float, say: Callable[[str], None]
) -> None:
    """Print how many decisions a second one process makes, idle and beside others."""
    table = make_table(
        "Decisions one after the other, claims released at once",
        "hosts|cores",
        "a second, target|a second|median, ms|p99, ms|worst, target|worst, ms",
        "Whole calls for one instance, with the canned Placement. busy: one process "
        "for each core computes without a pause.",
    )
    for n_hosts in sizes:
        say(f"decisions one after the other, {n_hosts:,} hosts")
        cloud = make_cloud(n_hosts)
        scheduler, request = MeasuredScheduler(cloud), plain(cloud)
        for is_busy in (False, True):
            with busy_cores() if is_busy else contextlib.nullcontext():
                ms = scheduler.call_ms(request, seconds)
            times, worst = Percentiles.of(ms), _WORST_BUSY if is_busy else {}
            table.add_row(
                f"{n_hosts:,}",
                "busy" if is_busy else "idle",
                _limit(None if is_busy else _PER_S.get(n_hosts), "≥"),
                *map(
                    format_number, (1000 * len(ms) / sum(ms), times.median, times.p99)
                ),
                _limit(worst.get(n_hosts)),
                format_number(max(ms)),
            )
    console.print(table)


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep all cores busy with other processes."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
