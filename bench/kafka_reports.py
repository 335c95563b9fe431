# SPDX-License-Identifier: Apache-2.0
"""The source kafka on a real broker: its start, its speed, and its delay."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.table import Table

from moorage.agent import KafkaBus, Reporter
from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostRecord, HostTable, HostTopology
from moorage.scheduler.sources.kafka import KafkaSource
from moorage.testing.builders import host, numa_cell, numa_topology
from tests.fixtures.kafka import Kafka
from tests.fixtures.waiting import wait_until

from .tables import make_table
from .timing import Percentiles, Plan, elapsed_ms, format_percentiles, repeated

#: Reports whose way to the host table is timed.
_N_TIMED = 200


@dataclass(frozen=True, slots=True)
class KafkaTimes:
    """Times of the source kafka.

    Attributes
    ----------
    start_ms : Percentiles
        Of a start from the topics, without the scheduler's other parts.
    followed_per_s : Percentiles
        Changed whole reports a second that one process applies.
    visible_ms : Percentiles
        From an agent's call to the host table, one report at a time.
    """

    n_hosts: int
    start_ms: Percentiles
    followed_per_s: Percentiles
    visible_ms: Percentiles


class _KafkaCloud:
    """Hosts with two NUMA cells, which an agent reports to topics."""

    def __init__(self, kafka: Kafka, n_hosts: int) -> None:
        self.conf = load([], config_files=[])
        kafka.configure(self.conf)
        cells = HostTopology.read(numa_topology(numa_cell(0), numa_cell(1)))
        self._hosts = [
            host(host=f"host-{i}", numa_topology=cells) for i in range(n_hosts)
        ]
        self._reporter = Reporter(KafkaBus(self.conf).cast, sends_deltas=False)
        self._used = itertools.count(1)

    def report_all(self) -> None:
        """Report a new state of each host, and wait until the broker has them."""
        used = next(self._used)
        records = (dataclasses.replace(h, vcpus_used=used) for h in self._hosts)
        self._reporter.report_many((record, ()) for record in records)

    def report_one(self) -> HostRecord:
        """Report a new state of a host, and return it."""
        record = dataclasses.replace(self._hosts[0], vcpus_used=next(self._used))
        self._reporter.report(record)
        return record

    def started(self) -> tuple[KafkaSource, HostTable]:
        source, table = KafkaSource(self.conf), HostTable()
        source.start(table)
        return source, table

    def followed_per_s(self) -> float:
        """Return the speed at which reports that were sent meanwhile are applied."""
        source, table = self.started()
        n_before = source.report_counts()["whole"]
        self.report_all()
        began = time.perf_counter()
        source.start_polling(table)
        wanted = n_before + len(self._hosts)
        wait_until(lambda: source.report_counts()["whole"] >= wanted, interval_s=0.005)
        elapsed_s = time.perf_counter() - began
        source.stop()
        return len(self._hosts) / elapsed_s

    def visible_ms(self) -> list[float]:
        """Return the times from a report to the table that a decision reads."""
        source, table = self.started()
        source.start_polling(table)

        def report_and_see() -> None:
            record = self.report_one()
            wait_until(
                lambda: table.batch([record.uuid]).vcpus_used[0] == record.vcpus_used,
                interval_s=0.0005,
            )

        times = [elapsed_ms(report_and_see) for _ in range(_N_TIMED)]
        source.stop()
        return times[_N_TIMED // 10 :]  # without the connections of the first ones


@contextmanager
def _cloud(n_hosts: int) -> Iterator[_KafkaCloud]:
    with Kafka() as kafka:
        yield _KafkaCloud(kafka, n_hosts)


def kafka_times(plan: Plan, n_hosts: int) -> KafkaTimes:
    """Measure a start, following, and the way of single reports."""
    with _cloud(n_hosts) as cloud:
        cloud.report_all()
        start_ms = repeated(plan, lambda: elapsed_ms(cloud.started))
        followed_per_s = repeated(plan, cloud.followed_per_s)
        return KafkaTimes(
            n_hosts=n_hosts,
            start_ms=Percentiles.of(start_ms),
            followed_per_s=Percentiles.of(followed_per_s),
            visible_ms=Percentiles.of(cloud.visible_ms()),
        )


def kafka_table(found: KafkaTimes) -> Table:
    """Return the table of these times."""
    table = make_table(
        "The source kafka, one broker",
        "what",
        "median / p99|runs",
        f"{found.n_hosts:,} hosts with two NUMA cells each, in topics of three "
        "partitions; the broker runs on this machine. start: reads the newest report "
        "of each host, with a cold reader. followed: changed whole reports a second, "
        "from the broker to the host table. visible: from an agent's call, whose "
        "report is acknowledged, to the table that decisions read.",
    )
    rows = {
        "start, ms": found.start_ms,
        "reports followed a second": found.followed_per_s,
        "a report is visible, ms": found.visible_ms,
    }
    for what, times in rows.items():
        table.add_row(what, format_percentiles(times), str(times.n_samples))
    return table
