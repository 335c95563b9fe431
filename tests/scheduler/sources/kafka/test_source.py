# SPDX-License-Identifier: Apache-2.0
"""The source on a real broker: start, follow, poison, removal, and a broker's end."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from moorage.agent import BusUnavailable, KafkaBus, Reporter
from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.kafka_client import TopicNames, topic_settings
from moorage.scheduler.sources.kafka import KafkaSource, reader
from moorage.testing.builders import host, instance_uuid, node_uuid

from ....fixtures.kafka import PASSWORD, USER, DedicatedKafka, Kafka, KafkaClient
from ....fixtures.waiting import wait_until
from .test_broker import COMPACTED

pytestmark = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]

A, B = instance_uuid("a"), instance_uuid("b")
NODE = node_uuid("h1")


class Scheduler:
    """A table that the source fills."""

    def __init__(
        self, conf: Any, clock: Callable[[], float] = time.time, **options: Any
    ) -> None:
        for name, value in options.items():
            group = "moorage" if name == "forget_hosts_after" else "kafka"
            conf.set_override(name, value, group=group)
        self.table = HostTable(clock)
        self.source = KafkaSource(conf, clock=clock)
        self.source.start(self.table)

    def value(self, column: str, node: str = NODE) -> Any:
        batch = self.table.batch([node])
        return batch.value(column, 0) if len(batch) else None


class Cloud:
    """Topics of a broker, an agent, and schedulers."""

    def __init__(self, kafka: KafkaClient, **settings: str | int) -> None:
        self.kafka = kafka
        self.conf = self.options()
        kafka.configure(self.conf, **settings)
        self.topic = TopicNames.of(self.conf).hosts
        self.bus = KafkaBus(self.conf)
        self.reporter = Reporter(self.bus.cast, sends_deltas=False)

    def options(self) -> Any:
        conf = load([], config_files=[])
        for name, value in self.kafka.options().items():
            several = name == "bootstrap_servers"
            conf.set_override(name, [value] if several else value, group="kafka")
        return conf

    @contextlib.contextmanager
    def scheduler(self, **options: Any) -> Iterator[Scheduler]:
        """A scheduler that has read the topics and follows them."""
        made = Scheduler(self.options(), **options)
        made.source.start_polling(made.table)
        try:
            yield made
        finally:
            made.source.stop()


def start_failure(cloud: Cloud, options: dict[str, Any]) -> str:
    """Return the line with which a scheduler with these options fails to start.

    A broker that does not answer within [kafka] timeout is another reason.
    """
    with pytest.raises(ConfigurationError) as raised:
        Scheduler(cloud.options(), **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Kafka() as kafka:
        yield Cloud(kafka)


def test_hosts_are_read_at_the_start_and_followed(cloud: Cloud) -> None:
    names = [f"h{i}" for i in range(20)]
    cloud.reporter.report_many((host(host=name), [A]) for name in names)
    cloud.reporter.report(host(host="h1", vcpus_used=2), [A, B])
    with cloud.scheduler() as first:
        assert len(first.table) == 20, "at once: it is ready when it has started"
        assert first.value("vcpus_used") == 2
        assert first.table.instances.of_host("h1") == {A, B}
        cloud.reporter.report(host(host="h1", vcpus_used=3), [B])
        wait_until(lambda: first.value("vcpus_used") == 3)
        assert first.table.instances.of_host("h1") == {B}
        seen_at = first.value("last_seen_up")
        cloud.reporter.report(host(host="h1", vcpus_used=3), [B])
        wait_until(lambda: first.value("last_seen_up") > seen_at)
        assert first.source.seen_at() == first.value("last_seen_up")
        wait_until(lambda: first.source.n_unread() == 0)
        assert first.source.notes() == list(first.source.unknowns())
        with cloud.scheduler() as second:
            assert second.value("vcpus_used") == 3
            assert second.value("last_seen_up") == first.value("last_seen_up")


def test_empty_topics_are_read_and_followed(cloud: Cloud) -> None:
    with cloud.scheduler() as scheduler:
        assert len(scheduler.table) == 0
        assert scheduler.source.seen_at() is None
        cloud.reporter.report(host(host="h1"))
        wait_until(lambda: len(scheduler.table) == 1)


def test_removed_host_is_dropped_and_stays_away(cloud: Cloud) -> None:
    cloud.reporter.report_many((host(host=name), []) for name in ("h1", "h2"))
    with cloud.scheduler() as first:
        cloud.reporter.forget(NODE)
        cloud.bus.remove(NODE)
        wait_until(lambda: len(first.table) == 1)
    with cloud.scheduler() as second:
        assert second.table.host_of(node_uuid("h2")) == "h2"
        assert len(second.table) == 1


def test_unreadable_messages_hinder_no_other(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    poison = [(NODE, b"{"), ("no-uuid", b"x"), (NODE, b'{"a": 1}')]
    cloud.kafka.produce(cloud.topic, *poison)
    cloud.reporter.report(host(host="h1"))
    with cloud.scheduler() as scheduler:
        assert len(scheduler.table) == 1
        cloud.kafka.produce(cloud.topic, *poison)
        cloud.reporter.report(host(host="h2"))
        wait_until(lambda: len(scheduler.table) == 2)
        # At the start, superseded messages of a key are not even read. Those of one
        # partition may be read after those of another one.
        skipped = lambda: scheduler.source.report_counts()["skipped"]  # noqa: E731 - as short as its use
        wait_until(lambda: skipped() >= len(poison))
    assert f"topic {cloud.topic}, partition " in caplog.text


def test_compacted_topic_has_the_same_hosts() -> None:
    with Kafka() as kafka:
        cloud = Cloud(kafka, **COMPACTED)
        # Heartbeats and aggregates are compacted as well; no matter here.
        names = [f"h{i}" for i in range(5)]
        for used in range(6):
            records = [host(host=name, vcpus_used=used) for name in names]
            cloud.reporter.report_many((record, []) for record in records)
        cloud.bus.remove(node_uuid("h4"))

        def n_messages() -> int:
            # A new message ends the segment, which is compacted then.
            kafka.produce(cloud.topic, *((str(i), b"{") for i in range(9)))
            return sum(len(key or "") == 36 for key, _ in kafka.messages(cloud.topic))

        wait_until(lambda: n_messages() <= 5, interval_s=0.2)
        with cloud.scheduler() as scheduler:
            found = {
                name: scheduler.value("vcpus_used", node_uuid(name)) for name in names
            }
            assert found == {**dict.fromkeys(names, 5), "h4": None}


def test_missing_topic_is_named_with_how_to_create_it() -> None:
    with Kafka() as kafka:
        cloud = Cloud(kafka)
        with pytest.raises(ConfigurationError) as raised:
            Scheduler(cloud.options(), topic_prefix="no-such")
        assert "'no-such-hosts' does not exist" in str(raised.value)
        assert "--create --topic no-such-hosts" in str(raised.value)
        conf = cloud.options()
        conf.set_override("topic_prefix", "no-such", group="kafka")
        reporter = Reporter(KafkaBus(conf).cast, sends_deltas=False)
        with pytest.raises(BusUnavailable, match="no-such-hosts"):
            reporter.report(host(host="h1"))


def test_partitions_that_are_added_are_read(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_NEW_PARTITIONS_MS", 200)
    with cloud.scheduler() as scheduler:
        client = AdminClient({"bootstrap.servers": cloud.kafka.servers})
        new = client.create_partitions([NewPartitions(cloud.topic, 12)])
        new[cloud.topic].result()
        names = [f"h{i}" for i in range(30)]

        def are_all_read() -> bool:
            bus = KafkaBus(cloud.conf)  # a new one knows the partitions
            reporter = Reporter(bus.cast, sends_deltas=False)
            reporter.report_many((host(host=name), []) for name in names)
            return len(scheduler.table) == len(names)

        wait_until(are_all_read, interval_s=0.2)


def test_password_is_checked_and_the_documented_rights_suffice(
    cloud: Cloud, tmp_path: Path
) -> None:
    cloud.reporter.report(host(host="h1"))
    cloud.kafka.allow_reading(topic_settings(cloud.conf))
    file = tmp_path / "password"
    options: dict[str, Any] = {
        "bootstrap_servers": [cloud.kafka.sasl_servers],
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "PLAIN",
        "sasl_username": USER,
        "sasl_password_file": str(file),
    }
    file.write_text("wrong")
    refused = {**options, "timeout": 3}
    wait_until(lambda: "uthentication failed" in start_failure(cloud, refused))
    file.write_text(f"{PASSWORD}\n")
    with cloud.scheduler(**options) as scheduler:
        assert len(scheduler.table) == 1
        cloud.reporter.report(host(host="h2"))
        wait_until(lambda: len(scheduler.table) == 2)
        assert scheduler.source.notes() == list(scheduler.source.unknowns())


class Clock:
    """The time, which may jump."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


