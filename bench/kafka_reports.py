# SPDX-License-Identifier: Apache-2.0
"""The source kafka on a real broker: its start, its speed, and its delay."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.table import Table

from moorage.agent import KafkaBus, Reporter
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.hosts import HostRecord, HostTable, HostTopology
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.kafka import KafkaSource
from moorage.testing.builders import host, numa_cell, numa_topology
from tests.fixtures.kafka import Kafka
from tests.fixtures.waiting import wait_until

from .canned import CannedPlacement
from .clouds import Cloud, options
from .decisions import daemon_gc_thresholds, decide, times
from .requests import BenchRequest, plain
from .tables import make_table
from .timing import Percentiles, Plan, elapsed_ms, format_percentiles, repeated

#: Reports whose way to the host table is timed.
_N_TIMED = 200
#: Reports a second that are followed while decisions are timed, in so many parts.
_LOAD_PER_S = 5_000
_LOAD_PARTS_PER_S = 10
_N_DECISIONS = 300
#: Between two decisions: a scheduler that has no pause follows nothing.
_PAUSE_S = 0.01


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
    decisions: DecisionTimes


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """Times of decisions, without those of Placement, milliseconds.

    Attributes
    ----------
    loaded : Percentiles
        While `followed_per_s` reports are applied by the same process.
    """

    alone: Percentiles
    loaded: Percentiles
    followed_per_s: float


class _KafkaCloud:
    """Hosts with two NUMA cells, which an agent reports to topics."""

    def __init__(self, kafka: Kafka, n_hosts: int) -> None:
        self.conf = options(n_hosts)
        kafka.configure(self.conf)
        self._kafka_options = kafka.options()
        self._hosts = _hosts(n_hosts)
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

    def decision_times(self) -> DecisionTimes:
        """Return the times of decisions alone, and under a load of reports."""
        cloud = Cloud(self._hosts, {}, [])
        request = plain(cloud)
        source = KafkaSource(self.conf)
        placement = CannedPlacement(cloud, request)
        scheduler = build(self.conf, placement=placement, source=source)
        scheduler.start()
        try:
            with daemon_gc_thresholds():
                alone = _decisions(scheduler, request)
                with self._load(source):
                    n_before, began = _n_applied(source), time.perf_counter()
                    loaded = _decisions(scheduler, request)
                    elapsed_s = time.perf_counter() - began
                    followed_per_s = (_n_applied(source) - n_before) / elapsed_s
        finally:
            scheduler.stop()
        return DecisionTimes(alone, loaded, followed_per_s)

    @contextmanager
    def _load(self, source: KafkaSource) -> Iterator[None]:
        """Have another process report, from the first report that is applied on."""
        n_before = _n_applied(source)
        arguments = (self._kafka_options, len(self._hosts))
        spawned = multiprocessing.get_context("spawn")
        agents = spawned.Process(target=report_steadily, args=arguments, daemon=True)
        agents.start()
        try:
            wait_until(lambda: _n_applied(source) > n_before + _LOAD_PER_S)
            yield
        finally:
            agents.terminate()
            agents.join()


def _hosts(n_hosts: int) -> list[HostRecord]:
    cells = HostTopology.read(numa_topology(numa_cell(0), numa_cell(1)))
    return [
        host(
            host=f"host-{i}",
            numa_topology=cells,
            supported_instances=(("x86_64", "kvm", "hvm"),),
        )
        for i in range(n_hosts)
    ]


def _n_applied(source: KafkaSource) -> int:
    return source.report_counts()["whole"]


def _decisions(scheduler: Scheduler, request: BenchRequest) -> Percentiles:
    def run() -> DecisionRecord:
        time.sleep(_PAUSE_S)
        return decide(scheduler, request)

    return times(repeated(Plan(_N_DECISIONS, budget_s=60, warm_ups=20), run)).own


def report_steadily(kafka_options: Mapping[str, str], n_hosts: int) -> None:
    """Report new states of hosts, `_LOAD_PER_S`, until the process is ended."""
    conf = load([], config_files=[])
    for name, value in kafka_options.items():
        several = name == "bootstrap_servers"
        conf.set_override(name, [value] if several else value, group="kafka")
    reporter = Reporter(KafkaBus(conf).cast, sends_deltas=False)
    hosts = itertools.cycle(_hosts(n_hosts))
    due_at = time.monotonic()
    for number in itertools.count(1):
        part = itertools.islice(hosts, _LOAD_PER_S // _LOAD_PARTS_PER_S)
        reporter.report_many(
            (dataclasses.replace(each, vcpus_used=number), ()) for each in part
        )
        due_at = max(due_at + 1 / _LOAD_PARTS_PER_S, time.monotonic() - 1)
        time.sleep(max(0.0, due_at - time.monotonic()))


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
            decisions=cloud.decision_times(),
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
        "report is acknowledged, to the table that decisions read. decision: without "
        "the time of Placement, alone and while another process sends "
        f"{_LOAD_PER_S:,} reports a second, as many as are followed then.",
    )
    rows = {
        "start, ms": found.start_ms,
        "reports followed a second": found.followed_per_s,
        "a report is visible, ms": found.visible_ms,
        "a decision alone, ms": found.decisions.alone,
        f"a decision, {found.decisions.followed_per_s:,.0f} reports/s followed, ms": (
            found.decisions.loaded
        ),
    }
    for what, cell in rows.items():
        table.add_row(what, format_percentiles(cell), str(cell.n_samples))
    return table
