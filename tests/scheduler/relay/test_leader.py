# SPDX-License-Identifier: Apache-2.0
"""A relay of the reports that agents send over the message bus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from moorage.agent import Bus, Reporter
from moorage.scheduler.rpc import get_transport, register_opts
from moorage.scheduler.sources.push import PushSource
from moorage.testing.builders import host, instance_uuid

from ...fixtures.kafka import Kafka
from ...fixtures.rabbitmq import Broker
from ...fixtures.waiting import wait_until
from .test_relay import RelayedCloud, value

pytestmark = [
    pytest.mark.broker,
    pytest.mark.kafka,
    pytest.mark.deep,
    pytest.mark.xdist_group("kafka"),
]

A = instance_uuid("a")


class AgentCloud(RelayedCloud):
    """Topics, and a message bus with an agent."""

    def __init__(self, kafka: Kafka, folder: Path, broker: Broker) -> None:
        super().__init__(kafka, folder)
        register_opts(self.conf)
        self.conf.set_override("transport_url", broker.transport_url)
        store = f"sqlite:///{folder}/store.sqlite"
        self.conf.set_override("store_connection", store, group="moorage")
        self.transport = get_transport(cfg.ConfigOpts(), broker.transport_url)
        self.bus = Bus(self.transport, "agent")
        self.reporter = Reporter(self.bus.cast, reply=self.bus.reply)
        self.bus.serve(self.reporter.send_whole_report)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[AgentCloud]:
    with Kafka() as kafka, Broker() as broker:
        made = AgentCloud(kafka, tmp_path, broker)
        yield made
        made.bus.stop()
        made.transport.cleanup()


def test_reports_are_relayed_and_outlive_a_leader(cloud: AgentCloud) -> None:
    source = lambda: PushSource(cloud.conf)  # noqa: E731 - as short as its use
    with cloud.leader(source) as relay, cloud.scheduler() as table:
        wait_until(lambda: relay.status.is_ready)
        cloud.reporter.report(host(host="h1", vcpus_used=1), [A])
        wait_until(lambda: value(table, "h1", "vcpus_used") == 1)
        cloud.reporter.report(host(host="h1", vcpus_used=2), [A])
        wait_until(lambda: value(table, "h1", "vcpus_used") == 2)
        assert table.instances.of_host("h1") == {A}
    with cloud.scheduler() as table, cloud.leader(source) as relay:
        assert value(table, "h1", "vcpus_used") == 2
        wait_until(lambda: relay.status.is_ready)
        cloud.reporter.report(host(host="h1", vcpus_used=3), [])
        wait_until(lambda: value(table, "h1", "vcpus_used") == 3)
        assert table.instances.of_host("h1") == set()
