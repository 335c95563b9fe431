# SPDX-License-Identifier: Apache-2.0
"""Relays on a real broker: what schedulers then read, and who of several leads."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AclOperation, ResourceType

from moorage.objects import report_data
from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.kafka_client import TopicNames, topic_settings
from moorage.scheduler.relay import Relay, RelayRole
from moorage.scheduler.relay.relay import Election
from moorage.scheduler.relay.writer import TransactionalWriter
from moorage.scheduler.sources.file import FileSource
from moorage.scheduler.sources.kafka import KafkaSource
from moorage.testing.builders import instance_uuid, node_uuid

from ...fixtures.clouds import host, write_inventory
from ...fixtures.kafka import PASSWORD, USER, DedicatedKafka, Kafka, KafkaClient
from ...fixtures.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]

A, B = instance_uuid("a"), instance_uuid("b")


class RunningRelay:
    """A relay in a thread of its own."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.status = relay.status
        self._stopping = threading.Event()
        self._wishes: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            for wish in self._wishes:
                wish()
            self._wishes = []
            self.relay.step()

    def refresh(self) -> None:
        self._wishes = [self.relay.refresh]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.relay.stop()


class RelayedCloud:
    """Topics of a broker, an inventory file, and the relays and schedulers of it."""

    def __init__(self, kafka: KafkaClient, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        self.conf = load([], config_files=[])
        kafka.configure(self.conf)
        self.conf.set_override("name", kafka.name, group="relay")
        self.topics = TopicNames.of(self.conf)

    def write(self, *hosts: dict[str, Any], **more: Any) -> None:
        """Write the inventory file."""
        path = write_inventory(self.folder, *hosts)
        if more:
            path.write_text(
                yaml.safe_dump({**yaml.safe_load(path.read_text()), **more})
            )
        self.conf.set_override("inventory_file", str(path), group="moorage")

    @contextlib.contextmanager
    def relay(self, make_source: Callable[[], Any] | None = None) -> Iterator[Any]:
        """A relay that runs until the end."""
        made = Relay(self.conf, make_source or (lambda: FileSource(self.conf)))
        running = RunningRelay(made)
        try:
            yield running
        finally:
            running.stop()

    @contextlib.contextmanager
    def leader(self, make_source: Callable[[], Any] | None = None) -> Iterator[Any]:
        """A relay that leads."""
        with self.relay(make_source) as running:
            wait_until(lambda: running.status.role is RelayRole.LEADER)
            yield running

    @contextlib.contextmanager
    def scheduler(self) -> Iterator[HostTable]:
        """The table of a scheduler that follows the topics."""
        table = HostTable()
        source = KafkaSource(self.conf)
        source.start(table)
        source.start_polling(table)
        try:
            yield table
        finally:
            source.stop()

    def n_messages(self) -> int:
        """How many messages the topics of hosts and aggregates have."""
        topics = self.topics.hosts, self.topics.aggregates
        return sum(len(self.kafka.messages(topic)) for topic in topics)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[RelayedCloud]:
    with Kafka() as kafka:
        yield RelayedCloud(kafka, tmp_path)


def value(table: HostTable, name: str, column: str) -> Any:
    batch = table.batch([node_uuid(name)])
    return batch.value(column, 0) if len(batch) else None


def is_up(table: HostTable, name: str) -> bool:
    seen_at = value(table, name, "last_seen_up")
    return seen_at is not None and time.time() - seen_at < 60


def named(name: str, **changes: Any) -> dict[str, Any]:
    return host(name, uuid=node_uuid(name), **changes)


def test_scheduler_sees_the_hosts_of_a_file_and_their_changes(
    cloud: RelayedCloud,
) -> None:
    zone = {"name": "z", "hosts": ["h1"], "metadata": {"availability_zone": "z"}}
    cloud.write(named("h1", instances=[A]), named("h2"), aggregates=[zone])
    with cloud.leader() as relay, cloud.scheduler() as table:
        assert len(table) == 2, "all were written when it led"
        assert table.instances.of_host("h1") == {A}
        assert [a.name for a in table.aggregates] == ["z"]
        assert [a.name for a in value(table, "h1", "aggregates")] == ["z"]
        assert is_up(table, "h1")
        assert relay.status.n_written == {"report": 2, "aggregate": 1}
        cloud.write(named("h1", instances=[A, B], vcpus=3), named("h3"))
        relay.refresh()
        wait_until(lambda: value(table, "h3", "host"))
        assert value(table, "h1", "vcpus_total") == 3
        assert table.instances.of_host("h1") == {A, B}
        assert value(table, "h2", "host") is None
        wait_until(lambda: not list(table.aggregates))
        assert relay.status.n_written["removal"] == 1


def test_restart_writes_nothing_if_nothing_has_changed(cloud: RelayedCloud) -> None:
    zone = {"name": "z", "hosts": ["h2", "h1"], "metadata": {"a": "b", "c": "d"}}
    cloud.write(
        named("h1", instances=[B, A]),
        named("h2", traits=["CUSTOM_A"]),
        aggregates=[zone],
    )
    with cloud.leader():
        before = cloud.n_messages()
    with cloud.leader() as relay:
        assert cloud.n_messages() == before == 3
        assert relay.status.n_written.keys() <= {"heartbeat"}
        cloud.write(named("h1", vcpus=3))
        relay.refresh()
        with cloud.scheduler() as table:
            wait_until(lambda: value(table, "h1", "vcpus_total") == 3)
            wait_until(lambda: len(table) == 1)


def test_changes_made_while_no_relay_ran_are_written(cloud: RelayedCloud) -> None:
    cloud.write(named("h1"), named("h2"))
    with cloud.leader():
        pass
    cloud.write(named("h1", vcpus=3), named("h3"))
    with cloud.scheduler() as following, cloud.leader(), cloud.scheduler() as table:
        assert value(table, "h1", "vcpus_total") == 3
        assert value(table, "h2", "host") is None
        assert value(table, "h3", "host") == "h3"
        wait_until(lambda: value(following, "h3", "host"))
        assert value(following, "h1", "vcpus_total") == 3
        wait_until(lambda: value(following, "h2", "host") is None)


def test_hosts_of_agents_are_left_alone(cloud: RelayedCloud) -> None:
    from moorage.agent import KafkaBus, Reporter
    from moorage.testing.builders import host as record

    cloud.write(named("h1"))
    bus = KafkaBus(cloud.conf)
    Reporter(bus.cast, sends_deltas=False).report(record(host="own"))
    with cloud.leader(), cloud.scheduler() as table:
        assert {value(table, name, "host") for name in ("h1", "own")} == {"h1", "own"}


def test_one_of_several_leads_and_another_one_once_it_stops(
    cloud: RelayedCloud,
) -> None:
    cloud.write(named("h1"))
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as first_only:
        first = first_only.enter_context(cloud.leader())
        others = [stack.enter_context(cloud.relay()) for _ in range(2)]
        roles = lambda: [o.status.role for o in others]  # noqa: E731 - as short as its use
        wait_until(lambda: roles() == [RelayRole.FOLLOWER] * 2)
        assert first.status.role is RelayRole.LEADER
        first_only.close()
        wait_until(
            lambda: sorted(role.value for role in roles()) == ["follower", "leader"]
        )
        assert all(o.status.is_ready for o in others)
        assert cloud.n_messages() == 1


def test_election_that_is_lost_and_won_between_two_writes_loses_no_report(
    cloud: RelayedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, poll = TransactionalWriter.write, Election.poll
    written: list[Any] = []
    losses = [True]

    def write_noted(writer: TransactionalWriter, messages: Any) -> None:
        write(writer, messages)
        written.extend(messages)

    def poll_once_lost(election: Election) -> bool:
        return poll(election) and not (written and losses and losses.pop())

    cloud.write(named("h1"), named("h2"))
    monkeypatch.setattr("moorage.scheduler.relay.leader._MAX_MESSAGES", 1)
    with cloud.leader() as relay, cloud.scheduler() as table:
        monkeypatch.setattr(TransactionalWriter, "write", write_noted)
        monkeypatch.setattr(Election, "poll", poll_once_lost)
        cloud.write(named("h1", vcpus=3), named("h2", vcpus=3))
        relay.refresh()
        for name in ("h1", "h2"):
            wait_until(lambda name=name: value(table, name, "vcpus_total") == 3)  # type: ignore[misc]


def test_fenced_leader_writes_nothing_and_follows(cloud: RelayedCloud) -> None:
    cloud.write(named("h1"))
    with cloud.leader() as old:
        # As after a pause in which the group has excluded it.
        TransactionalWriter(cloud.conf)
        before = cloud.n_messages()
        led = old.relay._leader  # noqa: SLF001 - to see that it is another one later
        cloud.write(named("h1", vcpus=3))
        old.refresh()
        wait_until(lambda: old.relay._leader is not led)  # noqa: SLF001 - as above
        wait_until(lambda: old.status.role is RelayRole.LEADER)
        assert cloud.n_messages() == before + 1, "it read the topics and the file again"
        writers = [
            report_data(json.loads(value or b""))[1]["incarnation"]
            for _, value in cloud.kafka.messages(cloud.topics.hosts)
        ]
        assert len({*writers}) == 2, "the leader that was fenced wrote the change"


def test_broker_restarts(tmp_path: Path) -> None:
    with DedicatedKafka() as kafka:
        cloud = RelayedCloud(kafka, tmp_path)
        cloud.write(named("h1"))
        with cloud.leader() as relay, cloud.scheduler() as table:
            kafka.kill()
            cloud.write(named("h1", vcpus=3), named("h2"))
            relay.refresh()
            wait_until(lambda: relay.status.role is not RelayRole.LEADER)
            assert not relay.status.is_ready
            assert relay.status.trouble
            kafka.restart()
            wait_until(lambda: value(table, "h2", "host"), timeout_s=120)
            assert value(table, "h1", "vcpus_total") == 3
            wait_until(lambda: relay.status.is_ready)


@pytest.mark.parametrize("fails", ["kill", "freeze"])
def test_waiting_relay_is_not_ready_while_no_broker_answers(
    tmp_path: Path, fails: str
) -> None:
    with DedicatedKafka() as kafka:
        cloud = RelayedCloud(kafka, tmp_path)
        cloud.write(named("h1"))
        with cloud.leader(), cloud.relay() as waiting:
            wait_until(lambda: waiting.status.role is RelayRole.FOLLOWER)
            wait_until(lambda: waiting.status.is_ready)
            assert waiting.status.text == "Role: follower."
            getattr(kafka, fails)()
            wait_until(lambda: not waiting.status.is_ready, timeout_s=60)
            assert "No broker of" in waiting.status.text
            (kafka.restart if fails == "kill" else kafka.thaw)()
            wait_until(lambda: waiting.status.is_ready, timeout_s=120)


def test_missing_rights_are_named_until_they_are_given(
    cloud: RelayedCloud, tmp_path: Path
) -> None:
    kafka, name = cloud.kafka, cloud.kafka.name
    cloud.write(named("h1"))
    topics = _restrict(cloud, tmp_path)
    command = f"--allow-principal User:{USER} --operation Write --operation Describe"
    of_id = f"{command} --transactional-id {name}"
    with cloud.relay() as relay, cloud.relay() as other:
        wait_until(lambda: of_id in relay.status.trouble)
        wait_until(lambda: of_id in other.status.trouble)
        assert not relay.status.is_ready
        assert not other.status.is_ready
        write = AclOperation.WRITE, AclOperation.DESCRIBE
        kafka.allow([name], *write, resource=ResourceType.TRANSACTIONAL_ID)
        wait_until(
            lambda: (
                f"{command} --topic {topics[0]}"
                in relay.status.trouble + other.status.trouble
            )
        )
        kafka.allow(topics, AclOperation.WRITE)
        wait_until(lambda: RelayRole.LEADER in (relay.status.role, other.status.role))
        is_first = relay.status.role is RelayRole.LEADER
        leader, follower = (relay, other) if is_first else (other, relay)
        wait_until(lambda: leader.status.is_ready)
        wait_until(lambda: follower.status.role is RelayRole.FOLLOWER)
        wait_until(lambda: follower.status.is_ready)


def test_follower_names_each_right_until_it_is_given_and_fences_no_leader(
    cloud: RelayedCloud, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka, name = cloud.kafka, cloud.kafka.name
    cloud.write(named("h1"))
    permitted = load([], config_files=[])
    for option, value in kafka.options().items():
        several = option == "bootstrap_servers"
        permitted.set_override(option, [value] if several else value, group="kafka")
    permitted.set_override("name", name, group="relay")
    topics = _restrict(cloud, tmp_path)
    with cloud.relay() as follower:
        wait_until(lambda: f"--transactional-id {name}" in follower.status.trouble)
        with contextlib.ExitStack() as stack:
            source = FileSource(cloud.conf)
            leader = RunningRelay(Relay(permitted, lambda: source))
            stack.callback(leader.stop)
            wait_until(lambda: leader.status.role is RelayRole.LEADER)
            wait_until(lambda: follower.status.role is RelayRole.FOLLOWER)
            assert f"--transactional-id {name}" in follower.status.trouble
            write = AclOperation.WRITE, AclOperation.DESCRIBE
            kafka.allow([name], *write, resource=ResourceType.TRANSACTIONAL_ID)
            wait_until(lambda: f"--topic {topics[0]}" in follower.status.trouble)
            assert not follower.status.is_ready
            kafka.allow(topics, AclOperation.WRITE)
            wait_until(lambda: follower.status.is_ready)
            n_before = cloud.n_messages()
            cloud.write(named("h1"), named("h2"))
            leader.refresh()
            wait_until(lambda: cloud.n_messages() > n_before)
            assert leader.status.role is RelayRole.LEADER
    assert "Another relay has become the leader" not in caplog.text


def _restrict(cloud: RelayedCloud, folder: Path) -> list[str]:
    """Connect as `USER`, who may only read; return the names of the topics."""
    (folder / "password").write_text(PASSWORD)
    for option, value in {
        "bootstrap_servers": [cloud.kafka.sasl_servers],
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "PLAIN",
        "sasl_username": USER,
        "sasl_password_file": f"{folder}/password",
    }.items():
        cloud.conf.set_override(option, value, group="kafka")
    topics = [*topic_settings(cloud.conf)]
    cloud.kafka.allow_reading(topics)
    cloud.kafka.allow(
        [cloud.kafka.name], AclOperation.READ, resource=ResourceType.GROUP
    )
    return topics


def test_failing_source_removes_nothing_and_is_retried(cloud: RelayedCloud) -> None:
    cloud.write(named("h1"))
    with cloud.leader():
        pass
    path = Path(cloud.conf.moorage.inventory_file)
    good = path.read_text()
    path.write_text("[")
    with cloud.relay() as relay:
        wait_until(lambda: relay.status.trouble)
        assert str(path) in relay.status.trouble
        assert not relay.status.is_ready
        assert cloud.n_messages() == 1
        path.write_text(good)
        wait_until(lambda: relay.status.role is RelayRole.LEADER)
        assert relay.status.is_ready


def test_missing_topic_is_named_with_the_command_that_creates_it() -> None:
    with Kafka() as kafka:
        conf = load([], config_files=[])
        conf.set_override("bootstrap_servers", [kafka.servers], group="kafka")
        conf.set_override("topic_prefix", f"{kafka.name}-none", group="kafka")
        with pytest.raises(
            ConfigurationError, match=f"--topic {kafka.name}-none-hosts"
        ):
            Relay(conf, FileSource)
