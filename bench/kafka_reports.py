# SPDX-License-Identifier: Apache-2.0
"""The source kafka on a real broker: its start, its speed, and its delay.

The broker and the process that sends reports share the CPUs with the scheduler, which
they would not in a cloud. So decisions are timed three times: alone, beside the load of
broker and sender while no report is followed, and while reports are followed.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from confluent_kafka import Producer
from rich.table import Table

from moorage.agent import KafkaBus, Reporter
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.hosts import HostRecord, HostTable, HostTopology
from moorage.scheduler.kafka_client import TopicNames, client_settings
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.kafka import KafkaSource
from moorage.testing.builders import host, instance_uuid, numa_cell, numa_topology
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
#: Reports a second that are sent while decisions are timed, in so many parts.
_LOAD_PER_S = 5_000
_LOAD_PARTS_PER_S = 100
#: Until the first of them are applied: an unknown time on a busy machine.
_START_S = 300.0
#: Instances in each of these reports.
_N_INSTANCES = 8
_REVISION = b'"revision":1'
_INCARNATION = "6d1dbd0f-9f5c-4d3c-8a14-3c1c5d7a9d52"
#: Decisions of each kind, for each run of the plan: the p99 needs many.
_N_DECISIONS = 20
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
    beside_load : Percentiles
        While `sent_per_s` reports are sent to the broker, and none is followed: what
        this machine's other processes cost.
    following : Percentiles
        While the same process applies `followed_per_s` of these reports.
    """

    alone: Percentiles
    beside_load: Percentiles
    following: Percentiles
    sent_per_s: float
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

    def decision_times(self, plan: Plan) -> DecisionTimes:
        """Return the times of decisions alone, and under a load of reports."""
        cloud = Cloud(self._hosts, {}, [])
        request = plain(cloud)
        source = KafkaSource(self.conf)
        placement = CannedPlacement(cloud, request)
        scheduler = build(self.conf, placement=placement, source=source)
        scheduler.start()
        try:
            with daemon_gc_thresholds():
                alone = _decisions(scheduler, request, plan)
                with self._load(source, plan.budget_s) as n_sent:
                    sent_before, applied_before = n_sent.value, _n_applied(source)
                    began = time.perf_counter()
                    following = _decisions(scheduler, request, plan)
                    elapsed_s = time.perf_counter() - began
                    sent_per_s = (n_sent.value - sent_before) / elapsed_s
                    followed_per_s = (_n_applied(source) - applied_before) / elapsed_s
                    source.stop()
                    beside_load = _decisions(scheduler, request, plan)
        finally:
            scheduler.stop()
        return DecisionTimes(alone, beside_load, following, sent_per_s, followed_per_s)

    @contextmanager
    def _load(
        self, source: KafkaSource, catch_up_s: float
    ) -> Iterator[Synchronized[int]]:
        """Have another process report, from the second report of each host on.

        Yields the number of reports that the broker has.
        """
        n_before = _n_applied(source)
        spawned = multiprocessing.get_context("spawn")
        n_sent = spawned.Value("q", 0)
        arguments = (self._kafka_options, len(self._hosts), n_sent)
        agents = spawned.Process(target=report_steadily, args=arguments, daemon=True)
        agents.start()
        try:
            n_wanted = n_before + len(self._hosts)
            wait_until(lambda: _n_applied(source) > n_wanted, timeout_s=_START_S)
            # The first report of each host takes longer: let it catch up, if it can.
            ends_at = time.monotonic() + catch_up_s
            while n_sent.value > _n_applied(source) - n_before + _LOAD_PER_S // 10:
                if time.monotonic() > ends_at:
                    break
                time.sleep(0.01)
            yield n_sent
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


def _decisions(scheduler: Scheduler, request: BenchRequest, plan: Plan) -> Percentiles:
    n_decisions = _N_DECISIONS * plan.runs

    def run() -> DecisionRecord:
        time.sleep(_PAUSE_S)
        return decide(scheduler, request)

    return times(repeated(Plan(n_decisions, budget_s=60, warm_ups=20), run)).own


