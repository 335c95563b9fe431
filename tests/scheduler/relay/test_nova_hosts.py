# SPDX-License-Identifier: Apache-2.0
"""Schedulers behind a relay of nova's databases see what those that poll them see."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.kafka import KafkaSource
from moorage.scheduler.sources.nova_db import NovaDBSource, schema
from moorage.testing import image
from moorage.weighers.image_properties import ImagePropertiesWeigher

from ...conftest import instance_uuid, node_uuid, spec
from ...fixtures.kafka import Kafka
from ...fixtures.nova_rows import THEN, Rows
from ...fixtures.waiting import wait_until
from ..sources.nova_db.databases import NODES, SERVICES, Nova, us
from ..sources.nova_db.test_cells import Lost
from .test_relay import RelayedCloud

pytestmark = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]

N_HOSTS = 60
METADATA = schema.instance_system_metadata
MULTIPLIER = "image_props_weight_multiplier"
REQUEST = spec(image=image(os_distro="ubuntu", hw_disk_bus="virtio", hw_boot_menu=True))


class NovaCloud(RelayedCloud):
    """A nova of two cells, whose hosts are relayed."""

    def __init__(self, kafka: Kafka, folder: Path, nova: Nova) -> None:
        super().__init__(kafka, folder)
        self.nova = nova
        self.clock = nova.clock
        self.conf.set_override(MULTIPLIER, 1.0, "filter_scheduler")

    def source(self) -> NovaDBSource:
        return self.nova.source(self.conf)

    def polled(self) -> HostTable:
        """The table of a scheduler that has just read the databases."""
        table = HostTable()
        self.source().start(table)
        return table

    def read(self) -> HostTable:
        """The table of a scheduler that has just read the topics."""
        table = HostTable()
        source = KafkaSource(self.conf, clock=self.clock)
        source.start(table)
        source.stop()
        return table

    def weights(self, table: HostTable) -> dict[str, float]:
        """What ImagePropertiesWeigher returns, by node."""
        batch = table.batch()
        weights = ImagePropertiesWeigher(self.conf).weigh_all(batch, REQUEST).tolist()
        return dict(zip(batch.nodename, weights, strict=True))

    def keep_image(self, instance: str, **properties: str) -> None:
        """Write an instance's image properties in place of others."""
        cell = self.nova.cells["cell1"]
        self.nova.delete(cell, METADATA, METADATA.c.instance_uuid == instance)
        for name, text in properties.items():
            self.nova.insert(
                cell, METADATA,
                instance_uuid=instance, key=f"image_{name}", value=text, deleted=0,
            )  # fmt: skip

    def leading(self) -> Any:
        return self.leader(self.source)

    def fill(self, seed: int = 7) -> None:
        """Add hosts, instances and aggregates of all kinds."""
        rows = Rows(random.Random(seed), has_numa=0.6)
        for i in range(N_HOSTS):
            name, cell = f"host-{i}", f"cell{1 + i % 2}"
            self._add(rows, name, cell)
        self._add_aggregates(rows.rng)

    def _add(self, rows: Rows, name: str, cell: str) -> None:
        rng = rows.rng
        n_nodes = 3 if rng.random() < 0.1 else 1  # as Ironic has
        for number in range(n_nodes):
            nodename = name if n_nodes == 1 else f"{name}-{number}"
            made = rows.compute_node(name, nodename, THEN, uuid=node_uuid(nodename))
            written = us(rng.uniform(-60, 0))
            self._insert(cell, NODES, made, updated_at=written)
        seen_at = rng.choice([us(-5), us(-5), us(-5), us(-9000), None])
        self._insert(cell, SERVICES, rows.service(name, THEN), created_at=us(-99999),
                     updated_at=us(), last_seen_up=seen_at)  # fmt: skip
        for _ in range(rng.randrange(4)):
            uuid = rows.uuid()
            self.nova.instance(uuid, name, cell=cell)
            for row in rows.system_metadata(uuid, THEN):
                self._insert(cell, METADATA, row)

    def _insert(self, cell: str, table: sa.Table, row: Any, **changes: Any) -> None:
        columns = {n: v for n, v in row.items() if n in table.c} | changes
        self.nova.insert(self.nova.cells[cell], table, **columns)

    def _add_aggregates(self, rng: random.Random) -> None:
        api = self.nova.api
        for name in ("zone", "fast", "empty"):
            id_ = self.nova.insert(
                api, schema.aggregates, uuid=node_uuid(name), name=name
            )
            for i in rng.sample(range(N_HOSTS), 0 if name == "empty" else 20):
                self.nova.insert(
                    api, schema.aggregate_hosts, aggregate_id=id_, host=f"host-{i}"
                )
            for key in ("availability_zone", "ssd"):
                self.nova.insert(
                    api, schema.aggregate_metadata,
                    aggregate_id=id_, key=key, value=f"{name}-{key}",
                )  # fmt: skip


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[NovaCloud]:
    with Kafka() as kafka, Nova(tmp_path, "cell1", "cell2") as nova:
        yield NovaCloud(kafka, tmp_path, nova)