def test_killed_broker_under_load_is_reconnected_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    with DedicatedKafka() as kafka:
        cloud = Cloud(kafka)
        cloud.reporter.report(host(host="h1"))
        cloud.conf.set_override("timeout", 1.0, group="kafka")
        cloud.reporter = Reporter(KafkaBus(cloud.conf).cast, sends_deltas=False)
        used = 0
        is_ending = threading.Event()

        def is_reported() -> bool:
            nonlocal used
            used += 1
            records = [host(host=f"h{i}", vcpus_used=used) for i in range(50)]
            try:
                cloud.reporter.report_many((record, []) for record in records)
            except BusUnavailable:
                return False
            return True

        def report_always() -> None:
            while not is_ending.is_set():
                is_reported()

        agents = threading.Thread(target=report_always)
        with cloud.scheduler(clock=clock) as scheduler:
            agents.start()
            try:
                wait_until(lambda: len(scheduler.table) == 50)
                kafka.kill()
                wait_until(lambda: "no broker of Kafka answers" in _notes(scheduler))
                seen_at = scheduler.value("last_seen_up")
                clock.ahead_s = 300
                # Nothing can be received: that is no silence of the hosts.
                wait_until(lambda: scheduler.value("last_seen_up") > seen_at + 200)
                assert clock() - (scheduler.source.seen_at() or 0) > 300
                assert len(scheduler.table) == 50
                before = scheduler.value("vcpus_used")
                clock.ahead_s = 0
                kafka.restart()
                wait_until(lambda: scheduler.value("vcpus_used") > before)
                wait_until(lambda: _notes(scheduler) == "")
            finally:
                is_ending.set()
                agents.join()
            wait_until(is_reported)
            wait_until(
                lambda: {scheduler.value("vcpus_used", u) for u in _nodes()} == {used}
            )
    assert "No broker of Kafka answers" in caplog.text
    assert "Kafka is read to its end again" in caplog.text