def report_steadily(
    kafka_options: Mapping[str, str], n_hosts: int, n_sent: Synchronized[int]
) -> None:
    """Send changed reports of hosts, `_LOAD_PER_S`, until the process is ended.

    They are serialized before, so that sending them takes little of a CPU that the
    scheduler would have to itself if the agents ran elsewhere.
    """
    conf = load([], config_files=[])
    for name, value in kafka_options.items():
        several = name == "bootstrap_servers"
        conf.set_override(name, [value] if several else value, group="kafka")
    settings = {"compression.type": "lz4", "partitioner": "murmur2_random"}
    producer = Producer({**client_settings(conf), **settings})
    reports = _reports(_hosts(n_hosts))
    due_at = time.monotonic()
    while True:
        part = list(itertools.islice(reports, _LOAD_PER_S // _LOAD_PARTS_PER_S))
        for node_uuid, report in part:
            producer.produce(TopicNames.of(conf).hosts, key=node_uuid, value=report)
        producer.flush()
        n_sent.value += len(part)
        due_at = max(due_at + 1 / _LOAD_PARTS_PER_S, time.monotonic() - 1)
        time.sleep(max(0.0, due_at - time.monotonic()))


def _reports(hosts: Sequence[HostRecord]) -> Iterator[tuple[str, bytes]]:
    """Yield endless reports, with their keys: each host's amounts change every time."""
    parts = [_serialized(hosts, n_used) for n_used in (1, 2)]
    for revision in itertools.count(1):
        for key, (before, after) in parts[revision % 2]:
            yield key, b'%b"revision":%d%b' % (before, revision, after)


def _serialized(
    hosts: Iterable[HostRecord], n_used: int
) -> list[tuple[str, list[bytes]]]:
    """Return reports of hosts, in two parts between which a revision belongs."""
    instances = [instance_uuid(f"{i}") for i in range(_N_INSTANCES)]
    states = (
        dataclasses.replace(
            each,
            vcpus_used=n_used,
            free_ram_mb=each.total_usable_ram_mb - n_used,
            free_disk_mb=each.total_usable_disk_gb * 1024 - n_used,
            disk_mb_used=n_used,
            num_io_ops=n_used,
        )
        for each in hosts
    )
    sent: list[dict[str, Any]] = []
    reporter = Reporter(sent.extend, sends_deltas=False, incarnation=_INCARNATION)
    reporter.report_many((each, instances) for each in states)
    texts = (json.dumps(each, separators=(",", ":")).encode() for each in sent)
    return [
        (each["moorage_object.data"]["uuid"], text.split(_REVISION))
        for each, text in zip(sent, texts, strict=True)
    ]


@contextmanager
def _cloud(n_hosts: int) -> Iterator[_KafkaCloud]:
    with Kafka() as kafka:
        yield _KafkaCloud(kafka, n_hosts)


def kafka_times(plan: Plan, n_hosts: int) -> KafkaTimes:
    """Measure a start, following, and the way of single reports."""
    with _cloud(n_hosts) as cloud:
        cloud.report_all()
        few_runs = dataclasses.replace(plan, runs=min(plan.runs, 5))
        start_ms = repeated(few_runs, lambda: elapsed_ms(cloud.started))
        followed_per_s = repeated(few_runs, cloud.followed_per_s)
        return KafkaTimes(
            n_hosts=n_hosts,
            start_ms=Percentiles.of(start_ms),
            followed_per_s=Percentiles.of(followed_per_s),
            visible_ms=Percentiles.of(cloud.visible_ms()),
            decisions=cloud.decision_times(plan),
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
        "the time of Placement, alone; while one other process sends reports to the "
        "broker and none is followed, which shows what sharing this machine costs; and "
        "while they are followed.",
    )
    decisions = found.decisions
    sent, followed = decisions.sent_per_s, decisions.followed_per_s
    rows = {
        "start, ms": found.start_ms,
        "reports followed a second": found.followed_per_s,
        "a report is visible, ms": found.visible_ms,
        "a decision alone, ms": decisions.alone,
        f"a decision, none of {sent:,.0f} reports/s followed, ms": (
            decisions.beside_load
        ),
        f"a decision, {followed:,.0f} of {sent:,.0f} reports/s followed, ms": (
            decisions.following
        ),
    }
    for what, cell in rows.items():
        table.add_row(what, format_percentiles(cell), str(cell.n_samples))
    return table