def contents(table: HostTable) -> dict[str, Any]:
    """All that a decision reads of a table."""
    found: dict[str, Any] = {}
    for state in table.batch():
        record = table.as_reported(state.uuid)
        assert record is not None
        if math.isnan(record.last_seen_up):  # that has no form in JSON
            record = dataclasses.replace(record, last_seen_up=0.0)
        images = table.instances.image_properties_of(record.host)
        instances = sorted(state.instances)
        found[state.uuid] = record, state.aggregates, instances, images
    return found | {"aggregates": sorted(table.aggregates, key=lambda a: a.id)}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[Any]:
    """The differences, short enough to read."""
    found: list[Any] = []
    for key in sorted(one.keys() | other.keys()):
        ours, theirs = one.get(key), other.get(key)
        if ours == theirs:
            continue
        if ours is None or theirs is None or key == "aggregates":
            found.append((key, ours, theirs))
            continue
        for field in dataclasses.fields(ours[0]):
            pair = getattr(ours[0], field.name), getattr(theirs[0], field.name)
            if pair[0] != pair[1]:
                found.append((key, field.name, *pair))
        if ours[1:] != theirs[1:]:
            found.append((key, ours[1:], theirs[1:]))
    return found


def test_all_columns_instances_and_aggregates_agree(cloud: NovaCloud) -> None:
    cloud.fill()
    with cloud.leading() as relay:
        assert relay.relay.status.notes == ()
        polled = contents(cloud.polled())
        assert len(polled) > N_HOSTS
        difference = lambda: differing(polled, contents(cloud.read()))  # noqa: E731 - as short as its use
        wait_until(
            lambda: difference() == [], describe=lambda: f"{difference()[:5]} differ"
        )
        weights = cloud.weights(cloud.polled())
        assert len(set(weights.values())) > 3, "the hosts' images differ"
        wait_until(lambda: cloud.weights(cloud.read()) == weights)


def test_rebuild_with_another_image_is_passed_on(cloud: NovaCloud) -> None:
    one = instance_uuid("one")
    cloud.nova.host("a", "cell1")
    cloud.nova.instance(one, "a", updated_at=us(-50))
    cloud.keep_image(one, os_distro="ubuntu")
    with cloud.leading():
        wait_until(lambda: cloud.weights(cloud.read()) == {"a": 1.0})
        cloud.keep_image(one, os_distro="arch")
        cloud.clock.now += 20
        cloud.nova.change_instance(one, updated_at=us(19))
        wait_until(lambda: cloud.weights(cloud.read()) == {"a": 0.0})


