# SPDX-License-Identifier: Apache-2.0
"""Messages of the topics give the right hosts, however often and coarsely read."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.reporter import Reporter
from moorage.objects import Aggregate
from moorage.scheduler.hosts import COLUMNS, Consumption, HostTable
from moorage.scheduler.kafka_client import TopicNames
from moorage.scheduler.sources.kafka.messages import (
    MessageApplier,
    TopicMessage,
)
from moorage.scheduler.sources.kafka.silence import MissingHosts
from moorage.scheduler.sources.reported.hosts import ReportedHosts
from moorage.scheduler.sources.reported.revisions import Route
from moorage.testing.builders import NOW, host, instance_uuid, node_uuid

from ....fixtures.property_tests import examples

TOPICS = TopicNames("hosts", "heartbeats", "aggregates")
NODE = node_uuid("h1")
A, B = instance_uuid("a"), instance_uuid("b")
#: When messages are applied; each was sent a second after the one before it.
APPLIED_AT = NOW + 10_000


class Log:
    """The messages that agents and others have sent."""

    def __init__(self) -> None:
        self.messages: list[TopicMessage] = []
        self._reporters: dict[str, Reporter] = {}

    def report(self, name: str, *instances: str, **values: Any) -> None:
        """Report a host as its agent does."""
        reporter = self._reporters.setdefault(
            name, Reporter(self._cast, sends_deltas=False)
        )
        reporter.report(host(host=name, **values), instances)

    def restart_agent(self, name: str) -> None:
        """Report the host's next state as another incarnation."""
        self._reporters.pop(name, None)

    def _cast(self, reports: list[dict[str, Any]]) -> None:
        for report in reports:
            whole = report["moorage_object.name"] == "HostReport"
            uuid = report["moorage_object.data"]["uuid"]
            topic = TOPICS.hosts if whole else TOPICS.heartbeats
            self.add(topic, uuid, json.dumps(report).encode())

    def add(self, topic: str, key: str | None, value: bytes | None) -> None:
        """Append any message."""
        number = len(self.messages)
        encoded = None if key is None else key.encode()
        self.messages.append(
            TopicMessage(topic, 0, number, encoded, value, NOW + number)
        )

    def compacted(self) -> list[TopicMessage]:
        """Return the newest message of each key."""
        return list({(m.topic, m.key): m for m in self.messages}.values())


class Reading:
    """A table to which messages are applied."""

    def __init__(self, *parts: list[TopicMessage]) -> None:
        self.now = APPLIED_AT
        self.monotonic = 0.0
        self.table = HostTable(lambda: self.now)
        self.missing = MissingHosts(lambda: self.monotonic)
        self.hosts = ReportedHosts(
            self.table, self.missing, lambda: self.now, lambda _uuids: None
        )
        self.applier = MessageApplier(TOPICS, self.hosts, self.table)
        for part in parts:
            self.applier.apply(part)

    def rows(self, *, seen: bool = True) -> dict[str, Any]:
        """Return all columns, and the instances, of each node."""
        batch = self.table.batch()
        names = COLUMNS.keys() - (set() if seen else {"last_seen_up"})
        rows = {
            str(batch.value("uuid", i)): {n: batch.value(n, i) for n in names}
            for i in range(len(batch))
        }
        for row in rows.values():
            row["instances"] = self.table.instances.of_host(row["host"])
        return rows

    def value(self, column: str, node: str = NODE) -> Any:
        return self.rows()[node][column]


def test_last_report_and_heartbeat_of_a_host_count() -> None:
    log = Log()
    log.report("h1", A)
    log.report("h1", B, vcpus_used=5)
    log.report("h1", B, vcpus_used=5)
    assert [m.topic for m in log.messages] == ["hosts", "hosts", "heartbeats"]
    reading = Reading(log.messages)
    assert reading.value("vcpus_used") == 5
    assert reading.value("instances") == {B}
    assert reading.value("last_seen_up") == NOW + 2
    assert reading.hosts.last_report_at == NOW + 2


