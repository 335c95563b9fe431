# SPDX-License-Identifier: Apache-2.0
"""The cost of the store of decisions: size, the decision's thread, the writer's CPU.

Placement is canned, and the store is a SQLite file. The CPU time of the writer is that
of encoding and inserting, in batches as the background thread does.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.decision_store.codec import encode
from moorage.scheduler.drivers.record import DecisionRecord

from .clouds import make_cloud
from .decisions import MeasuredScheduler, daemon_gc_thresholds
from .requests import plain
from .timing import NONE, Percentiles, Plan, format_number, format_percentiles

N_INSTANCES = (1, 2, 10, 100)
_N_ADDED = 200
_BATCH = 100


@dataclass(frozen=True, slots=True)
class StoreCost:
    """The costs for a number of instances; times are milliseconds of CPU."""

    n_instances: int
    n_bytes: int
    decision: Percentiles
    add_ms: float
    writer_cpu_ms: float


def store_costs(n_hosts: int, plan: Plan) -> Iterator[StoreCost]:
    """Yield the costs of decisions at a number of hosts."""
    cloud = make_cloud(n_hosts)
    scheduler = MeasuredScheduler(cloud)
    records: list[DecisionRecord] = []
    # Copies: the originals lose their requests.
    scheduler.subscribe(lambda record: records.append(copy.copy(record)))
    for n_instances in N_INSTANCES:
        with daemon_gc_thresholds():
            cpu_ms = scheduler.cpu_ms(plain(cloud, n_instances), plan)
        add_ms, writer_cpu_ms = _measured(records[-1])
        size = len(encode(records[-1]))
        yield StoreCost(n_instances, size, cpu_ms, add_ms, writer_cpu_ms)


def _measured(record: DecisionRecord) -> tuple[float, float]:
    """Return the milliseconds of one `add`, and the CPU time of writing one record."""
    with tempfile.TemporaryDirectory() as folder:
        store = DecisionStore(f"sqlite:///{folder}/decisions.sqlite")
        store.prepare()
        store.add(record)
        store.flush()
        add_s = writer_s = 0.0
        for _ in range(_N_ADDED // _BATCH):
            started = time.thread_time()
            for _ in range(_BATCH):
                store.add(record)
            added = time.thread_time()
            store.flush()
            add_s += added - started
            writer_s += time.thread_time() - added
        store.stop()
    return add_s / _N_ADDED * 1000, writer_s / _N_ADDED * 1000


def print_store_costs(console: Console, n_hosts: int, plan: Plan) -> None:
    """Print a table of the costs."""
    table = Table(title=f"The store of decisions, at {n_hosts:,} hosts")
    for name in (
        "instances",
        "bytes",
        "a further instance",
        "decision, CPU ms",
        "add, CPU ms",
        "of the decision",
        "writer, CPU ms",
        "of the decision",
    ):
        table.add_column(name, justify="right")
    first = 0
    for each in store_costs(n_hosts, plan):
        first = first or each.n_bytes
        further = (each.n_bytes - first) / max(1, each.n_instances - 1)
        table.add_row(
            str(each.n_instances),
            f"{each.n_bytes:,}",
            NONE if each.n_instances == 1 else format_number(further),
            format_percentiles(each.decision),
            format_number(each.add_ms),
            f"{each.add_ms / each.decision.median:.2%}",
            format_number(each.writer_cpu_ms),
            f"{each.writer_cpu_ms / each.decision.median:.1%}",
        )
    console.print(table)
