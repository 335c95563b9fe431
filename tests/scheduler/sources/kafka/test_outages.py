# SPDX-License-Identifier: Apache-2.0
"""Brokers that are killed or frozen under load, and a reader that is behind."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from moorage.agent import BusUnavailable, KafkaBus, Reporter
from moorage.scheduler.kafka_client import TopicNames
from moorage.scheduler.sources.kafka import reader, source
from moorage.scheduler.sources.kafka.messages import MessageApplier
from moorage.testing.builders import host, node_uuid

from ....fixtures.kafka import DedicatedKafka, Kafka, KafkaCluster
from ....fixtures.waiting import wait_until
from .test_source import Cloud, Scheduler

pytestmark = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]

NAMES = [f"h{i}" for i in range(30)]
NODES = [node_uuid(name) for name in NAMES]
#: Seconds of silence after which the hosts of these tests would be down.
DOWN_S = 20.0
#: The same where a broker is frozen for longer than that.
FROZEN_DOWN_S = 12.0


class Load:
    """Agents that report new states of all hosts without a pause.

    Attributes
    ----------
    n_stored : int
        The newest state that the brokers have acknowledged.
    """

    def __init__(self, cloud: Cloud) -> None:
        cloud.conf.set_override("timeout", 2.0, group="kafka")
        self._reporter = Reporter(KafkaBus(cloud.conf).cast, sends_deltas=False)
        self._n_sent = self.n_stored = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def report(self) -> bool:
        """Report the next state; return whether the brokers have stored it."""
        self._n_sent += 1
        used = self._n_sent
        try:
            self._reporter.report_many(
                (host(host=name, vcpus_used=used), []) for name in NAMES
            )
        except BusUnavailable:
            return False
        self.n_stored = used
        return True

    def _run(self) -> None:
        while not self._ending.is_set():
            self.report()

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        self._thread.start()
        try:
            yield self
        finally:
            self._ending.set()
            self._thread.join()

    def is_read_by(self, scheduler: Scheduler, at_least: int) -> bool:
        return min(scheduler.value("vcpus_used", each) for each in NODES) >= at_least


class Watch:
    """Notes hosts that are missing, or down though only Kafka was away."""

    def __init__(self, scheduler: Scheduler, down_s: float = DOWN_S) -> None:
        self._table = scheduler.table
        self._down_s = down_s
        self.findings: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ending.wait(0.1):
            batch = self._table.batch()
            if len(batch) != len(NAMES):
                self.findings.append(f"{len(batch)} hosts are left")
            silent_s = time.time() - float(batch.last_seen_up.min())
            if silent_s > self._down_s:
                self.findings.append(f"a host is silent for {silent_s:.1f} s")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join()


@contextlib.contextmanager
def _scheduler(cloud: Cloud, forget_hosts_after: float = DOWN_S) -> Iterator[Scheduler]:
    """A scheduler that notes an outage soon, but may take its time for the start."""
    with cloud.scheduler(forget_hosts_after=forget_hosts_after) as scheduler:
        scheduler.source.conf.set_override("timeout", 2.0, group="kafka")
        yield scheduler


def test_frozen_broker_is_noticed_and_no_host_counts_as_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with DedicatedKafka() as kafka:
        cloud = Cloud(kafka)
        load = Load(cloud)
        wait_until(load.report)
        with _scheduler(cloud, FROZEN_DOWN_S) as scheduler, load.running():
            wait_until(lambda: load.is_read_by(scheduler, 2))
            watch = Watch(scheduler, FROZEN_DOWN_S)
            with watch.running():
                kafka.freeze()
                frozen_at = time.monotonic()
                wait_until(lambda: "no broker of Kafka answers" in _notes(scheduler))
                seen_at = scheduler.source.seen_at()
                wait_until(lambda: time.monotonic() - frozen_at > 1.5 * FROZEN_DOWN_S)
                assert scheduler.source.seen_at() == seen_at, "the view ages"
                assert caplog.text.count("No broker of Kafka answers") == 1
                kafka.thaw()
                before = load.n_stored
                wait_until(lambda: load.is_read_by(scheduler, before + 2))
                wait_until(lambda: _notes(scheduler) == "")
            assert watch.findings == []
    assert "Kafka is read to its end again" in caplog.text


def test_killed_broker_of_three_loses_no_report() -> None:
    with KafkaCluster() as kafka:
        cloud = Cloud(kafka)
        load = Load(cloud)
        wait_until(load.report)
        with _scheduler(cloud) as scheduler:
            watch = Watch(scheduler)
            with watch.running(), load.running():
                wait_until(lambda: load.is_read_by(scheduler, 2))
                leader = kafka.leaders(cloud.topic)[0]
                kafka.brokers[leader].end(signal.SIGKILL)
                before = load.n_stored
                wait_until(lambda: load.is_read_by(scheduler, before + 5))
                wait_until(lambda: leader not in kafka.leaders(cloud.topic).values())
                before = load.n_stored
                wait_until(lambda: load.is_read_by(scheduler, before + 5))
            wait_until(lambda: load.is_read_by(scheduler, load.n_stored))
            assert watch.findings == []
            wait_until(lambda: _notes(scheduler) == "")
        with _scheduler(cloud) as second:
            assert load.is_read_by(second, load.n_stored)


def test_partitions_without_a_leader_are_named() -> None:
    with KafkaCluster() as kafka:
        kafka.n_replicas = 1
        cloud = Cloud(kafka)
        cloud.reporter.report_many((host(host=name), []) for name in NAMES)
        with _scheduler(cloud) as scheduler:
            leaders = kafka.leaders(cloud.topic)
            gone = leaders[0]
            others = {n for n, at in leaders.items() if at != gone}
            assert others
            kafka.brokers[gone].end(signal.SIGKILL)
            wait_until(lambda: f"{cloud.topic} 0" in _troubles(scheduler))
            wait_until(
                lambda: (
                    not any(
                        f"{cloud.topic} {n}" in _troubles(scheduler) for n in others
                    )
                )
            )
            kafka.brokers[gone].launch()
            wait_until(lambda: _troubles(scheduler) == "")
            cloud.reporter.report_many((host(host=n, vcpus_used=7), []) for n in NAMES)
            wait_until(
                lambda: {scheduler.value("vcpus_used", each) for each in NODES} == {7}
            )


def test_only_hosts_of_partitions_without_a_leader_are_not_silent() -> None:
    relayed = [f"relayed{i}" for i in range(30)]
    relayed_at: list[float] = []
    with KafkaCluster() as kafka:
        kafka.n_replicas = 1
        cloud = Cloud(kafka)

        def cast_as_relay(reports: list[dict[str, Any]]) -> None:
            relayed_at.append(time.time())
            for report in reports:
                report["moorage_object.data"]["seen_at"] = relayed_at[-1]
            cloud.bus.cast(reports)

        relay = Reporter(cast_as_relay, sends_deltas=False)

        def report() -> None:
            cloud.reporter.report_many((host(host=name), []) for name in NAMES)
            relay.report_many((host(host=name), []) for name in relayed)

        report()
        options = cloud.options()
        options.set_override("service_down_time", 4)
        scheduler = Scheduler(options, relay_grace=3.0)

        def seen_at(names: Iterable[str]) -> list[float]:
            nodes = [node_uuid(name) for name in names]
            return [float(scheduler.value("last_seen_up", node)) for node in nodes]

        scheduler.source.start_polling(scheduler.table)
        try:
            before = max(seen_at([*NAMES, *relayed]))
            report()  # heartbeats
            wait_until(lambda: min(seen_at([*NAMES, *relayed])) > before)
            gone = kafka.leaders(cloud.topic)[0]
            away = _nodes_at(kafka, gone, TopicNames.of(options)[:2])
            unread, read = (
                [n for n in (*NAMES, *relayed) if (node_uuid(n) in away) is is_away]
                for is_away in (True, False)
            )
            own = [name for name in read if name in NAMES]
            behind_relay = [name for name in read if name in relayed]
            assert own
            assert behind_relay
            own_seen_at = seen_at(own)
            kafka.brokers[gone].end(signal.SIGKILL)
            wait_until(lambda: min(seen_at(unread)) > relayed_at[-1] + 10)
            assert max(seen_at(unread)) <= time.time()
            assert seen_at(own) == own_seen_at, "their silence counts"
            uncounted_s = [at - relayed_at[-1] for at in seen_at(behind_relay)]
            assert min(uncounted_s) > 2.5, "there is no relay either"
            assert max(uncounted_s) < 3.5, "for longer than the grace"
            kafka.brokers[gone].launch()
            wait_until(lambda: _troubles(scheduler) == "")
            back_at = time.time()
            report()
            wait_until(lambda: min(seen_at([*NAMES, *relayed])) > back_at)
        finally:
            scheduler.source.stop()


def _nodes_at(kafka: KafkaCluster, broker: int, topics: Iterable[str]) -> set[str]:
    """Return the nodes that have messages in a partition that a broker leads."""
    found = set()
    for topic in topics:
        leaders = kafka.leaders(topic)
        for node, number in kafka.partitions(topic).items():
            if node is not None and leaders[number or 0] == broker:
                found.add(node)
    return found


def test_host_is_not_silent_while_its_heartbeats_are_unread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_slow = threading.Event()

    def apply_slowly(applier: MessageApplier, messages: Any) -> None:
        if is_slow.is_set() and messages:
            time.sleep(0.2)
        applier.apply(messages)

    monkeypatch.setattr(reader, "_MAX_AT_A_TIME", 1)
    monkeypatch.setattr(source, "FORGET_EVERY_S", 0.1)
    with Kafka() as kafka:
        cloud = Cloud(kafka)
        cloud.reporter.report_many((host(host=name), []) for name in NAMES)
        monkeypatch.setattr(source, "_apply", apply_slowly)
        with _scheduler(cloud, forget_hosts_after=6.0) as scheduler:
            wait_until(lambda: scheduler.source.n_unread() == 0)
            partitions = cloud.kafka.partitions(cloud.topic)
            busy_one = partitions[NODES[0]]
            node = next(n for n in NODES[1:] if partitions[n] == busy_one)
            is_slow.set()
            busy = [(NODES[0], b"{")] * 2_000
            cloud.kafka.produce(cloud.topic, *busy, partition=busy_one)
            seen_at = scheduler.value("last_seen_up", node)
            wait_until(lambda: "is not read to its end" in _notes(scheduler))
            wait_until(lambda: scheduler.value("last_seen_up", node) > seen_at + 10)
            assert len(scheduler.table) == len(NAMES), "none is forgotten"
            is_slow.clear()
            wait_until(lambda: _notes(scheduler) == "")

            def are_silent_ones_forgotten() -> bool:
                cloud.reporter.report(host(host=NAMES[0]))
                return len(scheduler.table) == 1

            wait_until(are_silent_ones_forgotten, interval_s=0.5)
    assert "Reading Kafka is behind" in caplog.text


def test_unexpected_error_is_named_and_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken = threading.Event()
    read = reader.TopicReader.read

    def read_or_fail(self: reader.TopicReader, timeout_s: float) -> Any:
        if is_broken.is_set():
            raise KeyError("fetchq_cnt")
        return read(self, timeout_s)

    monkeypatch.setattr(reader.TopicReader, "read", read_or_fail)
    with Kafka() as kafka:
        cloud = Cloud(kafka)
        with cloud.scheduler() as scheduler:
            is_broken.set()
            wait_until(lambda: "KeyError('fetchq_cnt')" in _troubles(scheduler))
            cloud.reporter.report(host(host="h1"))
            is_broken.clear()
            wait_until(lambda: len(scheduler.table) == 1)
            wait_until(lambda: _troubles(scheduler) == "")
    assert caplog.text.count("Following Kafka failed") == 1


def _notes(scheduler: Scheduler) -> str:
    """Return the notes, except that no relay has written aggregates."""
    unknowns = scheduler.source.unknowns()
    return " ".join(each for each in scheduler.source.notes() if each not in unknowns)


def _troubles(scheduler: Scheduler) -> str:
    return " ".join(scheduler.source.troubles())