def test_report_that_is_read_after_a_newer_heartbeat_is_no_older_sign() -> None:
    log = Log()
    log.report("h1")
    log.report("h1")
    report, heartbeat = log.messages
    reading = Reading([report, heartbeat])
    log.restart_agent("h1")
    log.report("h1", vcpus_used=3)
    reading.applier.apply([log.messages[-1]._replace(received_at=NOW - 50)])
    assert reading.value("vcpus_used") == 3
    assert reading.value("last_seen_up") == NOW + 1


def test_message_from_the_future_counts_as_of_now() -> None:
    log = Log()
    log.report("h1")
    reading = Reading([log.messages[0]._replace(received_at=APPLIED_AT + 999)])
    assert reading.value("last_seen_up") == APPLIED_AT


#: A node, and what happens: new values, a restart of its agent, or its removal.
STEP = st.tuples(
    st.sampled_from(["h1", "h2", "h3"]),
    st.one_of(
        st.tuples(st.integers(0, 3), st.sets(st.sampled_from([A, B]))),
        st.just("restart"),
        st.just("remove"),
    ),
)


def test_time_that_a_relay_passes_on_counts_and_not_that_of_its_message() -> None:
    log = Log()
    for name, seen_at in (("h1", NOW - 500), ("never", 0), ("ahead", NOW + 99_999)):
        log.report(name)
        report = json.loads(log.messages.pop().value or b"")
        report["moorage_object.data"]["seen_at"] = seen_at
        log.add(TOPICS.hosts, node_uuid(name), json.dumps(report).encode())
    reading = Reading(log.messages)
    seen = {row["host"]: row["last_seen_up"] for row in reading.rows().values()}
    assert seen == {"h1": NOW - 500, "never": 0, "ahead": NOW + 2}
    reading.hosts._forget_after_s = 60  # noqa: SLF001 - as [moorage] forget_hosts_after
    assert reading.hosts.forget_lost() == [], "the relay removes what is gone"


@pytest.mark.parametrize("seen_at", [-1, None, "now", [], True])
def test_invalid_time_of_a_relay_is_skipped(seen_at: object) -> None:
    log = Log()
    log.report("h1")
    report = json.loads(log.messages.pop().value or b"")
    report["moorage_object.data"]["seen_at"] = seen_at
    log.add(TOPICS.hosts, NODE, json.dumps(report).encode())
    reading = Reading(log.messages)
    assert len(reading.table) == 0
    assert reading.applier.counts.skipped == 1


def _log_of(steps: list[Any]) -> Log:
    log = Log()
    for name, step in steps:
        if step == "restart":
            log.restart_agent(name)
        elif step == "remove":
            log.add(TOPICS.hosts, node_uuid(name), None)
            log.restart_agent(name)  # it reports whole, should it report again
        else:
            log.report(name, *step[1], vcpus_used=step[0])
    return log


@given(steps=st.lists(STEP, max_size=25), cut=st.integers(0, 25))
@examples(1)
def test_compacted_cut_and_repeated_topics_give_the_same_hosts(
    steps: list[Any], cut: int
) -> None:
    log = _log_of(steps)
    states = [m for m in log.messages if m.topic == TOPICS.hosts]
    whole = Reading(states).rows(seen=False)
    assert whole.keys() == _reported(steps)
    assert Reading(states[:cut], states[cut:]).rows(seen=False) == whole
    assert Reading(*([m] for m in states)).rows(seen=False) == whole
    # As from an earlier offset again, after a broker was away.
    assert Reading(states, states).rows(seen=False) == whole
    compacted = [m for m in log.compacted() if m.topic == TOPICS.hosts]
    assert Reading(compacted).rows(seen=False) == whole
    # Heartbeats, which come without an order to the reports, change no more than that.
    assert Reading(log.messages).rows(seen=False) == whole


