# SPDX-License-Identifier: Apache-2.0
"""An agent's reports over Kafka: where they go, and what happens without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from oslo_config import cfg

from moorage.agent import BusUnavailable, KafkaBus, Reporter
from moorage.scheduler.kafka_client import TopicNames
from moorage.testing.builders import host, node_uuid

from ..fixtures.agent_process import AgentProcess
from ..fixtures.kafka import DedicatedKafka, Kafka
from ..fixtures.ports import free_port
from ..fixtures.waiting import wait_until

NODE = node_uuid("h1")
broker = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]


def on_kafka(cases: Any) -> Any:
    """Mark a test that uses a broker."""
    for mark in broker:
        cases = mark(cases)
    return cases


def _decoded(messages: list[tuple[str | None, bytes | None]]) -> list[Any]:
    return [(key, json.loads(value or b"null")) for key, value in messages]


@on_kafka
def test_reports_and_heartbeats_have_topics_of_their_own(conf: cfg.ConfigOpts) -> None:
    with Kafka() as kafka:
        kafka.configure(conf)
        bus = KafkaBus(conf)
        reporter = Reporter(bus.cast, sends_deltas=False)
        for used in (1, 1, 2):
            reporter.report(host(host="h1", vcpus_used=used))
        bus.remove(NODE.upper())
        hosts = _decoded(kafka.messages(TopicNames.of(conf).hosts))
        assert [key for key, _ in hosts] == [NODE] * 3
        data = [each["moorage_object.data"] for _, each in hosts if each]
        assert [(d["revision"], d["vcpus_used"]) for d in data] == [(1, 1), (2, 2)]
        assert hosts[-1] == (NODE, None)
        [(key, heartbeat)] = _decoded(kafka.messages(TopicNames.of(conf).heartbeats))
        assert key == NODE
        assert heartbeat["moorage_object.name"] == "HostDelta"
        assert heartbeat["moorage_object.data"]["revision"] == 1


@on_kafka
def test_partition_is_that_of_kafkas_own_tools(conf: cfg.ConfigOpts) -> None:
    with Kafka() as kafka:
        kafka.configure(conf)
        nodes = [node_uuid(f"h{i}") for i in range(20)]
        bus = KafkaBus(conf)
        for node in nodes:
            bus.remove(node)
        found = kafka.partitions(TopicNames.of(conf).hosts)
        expected = {n: confluent_kafka.murmur2(n.encode(), 3) for n in nodes}
        assert found == expected


@on_kafka
def test_newest_state_is_sent_once_a_broker_is_back(conf: cfg.ConfigOpts) -> None:
    with DedicatedKafka() as kafka:
        kafka.configure(conf)
        conf.set_override("timeout", 1.0, group="kafka")
        reporter = Reporter(KafkaBus(conf).cast, sends_deltas=False)

        def is_sent(used: int) -> bool:
            try:
                reporter.report(host(host="h1", vcpus_used=used))
            except BusUnavailable:
                return False
            return True

        wait_until(lambda: is_sent(1))
        kafka.kill()
        for used in (2, 3):
            with pytest.raises(BusUnavailable, match=kafka.servers):
                reporter.report(host(host="h1", vcpus_used=used))
        kafka.restart()
        wait_until(lambda: is_sent(4))
        hosts = _decoded(kafka.messages(TopicNames.of(conf).hosts))
        states = [each["moorage_object.data"]["vcpus_used"] for _, each in hosts]
        assert (states[0], states[-1]) == (1, 4)
        assert states == sorted(states), "nothing goes back in time"


def test_changes_without_the_whole_report_are_refused(conf: cfg.ConfigOpts) -> None:
    conf.set_override("bootstrap_servers", [f"127.0.0.1:{free_port()}"], group="kafka")
    bus = KafkaBus(conf)
    sent: list[Any] = []
    reporter = Reporter(sent.extend)
    for used in (1, 2):
        reporter.report(host(host="h1", vcpus_used=used))
    with pytest.raises(ValueError, match="whole reports only"):
        bus.cast(sent)


def _file(folder: Path, servers: str, *lines: str) -> Path:
    file = folder / "agent.conf"
    parts = [
        *("[agent]", "transport = kafka", "interval = 0.1"),
        f"node_uuid_file = {folder}/uuid",
        *("[kafka]", f"bootstrap_servers = {servers}", "timeout = 0.5", *lines),
    ]
    file.write_text("\n".join(parts))
    return file


def test_agent_without_a_broker_goes_on_and_can_be_stopped(tmp_path: Path) -> None:
    servers = f"127.0.0.1:{free_port()}"
    with AgentProcess(_file(tmp_path, servers)) as agent:
        wait_until(
            lambda: any(servers in line for line in agent.log),
            describe=lambda: "".join(agent.log),
        )
        assert agent.stop() == 0
    assert "Traceback" not in "".join(agent.log)


@on_kafka
def test_agent_repeats_its_whole_report(conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    with Kafka() as kafka:
        kafka.configure(conf)
        topics = [f"{n} = {v}" for n, v in kafka.options().items() if "topic" in n]
        again = ["[agent]", "whole_report_interval = 1"]
        with AgentProcess(_file(tmp_path, kafka.servers, *topics, *again)):
            topic = TopicNames.of(conf).hosts

            def revisions() -> list[int]:
                found = _decoded(kafka.messages(topic))
                return [each["moorage_object.data"]["revision"] for _, each in found]

            # Free memory changes as well, which is another revision.
            def is_repeated() -> bool:
                found = revisions()
                return len(found) > len(set(found))

            wait_until(is_repeated, interval_s=0.2)
