# SPDX-License-Identifier: Apache-2.0
"""Requests for one and for many instances, without Placement, beside their targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rich.console import Console
from rich.table import Table

from .clouds import make_cloud
from .decisions import MeasuredScheduler
from .requests import DECISIONS
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


def print_instances(
    console: Console, sizes: Sequence[int], plan: Plan, say: Callable[[str], None]
) -> None:
    """Print the times of decisions by hosts, request and number of instances."""
    table = Table(title="Instances in one request, without Placement, ms")
    for heading in ("hosts", "request", "instances"):
        table.add_column(heading)
    for heading in ("target", "median", "p99", "worst"):
        table.add_column(heading, justify="right")
    for n_hosts in sizes:
        say(f"many instances in one request, {n_hosts:,} hosts")
        cloud = make_cloud(n_hosts)
        scheduler = MeasuredScheduler(cloud)
        for make_request in DECISIONS:
            for n_instances in _NUMBERS:
                request = make_request(cloud, n_instances)
                samples = scheduler.own_ms(request, plan)
                times = Percentiles.of(samples)
                target = _TARGETS.get((n_hosts, request.name, n_instances))
                table.add_row(
                    f"{n_hosts:,}",
                    request.name,
                    str(n_instances),
                    NONE if target is None else f"≤ {format_number(target)}",
                    *map(format_number, (times.median, times.p99, max(samples))),
                )
    console.print(table)
