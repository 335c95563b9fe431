# SPDX-License-Identifier: Apache-2.0
"""Schedulers announce their claims in a topic of a real broker."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import ConfigurationError, NoValidHost
from moorage.scheduler.kafka_client import claims_topic_settings
from moorage.scheduler.kafka_peers import KafkaPeers
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.testing import builders

from ..fixtures.clouds import first_row, host, new_uuids, selected, write_inventory
from ..fixtures.kafka import DedicatedKafka, Kafka, KafkaClient
from ..fixtures.placement_servers import EmbeddedPlacementFixture
from ..fixtures.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]


class Cloud:
    """A Placement, an inventory and a topic, for any number of schedulers."""

    def __init__(self, kafka: KafkaClient, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.kafka = kafka
        self.topic = f"{kafka.name}-claims"
        cells = builders.numa_topology(builders.numa_cell(0), builders.numa_cell(1))
        one = host("h1", numa_topology=cells.obj_to_primitive())
        self._path = write_inventory(folder, one)
        self._placement = stack.enter_context(EmbeddedPlacementFixture())
        seed(self._placement.client, providers(read_inventory(self._path)))

    def built(self) -> Scheduler:
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(self._path), group="moorage")
        conf.set_override("bootstrap_servers", [self.kafka.servers], group="kafka")
        conf.set_override("claims_topic", self.topic, group="kafka")
        scheduler = build(conf, placement=self._placement.adapter)
        self._stack.callback(scheduler.stop)
        return scheduler

    def schedulers(self) -> tuple[Scheduler, Scheduler]:
        """Return two that follow each other's claims."""
        here, there = self.built(), self.built()
        self.kafka.add_topics(claims_topic_settings(here.conf))
        for each in (here, there):
            each.start()
        wait_until(lambda: all(_is_following(each) for each in (here, there)))
        return here, there


def _is_following(scheduler: Scheduler) -> bool:
    """Return whether claims that are announced from now on are read."""
    peers = scheduler.lifecycle.peers
    return peers is not None and peers.is_following


def _counts(scheduler: Scheduler) -> dict[str, int]:
    return dict(scheduler.status.announcement_counts)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Kafka() as kafka, ExitStack() as stack:
        yield Cloud(kafka, tmp_path, stack)


def test_pinned_cpus_are_consumed_at_the_other_scheduler_once(cloud: Cloud) -> None:
    here, there = cloud.schedulers()
    cell = builders.guest_cell(pcpuset={0, 1, 2}, cpuset=set())
    [uuid] = new_uuids()
    guest = builders.guest_topology(cell)
    selected(here, uuid, numa_topology=guest, vcpus=3)
    wait_until(lambda: uuid in first_row(there).instances)
    pinned = [
        [set(cell.pinned_cpus) for cell in first_row(each).numa_topology.cells]
        for each in (here, there)
    ]
    assert pinned[0] == pinned[1]
    assert sum(len(each) for each in pinned[1]) == 3
    wait_until(lambda: _counts(here)["sent"] == 1)
    wait_until(lambda: _counts(there)["received"] == 1)
    assert _counts(here)["received"] == 0, "its own is not applied"


def test_what_another_scheduler_claimed_is_offered_no_more(cloud: Cloud) -> None:
    here, there = cloud.schedulers()
    for scheduler in (here, there):
        selected(scheduler, new_uuids()[0], vcpus=4)
    wait_until(lambda: first_row(there).num_instances == 2)
    with pytest.raises(NoValidHost):
        selected(there, new_uuids()[0], vcpus=4)
    assert not there.decisions.newest(1)[0].claims, "no claim had to be refused"


def test_doubled_and_unreadable_announcements_do_no_harm(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = cloud.schedulers()
    selected(here, new_uuids()[0], vcpus=2)
    wait_until(lambda: first_row(there).vcpus_used == 2)
    [(_, value)] = cloud.kafka.messages(cloud.topic)
    assert value is not None
    newer = json.dumps({**json.loads(value), "version": "2.0"}).encode()
    cloud.kafka.produce(cloud.topic, ("other", value))
    poison = [b"{", b"3", b"{}", None, newer]
    cloud.kafka.produce(cloud.topic, *(("other", each) for each in poison))
    both, n = (here, there), len(poison)
    wait_until(lambda: all(_counts(each)["unreadable"] == n for each in both))
    assert first_row(there).vcpus_used == 2, "none is added a second time"
    assert first_row(there).num_instances == 1
    assert caplog.text.count("cannot be read, the first at") == 2, "once each"


def test_announcement_that_is_read_too_late_is_not_applied(cloud: Cloud) -> None:
    conf = cloud.built().conf
    cloud.kafka.add_topics(
        claims_topic_settings(conf), **{"message.timestamp.type": "CreateTime"}
    )
    found: list[dict[str, Any]] = []
    peers = KafkaPeers(conf, found.extend, time.time, lambda: 600.0)
    peers.check()
    peers.start()
    wait_until(lambda: peers.is_following)
    for age_s, name in ((660, "late"), (500, "in time")):
        value = json.dumps({"version": "1.0", "claim": {"name": name}}).encode()
        sent_at = int((time.time() - age_s) * 1000)
        cloud.kafka.produce(cloud.topic, ("other", value), timestamp=sent_at)
    wait_until(lambda: peers.counts["received"])
    assert found == [{"name": "in time"}]
    assert peers.counts["outdated"] == 1
    peers.stop()


def test_claims_before_the_start_are_not_read(cloud: Cloud) -> None:
    here, _ = cloud.schedulers()
    [uuid] = new_uuids()
    selected(here, uuid)
    wait_until(lambda: _counts(here)["sent"] == 1)
    late = cloud.built()
    late.start()
    wait_until(lambda: _is_following(late))
    selected(here, new_uuids()[0])
    wait_until(lambda: _counts(late)["received"] == 1)
    assert uuid not in first_row(late).instances


def test_missing_topic_is_named_with_how_to_create_it(cloud: Cloud) -> None:
    scheduler = cloud.built()
    with pytest.raises(ConfigurationError) as raised:
        scheduler.start()
    assert f"--create --topic {cloud.topic}" in str(raised.value)


def test_stopped_broker_delays_no_decision(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with DedicatedKafka() as kafka, ExitStack() as stack:
        here, there = Cloud(kafka, tmp_path, stack).schedulers()
        kafka.kill()
        lost, another = new_uuids(2)
        selected(here, lost)
        selected(here, another)
        wait_until(lambda: _counts(here)["failed"] == 2)
        assert caplog.text.count("Claims cannot be announced") == 1
        kafka.restart()
        [uuid] = new_uuids()
        selected(here, uuid)
        wait_until(lambda: uuid in first_row(there).instances)
        assert lost not in first_row(there).instances
        wait_until(lambda: "Claims are announced again; 2 were not" in caplog.text)
