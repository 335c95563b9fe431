# SPDX-License-Identifier: Apache-2.0
"""However a table changes and leaders are replaced, readers arrive at it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import Any

import hypothesis
import msgspec
from hypothesis import strategies as st

from moorage.scheduler.hosts import (
    Consumption,
    HostAggregate,
    HostTable,
    ImageProperties,
)
from moorage.scheduler.kafka_client import TopicNames
from moorage.scheduler.relay.reports import TableReporter
from moorage.scheduler.relay.topics import TopicState
from moorage.scheduler.sources.base import BaseHostSource
from moorage.scheduler.sources.kafka.messages import (
    MessageApplier,
    TopicMessage,
)
from moorage.scheduler.sources.reported.hosts import ReportedHosts
from moorage.testing.builders import host, instance_uuid, node_uuid

from ...fixtures.property_tests import examples

TOPICS = TopicNames("hosts", "heartbeats", "aggregates")
NOW = 1_700_000_000.0
NAMES = ("a", "b", "c")


class Requester:
    """Counts the heartbeats that belong to no report."""

    def __init__(self) -> None:
        self.n_missing = 0

    def request(self, node_uuid: str, topic: str | None, server: str | None) -> None:
        self.n_missing += 1

    def discard(self, node_uuid: str) -> None:
        pass


class Source(BaseHostSource):
    """A cloud, as a test has it; of unread cells, nothing is known."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: dict[str, tuple[Any, Collection[str]]] = {}
        self.aggregates: dict[int, HostAggregate] = {}
        self.unread: set[str] = set()
        self.images: dict[str, ImageProperties] = {}

    def is_gone(self, node_uuid: str, cell_uuid: str) -> bool:
        return cell_uuid not in self.unread

    def start(self, table: HostTable) -> None:
        present = {
            name: (record, instances)
            for name, (record, instances) in self.hosts.items()
            if record.cell_uuid not in self.unread
        }
        for name in NAMES:
            if name not in present:
                table.drop(node_uuid(name))
                table.set_instances(name, ())
        for record, instances in present.values():
            if table.as_reported(record.uuid) != record:
                table.put(record)
            table.set_instances(record.host, instances)
        table.set_image_properties(self.images)
        table.put_aggregates(self.aggregates.values())


class Topics:
    """The messages of the topics, in order, and a scheduler that follows them."""

    def __init__(self, clock: Any) -> None:
        self.messages: list[TopicMessage] = []
        self.clock = clock
        self.table, self.requester = HostTable(), Requester()
        self._applier = self._made(self.table, self.requester)

    def _made(self, table: HostTable, requester: Requester) -> MessageApplier:
        hosts = ReportedHosts(table, requester, self.clock, lambda _: None)
        return MessageApplier(TOPICS, hosts, table)

    def append(self, topic: str, key: str, value: bytes | None) -> None:
        at = len(self.messages)
        message = TopicMessage(topic, 0, at, key.encode(), value, self.clock())
        self.messages.append(message)
        self._applier.apply([message])

    def read_afresh(self) -> HostTable:
        """The table of a scheduler that starts now: states first, then heartbeats."""
        table = HostTable()
        applier = self._made(table, Requester())
        of_state = [m for m in self.messages if m.topic != TOPICS.heartbeats]
        newest = {(m.topic, m.key): m for m in of_state}  # as compacted
        applier.apply(newest.values())
        applier.apply(m for m in self.messages if m.topic == TOPICS.heartbeats)
        assert applier.counts.skipped == applier.counts.unsupported == 0
        return table


class Cloud:
    """A source, the relay that leads, and the topics."""

    def __init__(self) -> None:
        self.now = NOW
        self.source = Source()
        self.topics = Topics(lambda: self.now)
        self.elect()

    def elect(self, *, are_heartbeats_first: bool = False) -> None:
        """Have another relay lead, which reads everything again.

        Topics are read in any order.
        """
        state = TopicState(TOPICS)
        for is_first in (True, False):
            is_of_these = is_first == are_heartbeats_first
            state.apply(
                each
                for each in self.topics.messages
                if (each.topic == TOPICS.heartbeats) == is_of_these
            )
        self.table = HostTable()
        self.source.start(self.table)
        self.reporter = TableReporter(self.table, self.source, state, lambda: self.now)

    def relay(self) -> int:
        """Write what has changed; return the number of messages."""
        self.source.start(self.table)
        messages = list(self.reporter.messages())
        for message in messages:
            self.topics.append(message.topic, message.key, message.value)
        return len(messages)


def contents(table: HostTable) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for state in table.batch():
        record = table.as_reported(state.uuid)
        assert record is not None
        if math.isnan(record.last_seen_up):
            record = dataclasses.replace(record, last_seen_up=0.0)
        images = table.instances.image_properties_of(record.host)
        found[state.uuid] = record, state.aggregates, set(state.instances), images
    return found | {"aggregates": sorted(table.aggregates, key=lambda a: a.id)}


