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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from rich.console import Console

from .clouds import Cloud, make_cloud
from .decisions import MeasuredScheduler, filter_names, weigher_names
from .nova import Nova
from .requests import DECISIONS, plain
from .tables import make_table
from .timing import NONE, Percentiles, Plan, format_number, repeated

_NUMBERS: Final = (1, 10, 100)
#: nova is measured up to these sizes, where one request takes half a minute.
MAX_NOVA_HOSTS: Final = 10_000
_MAX_NOVA_INSTANCES: Final = 10

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


@dataclass(frozen=True, slots=True)
class InstancesRow:
    """The times of one kind of request, milliseconds.

    Attributes
    ----------
    own_ms : sequence of float
        Of each decision, without the steps of Placement.
    cpu : Percentiles
        CPU time of the deciding thread, with the canned Placement.
    floor, nova : Percentiles or None
        CPU time of `numpy_ms` and of nova; None: it was not measured.
    """

    n_hosts: int
    request: str
    n_instances: int
    own_ms: Sequence[float]
    cpu: Percentiles
    floor: Percentiles | None
    nova: Percentiles | None

    @property
    def medians(self) -> dict[str, float]:
        """The median CPU time of each way that was measured, by its name in a plot."""
        ways = {"NumPy alone": self.floor, "Moorage": self.cpu, "nova 34": self.nova}
        return {way: times.median for way, times in ways.items() if times}


def instances_rows(
    sizes: Sequence[int],
    plan: Plan,
    nova: Nova | None,
    nova_plan: Plan,
    say: Callable[[str], None],
) -> Iterator[InstancesRow]:
    """Measure by hosts, request and instances; nova up to 10, and plain requests."""
    for n_hosts in sizes:
        say(f"many instances in one request, {n_hosts:,} hosts")
        cloud = make_cloud(n_hosts)
        scheduler = MeasuredScheduler(cloud)
        measured_nova = nova if n_hosts <= MAX_NOVA_HOSTS else None
        if measured_nova:
            measured_nova.load(cloud, filter_names(), weigher_names())
        for make_request in DECISIONS:
            for n_instances in _NUMBERS:
                request = make_request(cloud, n_instances)
                floor = nova_cpu = None
                if make_request is plain:
                    floor = numpy_ms(cloud, n_instances, plan)
                    if measured_nova and n_instances <= _MAX_NOVA_INSTANCES:
                        nova_cpu = measured_nova.decisions(request, nova_plan).cpu
                yield InstancesRow(
                    n_hosts,
                    request.name,
                    n_instances,
                    scheduler.own_ms(request, plan),
                    scheduler.cpu_ms(request, plan),
                    floor,
                    nova_cpu,
                )


def numpy_ms(cloud: Cloud, n_instances: int, plan: Plan) -> Percentiles:
    """Return the CPU time of the arithmetic alone, the floor of any scheduler in NumPy.

    Three columns are compared with a flavor, normalized and summed once; each instance
    gets the best host, whose row is computed again.
    """
    need = np.array([[2_048.0], [20_480.0], [1.0]])
    free = np.array(
        [
            [float(record.free_ram_mb) for record in cloud.records],
            [float(record.free_disk_mb) for record in cloud.records],
            [float(record.vcpus_total - record.vcpus_used) for record in cloud.records],
        ]
    )

    def place() -> float:
        left = free.copy()
        started = time.thread_time()
        highest = left.max(axis=1, keepdims=True)
        total = (left / highest).sum(axis=0)
        total[(left < need).any(axis=0)] = -np.inf
        for _ in range(n_instances):
            best = int(total.argmax())
            left[:, best] -= need[:, 0]
            has_room = (left[:, best] >= need[:, 0]).all()
            weight = (left[:, best] / highest[:, 0]).sum()
            total[best] = weight if has_room else -np.inf
        return (time.thread_time() - started) * 1000

    return Percentiles.of(repeated(plan, place))


def print_instances(console: Console, rows: Sequence[InstancesRow]) -> None:
    """Print the times of decisions by hosts, request and number of instances."""
    table = make_table(
        "Instances in one request, without Placement, ms",
        "hosts|request|instances",
        "target|median|p99|worst, target|worst|CPU|NumPy alone|nova 34",
        "Targets hold on two idle cores. CPU: of the deciding thread, the median, with "
        "the canned Placement and the decoding of the request. NumPy alone: comparing, "
        "normalizing and adding three columns once, and the best host for each "
        "instance. Both it and nova 34: the median CPU time.",
    )
    for row in rows:
        key = row.n_hosts, row.request, row.n_instances
        times, medians = Percentiles.of(row.own_ms), row.medians
        table.add_row(
            f"{row.n_hosts:,}",
            row.request,
            str(row.n_instances),
            _limit(_TARGETS.get(key)),
            *map(format_number, (times.median, times.p99)),
            _limit(_WORST.get(key)),
            *map(format_number, (max(row.own_ms), row.cpu.median)),
            *(
                format_number(medians[way]) if way in medians else NONE
                for way in ("NumPy alone", "nova 34")
            ),
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