def _notes(scheduler: Scheduler) -> str:
    """Return the notes, except that no relay has written aggregates."""
    unknowns = scheduler.source.unknowns()
    return " ".join(each for each in scheduler.source.notes() if each not in unknowns)


def _nodes() -> list[str]:
    return [node_uuid(f"h{i}") for i in range(50)]


def relay(cloud: Cloud, name: str, seen_at: float) -> None:
    """Report a host as a relay does."""

    def send(reports: list[dict[str, Any]]) -> None:
        for report in reports:
            report["moorage_object.data"]["seen_at"] = seen_at
        cloud.bus.cast(reports)

    Reporter(send, sends_deltas=False).report(host(host=name))


def silent_s(scheduler: Scheduler, name: str) -> float:
    return time.time() - float(scheduler.value("last_seen_up", node_uuid(name)))


def test_no_relay_is_no_silence_of_hosts_for_a_while(cloud: Cloud) -> None:
    now = time.time()
    relay(cloud, "h1", now - 100)
    relay(cloud, "dead", now - 200)
    with cloud.scheduler() as scheduler:
        assert silent_s(scheduler, "h1") < 50, "the absence began before the start"
        assert 90 < silent_s(scheduler, "dead") < 150, "it was silent before"
        [note] = [n for n in scheduler.source.notes() if "relay" in n]
        assert note.startswith("no relay has written to Kafka since")
        cloud.reporter.report(host(host="own"))
        wait_until(lambda: scheduler.value("host", node_uuid("own")))
        assert scheduler.source.notes() == [note], "agents are no relay"
        relay(cloud, "h1", time.time())
        wait_until(lambda: scheduler.source.notes() == [])
    with cloud.scheduler(relay_grace=0.0) as scheduler:
        assert silent_s(scheduler, "dead") > 190


def test_hosts_are_silent_once_the_grace_for_relays_is_over(cloud: Cloud) -> None:
    options = cloud.options()
    options.set_override("service_down_time", 4)
    seen_at = time.time()
    relay(cloud, "h1", seen_at)
    cloud.reporter.report(host(host="own"))
    scheduler = Scheduler(options, relay_grace=6.0)
    own_seen_at = scheduler.value("last_seen_up", node_uuid("own"))
    scheduler.source.start_polling(scheduler.table)

    def excused_s() -> float:
        return float(scheduler.value("last_seen_up", node_uuid("h1"))) - seen_at

    try:
        wait_until(lambda: excused_s() > 5.9)
        wait_until(lambda: silent_s(scheduler, "h1") > 6)
        assert excused_s() < 6.5
        own = scheduler.value("last_seen_up", node_uuid("own"))
        assert own == own_seen_at, "its silence counts"
    finally:
        scheduler.source.stop()