def test_heartbeats_are_passed_on_and_silence_stays_silence(cloud: NovaCloud) -> None:
    for name in ("up", "dead", "disabled", "forced"):
        cloud.nova.host(name)
    cloud.nova.beat("dead", -500)
    with cloud.leading() as relay:
        cloud.clock.now += 20
        cloud.nova.beat("up", 19)
        cloud.nova.beat("disabled", 19, disabled=True)
        cloud.nova.beat("forced", 19, forced_down=True)
        wait_until(
            lambda: differing(contents(cloud.read()), contents(cloud.polled())) == []
        )
        wait_until(lambda: relay.status.n_written == {"report": 6, "heartbeat": 1})
        before = cloud.n_messages()
    with cloud.leading() as relay:
        assert relay.status.n_written == {}, "a new leader saw no host since"
    assert cloud.n_messages() == before
    table = cloud.read()
    seen = {s.host: s.last_seen_up - cloud.clock.now for s in table.batch()}
    assert seen == {"up": -1, "dead": -520, "disabled": -1, "forced": -1}


def test_hosts_of_an_unreadable_cell_stay(cloud: NovaCloud, tmp_path: Path) -> None:
    cloud.nova.host("a", "cell1")
    cloud.nova.host("b", "cell2")
    with cloud.leading():
        pass
    lost = Lost(cloud.nova, tmp_path)
    lost.lose()
    cloud.nova.host("c", "cell1")
    with cloud.leading() as relay:
        wait_until(lambda: {s.host for s in cloud.read().batch()} == {"a", "b", "c"})
        assert any("cell2" in note for note in relay.status.notes)
        assert "cell2" in relay.status.text
        # Not after cell_grace either.
        cloud.clock.now += 1000
        cloud.nova.beat("a", 999)
        wait_until(lambda: relay.status.n_written["heartbeat"])
        assert {s.host for s in cloud.read().batch()} == {"a", "b", "c"}
        lost.find()
        cloud.clock.now += 1000  # it is read again after a while
        cloud.nova.delete(cloud.nova.cells["cell2"], NODES, NODES.c.host == "b")
        wait_until(lambda: {s.host for s in cloud.read().batch()} == {"a", "c"})


def test_older_state_of_another_replica_is_not_written(cloud: NovaCloud) -> None:
    cloud.nova.host("a", "cell1", vcpus=8)
    cloud.nova.beat("a", -5)
    cloud.nova.host("b", "cell1")
    with cloud.leading():
        pass
    # As the next leader reads it from a replica that lags behind.
    cloud.nova.change("a", vcpus=7, updated_at=us(-200))
    cloud.nova.beat("a", -15)
    with cloud.leading() as relay:
        table = cloud.read()
        assert {s.vcpus_total for s in table.batch([node_uuid("a")])} == {8}
        assert relay.status.n_written == {}
        cloud.nova.change("a", vcpus=9, updated_at=us())
        cloud.nova.beat("a", -4)
        wait_until(lambda: relay.status.n_written == {"report": 1})
        a = [node_uuid("a")]
        wait_until(lambda: {s.vcpus_total for s in cloud.read().batch(a)} == {9})


def test_instances_of_a_host_with_several_nodes_are_reported_once(
    cloud: NovaCloud,
) -> None:
    for number in (1, 2, 3):
        cloud.nova.node(f"n{number}", host="ironic", hypervisor_hostname=f"n{number}")
    cloud.nova.service("ironic")
    cloud.nova.instance(instance_uuid("a"), "ironic")
    with cloud.leading() as relay:
        one = {instance_uuid("a")}
        wait_until(lambda: cloud.read().instances.of_host("ironic") == one)
        cloud.nova.instance(instance_uuid("b"), "ironic", updated_at=us(1))
        wait_until(lambda: relay.status.n_written["report"] == 4)
        wait_until(lambda: len(cloud.read().instances.of_host("ironic")) == 2)
        # The node that reported them is removed: another one does.
        first = min(node_uuid(f"n{number}") for number in (1, 2, 3))
        cloud.nova.delete(cloud.nova.cells["cell1"], NODES, NODES.c.uuid == first)
        cloud.clock.now += 1000  # so that all rows are compared
        wait_until(lambda: len(cloud.read()) == 2)
        wait_until(lambda: len(cloud.read().instances.of_host("ironic")) == 2)