def _reported(steps: list[Any]) -> set[str]:
    """Return the nodes that were reported and not removed since."""
    nodes = set()
    for name, step in steps:
        if step == "remove":
            nodes.discard(node_uuid(name))
        elif step != "restart":
            nodes.add(node_uuid(name))
    return nodes


def _report_of(log: Log, **changes: Any) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(log.messages[0].value or b"")
    report["moorage_object.data"] |= changes
    return report


UNREADABLE = [
    pytest.param(NODE, b"{", "Expecting", id="no JSON"),
    pytest.param(NODE, b"\xff", "utf-8", id="no text"),
    pytest.param(NODE, b"[]", "HostReport", id="no object"),
    pytest.param(NODE, b"[" * 100_000, "recursion", id="too deep"),
    pytest.param("h1", b"{}", "UUID", id="key is no UUID"),
    pytest.param(None, b"{}", "no key", id="no key"),
    pytest.param(None, None, "no key", id="tombstone without a key"),
]


@pytest.mark.parametrize(("key", "value", "words"), UNREADABLE)
def test_unreadable_message_is_skipped_with_its_offset(
    key: str | None, value: bytes | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    log.report("h1")
    log.add(TOPICS.hosts, key, value)
    log.report("h2")
    reading = Reading(log.messages)
    assert reading.rows().keys() == {NODE, node_uuid("h2")}
    assert reading.applier.counts.skipped == 1
    [record] = caplog.records
    assert "topic hosts, partition 0, offset 1: " in record.getMessage()
    assert words in record.getMessage()


def test_report_under_the_key_of_another_node_is_skipped() -> None:
    log = Log()
    log.report("h1")
    log.add(TOPICS.hosts, node_uuid("h2"), log.messages[0].value)
    reading = Reading(log.messages)
    assert reading.rows().keys() == {NODE}
    assert reading.applier.counts.skipped == 1


def test_invalid_value_is_refused_with_host_and_offset(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    log.report("h1", vcpus_used=2)
    bad = _report_of(log, vcpus_used="many", revision=2)
    log.add(TOPICS.hosts, NODE, json.dumps(bad).encode())
    reading = Reading(log.messages)
    assert reading.value("vcpus_used") == 2
    assert reading.hosts.counts.refused == 1
    [record] = caplog.records
    for words in ("'h1'", "vcpus_used", "offset 1"):
        assert words in record.getMessage()


def test_flood_of_unreadable_messages_is_counted_and_logged_in_part(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    for _ in range(1_000):
        log.add(TOPICS.hosts, NODE, b"{")
    reading = Reading(log.messages)
    assert reading.applier.counts.skipped == 1_000
    assert 0 < len(caplog.records) < 50


def test_newer_minor_version_is_read_and_newer_major_one_skipped_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    log.report("h1")
    for version, uuid in (("1.7", "h2"), ("2.0", "h3"), ("2.0", "h4")):
        report = _report_of(log, uuid=node_uuid(uuid), host=uuid, new_column=1)
        report["moorage_object.version"] = version
        log.add(TOPICS.hosts, node_uuid(uuid), json.dumps(report).encode())
    reading = Reading(log.messages)
    assert reading.rows().keys() == {NODE, node_uuid("h2")}
    assert reading.applier.counts.unsupported == 2
    [record] = caplog.records
    assert "offset 2" in record.getMessage()
    assert "2.0" in record.getMessage()


def test_message_without_a_value_removes_host_and_instances(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    log = Log()
    log.report("h1", A)
    log.add(TOPICS.hosts, NODE, None)
    log.add(TOPICS.hosts, NODE, None)
    reading = Reading(log.messages)
    assert reading.rows() == {}
    assert reading.table.instances.of_host("h1") == set()
    assert reading.applier.counts.removed == 1
    assert f"Host 'h1' ({NODE}) is removed" in caplog.text
    log.restart_agent("h1")
    log.report("h1", B)
    reading.applier.apply(log.messages[-1:])
    assert reading.value("instances") == {B}


def test_changed_report_releases_the_claims_that_it_includes_and_no_others() -> None:
    log = Log()
    log.report("h1", A)
    reading = Reading(log.messages)
    # A is resized to its own host, and B is built.
    reading.table.claims.consume(NODE, A, Consumption(512, 0, 2))
    reading.table.claims.consume(NODE, B, Consumption(512, 0, 1))
    log.report("h1", A, vcpus_used=6)
    reading.applier.apply(log.messages[-1:])
    [left] = reading.table.claims.unreported()
    assert left.instance_uuid == B
    assert reading.value("vcpus_used") == 6 + 1
    assert reading.value("instances") == {A, B}


def test_changed_report_restores_its_instances() -> None:
    log = Log()
    log.report("h1", A)
    reading = Reading(log.messages)
    reading.table.claims.release("h1", A)
    reading.table.add_instances("h1", [B])
    log.report("h1", A, vcpus_used=6)
    reading.applier.apply(log.messages[-1:])
    assert reading.value("instances") == {A}


def test_column_that_a_report_no_longer_has_gets_its_default() -> None:
    log = Log()
    log.report("h1", num_io_ops=3)
    report = _report_of(log, revision=2)
    del report["moorage_object.data"]["num_io_ops"]
    log.add(TOPICS.hosts, NODE, json.dumps(report).encode())
    reading = Reading(log.messages)
    assert reading.value("num_io_ops") == 0


@pytest.mark.parametrize("instances", [None, "", {}, [A, 1], [A, []], [A, "b"]])
def test_changed_report_with_invalid_instances_is_refused(instances: object) -> None:
    log = Log()
    log.report("h1", A)
    report = _report_of(log, revision=2, vcpus_used=6, instances=instances)
    log.add(TOPICS.hosts, NODE, json.dumps(report).encode())
    reading = Reading(log.messages)
    assert reading.hosts.counts.refused == 1
    assert reading.value("vcpus_used") == 2
    assert reading.value("instances") == {A}


def _aggregate(**changes: Any) -> bytes:
    fields = {
        "id": 7, "uuid": node_uuid("aggregate"), "name": "ssd",
        "hosts": ["h1"], "metadata": {"availability_zone": "az1"},
    }  # fmt: skip
    aggregate = Aggregate(**{**fields, **changes})
    return json.dumps(aggregate.obj_to_primitive()).encode()


def test_aggregates_follow_their_topic() -> None:
    log = Log()
    log.add(TOPICS.aggregates, "7", _aggregate())
    reading = Reading(log.messages)
    [found] = reading.table.aggregates.of_host("h1")
    assert (found.id, found.name, found.availability_zone) == (7, "ssd", "az1")
    log.add(TOPICS.aggregates, "7", _aggregate(hosts=["h2"]))
    reading.applier.apply(log.messages[1:])
    assert reading.table.aggregates.of_host("h1") == ()
    log.add(TOPICS.aggregates, "7", None)
    reading.applier.apply(log.messages[2:])
    assert list(reading.table.aggregates) == []


@pytest.mark.parametrize("key", ["8", "ssd"])
def test_aggregate_under_another_key_is_skipped(key: str) -> None:
    log = Log()
    log.add(TOPICS.aggregates, key, _aggregate())
    reading = Reading(log.messages)
    assert list(reading.table.aggregates) == []
    assert reading.applier.counts.skipped == 1


@pytest.mark.parametrize("field", ["id", "uuid", "name", "hosts", "metadata"])
def test_aggregate_without_a_field_is_skipped_and_hinders_no_report(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    aggregate = json.loads(_aggregate())
    del aggregate["nova_object.data"][field]
    log.add(TOPICS.aggregates, "7", json.dumps(aggregate).encode())
    log.report("h1")
    reading = Reading(log.messages)
    assert list(reading.table.aggregates) == []
    assert reading.rows().keys() == {NODE}
    assert reading.applier.counts.skipped == 1
    [record] = caplog.records
    assert f"offset 0: Aggregate.{field} is not set" in record.getMessage()


def test_host_whose_report_is_lost_is_named_until_it_is_reported() -> None:
    log = Log()
    log.report("h1")
    log.report("h1")
    reading = Reading(log.messages[1:])
    assert reading.missing.note("hosts") == "", "the report may come yet"
    reading.monotonic = 40.0
    reading.applier.apply(log.messages[1:])
    note = reading.missing.note("hosts")
    assert NODE in note
    assert "topic hosts" in note
    reading.applier.apply(log.messages)
    assert reading.missing.note("hosts") == ""


def test_late_heartbeat_before_a_restart_or_removal_is_no_lost_report() -> None:
    log = Log()
    for name in ("h1", "h2"):
        log.report(name)
        log.report(name)
    first, late, removed, later_still = log.messages
    log.restart_agent("h1")
    log.report("h1")
    log.report("h1")
    log.add(TOPICS.hosts, node_uuid("h2"), None)
    restarted, heartbeat, end = log.messages[4:]
    reading = Reading([first, removed, restarted, end], [late, later_still])
    for _ in range(4):
        reading.monotonic += 10.0
        reading.applier.apply([heartbeat])
        assert reading.missing.note("hosts") == ""
    # Long after, and while nobody has asked.
    reading.monotonic = 1_000.0
    reading.applier.apply([late])
    assert reading.missing.note("hosts") == ""


def test_lost_host_that_falls_silent_is_not_named_for_ever() -> None:
    log = Log()
    for _ in range(2):
        log.report("h1")
    reading = Reading(log.messages[1:])
    reading.monotonic = 1_000.0
    assert reading.missing.note("hosts") == ""


def test_excused_silence_makes_no_host_newer_than_now() -> None:
    log = Log()
    log.report("h1")
    reading = Reading(log.messages)
    [route] = reading.hosts.routes()
    reading.hosts.shorten_silence({route: 100})
    assert reading.value("last_seen_up") == NOW + 100
    assert reading.hosts.last_report_at == NOW, "the state is as old as before"
    reading.hosts.shorten_silence({route: 1e6})
    assert reading.value("last_seen_up") == APPLIED_AT


def test_silence_is_excused_only_of_hosts_whose_messages_take_that_route() -> None:
    log = Log()
    for name in ("h1", "h1", "h2"):  # of h1 a report and a heartbeat
        log.report(name)
    report, heartbeat, other = log.messages
    reading = Reading([report, heartbeat._replace(partition=1), other])
    of_h1 = Route(frozenset({(TOPICS.hosts, 0), (TOPICS.heartbeats, 1)}), False)
    of_h2 = Route(frozenset({(TOPICS.hosts, 0)}), False)
    assert reading.hosts.routes() == {of_h1, of_h2}
    h1, h2 = node_uuid("h1"), node_uuid("h2")
    before = {node: reading.value("last_seen_up", node) for node in (h1, h2)}
    reading.hosts.shorten_silence({of_h1: 5})
    assert reading.value("last_seen_up", h1) == before[h1] + 5
    assert reading.value("last_seen_up", h2) == before[h2]


def test_route_follows_messages_to_another_partition_and_a_restarted_agent() -> None:
    log = Log()
    log.report("h1")
    log.report("h1")
    log.restart_agent("h1")
    log.report("h1")
    first, heartbeat, restarted = log.messages
    reading = Reading([first, heartbeat, restarted._replace(partition=2)])
    partitions = frozenset({(TOPICS.hosts, 2), (TOPICS.heartbeats, 0)})
    assert reading.hosts.routes() == {Route(partitions, is_relayed=False)}