_names = st.sampled_from(NAMES)
_cells = st.sampled_from(["cell1", "cell2"]).map(node_uuid)
_instance = st.sampled_from(["i", "j", "k"]).map(instance_uuid)
_instances = st.frozensets(_instance)
_images = st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["1", "2"]))
_changes = st.one_of(
    st.tuples(st.just("host"), _names, st.integers(1, 3), _cells, _instances),
    st.tuples(st.just("seen"), _names, st.sampled_from([0.0, 1.0, math.nan])),
    st.tuples(st.just("mark"), _names, st.booleans(), st.booleans()),
    st.tuples(st.just("instances"), _names, _instances),
    st.tuples(st.just("image"), _instance, _images),
    st.tuples(st.just("remove"), _names),
    st.tuples(st.just("aggregate"), st.integers(1, 2), st.frozensets(_names)),
    st.tuples(st.just("no aggregate"), st.integers(1, 2)),
    st.tuples(st.just("relay")),
    st.tuples(st.just("elect"), st.booleans()),
)


def _make(cloud: Cloud, change: tuple[Any, ...]) -> None:
    kind, *what = change
    hosts = cloud.source.hosts
    cloud.now += 1
    match kind, what:
        case "host", [name, vcpus, cell, instances]:
            record = host(
                host=name, vcpus_total=vcpus, cell_uuid=cell, last_seen_up=cloud.now
            )
            hosts[name] = record, instances
        case "seen", [name, age_s] if name in hosts:
            _change(cloud, name, last_seen_up=cloud.now - age_s)
        case "mark", [name, disabled, forced_down] if name in hosts:
            _change(
                cloud, name,
                disabled=disabled, forced_down=forced_down, last_seen_up=cloud.now,
            )  # fmt: skip
        case "instances", [name, instances] if name in hosts:
            hosts[name] = hosts[name][0], instances
        case "image", [instance, properties]:
            cloud.source.images[instance] = frozenset(properties.items())
        case "remove", [name]:
            hosts.pop(name, None)
        case "aggregate", [id_, names]:
            cloud.source.aggregates[id_] = HostAggregate(
                id_, node_uuid("x"), "x", names, {}
            )
        case "no aggregate", [id_]:
            cloud.source.aggregates.pop(id_, None)
        case "relay", _:
            cloud.relay()
        case "elect", [are_heartbeats_first]:
            cloud.elect(are_heartbeats_first=are_heartbeats_first)


def _change(cloud: Cloud, name: str, **changes: Any) -> None:
    record, instances = cloud.source.hosts[name]
    cloud.source.hosts[name] = dataclasses.replace(record, **changes), instances


@examples(2)
@hypothesis.given(st.lists(_changes, max_size=30))
def test_readers_arrive_at_the_table_of_the_source(changes: list[Any]) -> None:
    cloud = Cloud()
    for change in changes:
        _make(cloud, change)
    cloud.now += 1
    for name in cloud.source.hosts:  # what is not older than the topics is written
        _change(cloud, name, last_seen_up=cloud.now)
    cloud.relay()
    expected = HostTable()
    cloud.source.start(expected)
    assert contents(cloud.topics.table) == contents(expected)
    assert contents(cloud.topics.read_afresh()) == contents(expected)
    assert cloud.topics.requester.n_missing == 0
    assert cloud.relay() == 0
    for are_heartbeats_first in (False, True):
        cloud.elect(are_heartbeats_first=are_heartbeats_first)
        assert cloud.relay() == 0, "a new leader writes nothing if nothing has changed"


@examples(2)
@hypothesis.given(st.lists(_changes, max_size=30))
def test_no_host_is_seen_earlier_than_before(changes: list[Any]) -> None:
    cloud = Cloud()
    seen: dict[str, float] = {}
    for change in changes:
        _make(cloud, change)
        now = {s.uuid: s.last_seen_up for s in cloud.topics.table.batch()}
        assert all(now[uuid] >= at for uuid, at in seen.items() if uuid in now)
        seen = now


@examples(1)
@hypothesis.given(st.lists(st.tuples(_names, st.integers(0, 5)), max_size=20))
def test_no_state_goes_back_if_a_leader_reads_an_older_replica(
    changes: list[tuple[str, int]],
) -> None:
    cloud = Cloud()
    for name in NAMES:
        _make(cloud, ("host", name, 0, node_uuid("cell1"), frozenset()))
    cloud.relay()
    states = [dict(cloud.source.hosts)]
    before = contents(cloud.topics.table)
    for number, (name, lag) in enumerate(changes, 1):
        cloud.source.hosts = dict(states[-1])
        _make(cloud, ("host", name, number, node_uuid("cell1"), frozenset()))
        states.append(cloud.source.hosts)
        cloud.source.hosts = dict(states[max(0, len(states) - 1 - lag)])
        cloud.elect()
        cloud.relay()
        now = contents(cloud.topics.table)
        assert all(
            now[uuid][0].vcpus_total >= before[uuid][0].vcpus_total
            for uuid in map(node_uuid, NAMES)
        )
        before = now


def test_change_of_instances_alone_is_written() -> None:
    cloud = Cloud()
    _make(cloud, ("host", "a", 2, node_uuid("cell1"), frozenset()))
    cloud.relay()
    instances = frozenset([instance_uuid("i")])
    _make(cloud, ("instances", "a", instances))
    assert cloud.relay() == 1
    assert cloud.topics.table.instances.of_host("a") == instances


def test_claim_ends_with_the_row_that_counts_its_instance() -> None:
    """nova-compute names the instance's host before it writes its node's row."""
    cloud, instance = Cloud(), instance_uuid("i")
    record = host(host="a", last_seen_up=NOW, free_ram_mb=8192)
    cloud.source.hosts["a"] = record, ()
    cloud.relay()
    table = cloud.topics.table
    took = Consumption(memory_mb=1024, disk_mb=0, vcpus=1)
    table.claims.consume(record.uuid, instance, took, NOW)
    cloud.source.hosts["a"] = record, [instance]
    cloud.relay()
    assert table.batch()[0].free_ram_mb == 7168
    written = dataclasses.replace(record, free_ram_mb=7168, num_instances=1)
    cloud.source.hosts["a"] = written, [instance]
    cloud.relay()
    assert not table.claims.unreported()
    assert table.batch()[0].free_ram_mb == 7168


def test_change_of_image_properties_alone_is_written() -> None:
    cloud = Cloud()
    i, j = map(instance_uuid, "ij")
    _make(cloud, ("host", "a", 2, node_uuid("cell1"), frozenset([i, j])))
    _make(cloud, ("image", i, {"x": "1"}))
    assert cloud.relay() == 1
    assert contents(cloud.topics.table) == contents(cloud.table)
    _make(cloud, ("image", i, {}))
    assert cloud.relay() == 1
    images = cloud.topics.table.instances.image_properties_of("a")
    assert images == {i: frozenset()}, "those of the other one are unknown"


def test_hosts_of_a_cell_that_is_not_read_stay() -> None:
    cloud = Cloud()
    for name, cell in (("a", "cell1"), ("b", "cell2")):
        _make(cloud, ("host", name, 1, node_uuid(cell), frozenset()))
    cloud.relay()
    cloud.source.unread = {node_uuid("cell2")}
    assert cloud.relay() == 0
    cloud.elect()
    assert cloud.relay() == 0
    assert len(cloud.topics.table) == 2
    del cloud.source.hosts["b"]
    cloud.source.unread = set()
    cloud.now += 10
    assert cloud.relay() == 1
    assert len(cloud.topics.table) == 1


def test_host_of_an_invalid_value_stays_as_it_was() -> None:
    cloud = Cloud()
    _make(cloud, ("host", "a", 2, node_uuid("cell1"), frozenset()))
    cloud.relay()
    _change(cloud, "a", disk_mb_used=-1)
    assert cloud.relay() == 0
    [note] = cloud.reporter.notes
    assert "disk_mb_used: -1" in note
    _change(cloud, "a", disk_mb_used=1, vcpus_total=3)
    assert cloud.relay() == 1
    assert cloud.reporter.notes == ()


def test_host_that_counts_as_up_gets_heartbeats() -> None:
    cloud = Cloud()
    _make(cloud, ("host", "a", 2, node_uuid("cell1"), frozenset()))
    _change(cloud, "a", last_seen_up=math.inf)
    for _ in range(10):
        cloud.relay()
        cloud.now += 9
        [seen_at] = cloud.topics.table.batch().last_seen_up
        assert cloud.now - seen_at < 30


def test_unreadable_messages_are_replaced() -> None:
    cloud = Cloud()
    values = [b"{", b"[]", b"{}", msgspec.json.encode({"moorage_object.name": 1})]
    for value in values:
        cloud.topics.append(TOPICS.hosts, node_uuid("a"), value)
        cloud.topics.append(TOPICS.heartbeats, node_uuid("a"), value)
        cloud.topics.append(TOPICS.aggregates, "1", value)
        cloud.topics.append(TOPICS.hosts, "no-uuid", value)
    _make(cloud, ("host", "a", 2, node_uuid("cell1"), frozenset()))
    _make(cloud, ("aggregate", 1, frozenset("a")))
    cloud.elect()
    cloud.relay()
    assert len(cloud.topics.table) == len(list(cloud.topics.table.aggregates)) == 1
