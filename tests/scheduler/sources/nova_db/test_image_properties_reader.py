# SPDX-License-Identifier: Apache-2.0
"""Instances are counted by image properties where that is weighed, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.objects import ImageMeta, ImageMetaProps
from moorage.scheduler.hosts import HostTable, properties_of_image
from moorage.scheduler.sources.nova_db import image_properties_reader, schema

from ....conftest import instance_uuid
from ....fixtures.database_servers import Database
from .databases import INSTANCES, Nova, us

METADATA = schema.instance_system_metadata
MULTIPLIER = "image_props_weight_multiplier"
FULL_S = 300.0

pytestmark = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(None, id="sqlite"),
        pytest.param(Database.MARIADB, id="mariadb", marks=pytest.mark.database),
        pytest.param(Database.POSTGRESQL, id="postgresql", marks=pytest.mark.database),
    ],
)


class Cloud:
    """Hosts a and b, and a source of them with its table."""

    def __init__(self, nova: Nova, conf: cfg.ConfigOpts) -> None:
        self.nova, self.conf = nova, conf
        self.cell = nova.cells["cell1"]
        nova.host("a")
        nova.host("b")
        self.table, self.source = HostTable(), nova.source(conf)

    def start(self) -> None:
        self.source.start(self.table)

    def poll(self, *, after_s: float = 10.0) -> None:
        """Look as a decision does, when what was read before has settled."""
        self.nova.clock.now += after_s
        self.source.refresh_if_stale(self.table)

    def weigh(self, multiplier: float) -> None:
        self.conf.set_override(MULTIPLIER, multiplier, "filter_scheduler")

    def multiply(self, *hosts: str) -> int:
        """Make an aggregate of hosts that multiplies; return its id."""
        api = self.nova.api
        made = self.nova.insert(api, schema.aggregates, uuid="u", name="packed")
        for host in hosts:
            columns = {"host": host, "aggregate_id": made}
            self.nova.insert(api, schema.aggregate_hosts, **columns)
        metadata = {"key": MULTIPLIER, "value": "2", "aggregate_id": made}
        self.nova.insert(api, schema.aggregate_metadata, **metadata)
        return made

    def build(self, name: str, host: str, **properties: str | None) -> None:
        """Make an instance of an image."""
        self.keep(name, **properties)
        self.nova.instance(instance_uuid(name), host, updated_at=self.now)

    def keep(self, name: str, **properties: str | None) -> None:
        """Keep other properties of the image, as a rebuild does."""
        where = METADATA.c.instance_uuid == instance_uuid(name)
        self.nova.delete(self.cell, METADATA, where)
        kept = {
            "image_base_image_ref": "55555555",
            "image_mappings": "[]",
            "boot_roles": "member",
            **{f"image_{key}": value for key, value in properties.items()},
        }
        rows = [
            {"instance_uuid": instance_uuid(name), "key": k, "value": v, "deleted": 0}
            for k, v in kept.items()
        ]
        with self.cell.begin() as connection:
            connection.execute(METADATA.insert(), rows)

    def change(self, name: str, **columns: Any) -> None:
        """Change an instance's row now."""
        columns = {"updated_at": self.now, **columns}
        self.nova.change_instance(instance_uuid(name), **columns)

    @property
    def now(self) -> int:
        return int(self.nova.clock.now * 1_000_000)

    def counts(self, **properties: object) -> dict[str, float]:
        """Return how many (instance, property) pairs match the image, by host."""
        image = ImageMeta(properties=ImageMetaProps(**properties))
        requested = dict.fromkeys(properties_of_image(image), 1.0)
        batch = self.table.batch()
        sums = batch.sum_image_properties(requested).tolist()
        return {batch.value("host", i): n for i, n in enumerate(sums) if n}


@pytest.fixture
def cloud(
    tmp_path: Path, conf: cfg.ConfigOpts, kind: Database | None
) -> Iterator[Cloud]:
    conf.set_override("full_comparison_interval", FULL_S, "moorage")
    with Nova(tmp_path, kind=kind) as nova:
        made = Cloud(nova, conf)
        made.weigh(1.0)
        made.build("one", "a", os_distro="ubuntu", hw_disk_bus="virtio")
        made.build("two", "a", os_distro="ubuntu", architecture="x86_64")
        made.build("three", "b", os_distro="arch", os_type=None)
        yield made


def queries_of_metadata(engine: sa.Engine) -> list[str]:
    """Return a list that grows with each statement that reads system metadata."""
    seen: list[str] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def note(*arguments: object) -> None:
        if METADATA.name in str(arguments[2]):
            seen.append(str(arguments[2]))

    return seen


def test_what_instances_have_at_the_start_counts(cloud: Cloud) -> None:
    cloud.start()
    assert cloud.counts(os_distro="ubuntu", hw_disk_bus="virtio") == {"a": 3}
    assert cloud.counts(hw_architecture="x86_64") == {"a": 1}
    assert cloud.counts(os_distro="arch") == {"b": 1}


def test_nothing_is_read_while_it_is_not_weighed(cloud: Cloud) -> None:
    cloud.weigh(0.0)
    seen = queries_of_metadata(cloud.cell)
    cloud.start()
    cloud.poll(after_s=2 * FULL_S)
    assert (cloud.counts(os_distro="ubuntu"), seen) == ({}, [])


def test_polls_read_nothing_again_while_nothing_changes(cloud: Cloud) -> None:
    cloud.start()
    cloud.poll()
    seen = queries_of_metadata(cloud.cell)
    for _ in range(10):
        cloud.poll()
    assert seen == []


def test_instances_that_come_move_and_go_are_followed(cloud: Cloud) -> None:
    cloud.start()
    cloud.poll()
    cloud.build("four", "b", os_distro="ubuntu")
    cloud.poll()
    assert cloud.counts(os_distro="ubuntu") == {"a": 2, "b": 1}
    cloud.change("one", host="b", node="b")
    cloud.poll()
    assert cloud.counts(os_distro="ubuntu") == {"a": 1, "b": 2}
    assert cloud.counts(hw_disk_bus="virtio") == {"b": 1}
    cloud.change("two", deleted=99)
    cloud.poll()
    assert cloud.counts(os_distro="ubuntu") == {"b": 2}


def test_rebuilds_are_followed(cloud: Cloud) -> None:
    cloud.start()
    cloud.poll()
    cloud.change("one", node="a")
    cloud.keep("one", os_distro="arch")
    cloud.poll()
    assert cloud.counts(os_distro="ubuntu") == {"a": 1}
    assert cloud.counts(os_distro="arch") == {"a": 1, "b": 1}
    assert cloud.counts(hw_disk_bus="virtio") == {}
    cloud.keep("one")
    cloud.change("one", node="a")
    cloud.poll()
    assert cloud.counts(os_distro="arch") == {"b": 1}


def test_metadata_may_be_written_just_after_the_row(cloud: Cloud) -> None:
    cloud.start()
    cloud.poll()
    cloud.change("one", node="a")
    cloud.poll(after_s=0.1)
    cloud.keep("one", os_distro="arch")
    cloud.poll(after_s=1.0)
    assert cloud.counts(os_distro="arch") == {"a": 1, "b": 1}


def test_metadata_that_changed_alone_are_found_in_the_end(cloud: Cloud) -> None:
    cloud.start()
    cloud.poll(after_s=100.0)
    cloud.keep("one", os_distro="arch")
    cloud.poll()
    assert cloud.counts(os_distro="arch") == {"b": 1}
    cloud.poll(after_s=FULL_S)
    assert cloud.counts(os_distro="arch") == {"a": 1, "b": 1}


def test_aggregate_that_multiplies_makes_them_count(cloud: Cloud) -> None:
    cloud.weigh(0.0)
    cloud.start()
    cloud.multiply("a")
    cloud.poll()
    assert cloud.counts(os_distro="ubuntu") == {"a": 2}


def test_cell_is_read_once_where_none_multiplies_any_more(cloud: Cloud) -> None:
    cloud.weigh(0.0)
    made = cloud.multiply("a")
    cloud.start()
    api, c = cloud.nova.api, schema.aggregate_metadata.c
    cloud.nova.delete(api, schema.aggregate_metadata, c.aggregate_id == made)
    begun: list[object] = []
    for engine in (api, cloud.cell):
        sa.event.listen(engine, "begin", begun.append)
    cloud.poll()
    assert len(begun) == 2


def test_multiplier_set_at_a_reload_makes_them_count(cloud: Cloud) -> None:
    cloud.weigh(0.0)
    cloud.start()
    assert cloud.counts(os_distro="ubuntu") == {}
    cloud.weigh(-1.0)
    cloud.source.refresh(cloud.table)
    assert cloud.counts(os_distro="ubuntu") == {"a": 2}


def test_invalid_value_affects_no_other(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.build("bad", "a", os_distro="ubuntu", hw_disk_bus="nonsense")
    cloud.start()
    assert cloud.counts(os_distro="ubuntu") == {"a": 2}
    assert caplog.text.count(instance_uuid("bad")) == 1


def test_many_are_read_over_several_polls(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 2500
    uuids = [instance_uuid(i) for i in range(number)]
    with cloud.cell.begin() as connection:
        row = {"host": "b", "node": "b", "deleted": 0, "updated_at": us(-500)}
        connection.execute(INSTANCES.insert(), [{"uuid": u, **row} for u in uuids])
        kept = {"key": "image_os_type", "value": "linux", "deleted": 0}
        connection.execute(
            METADATA.insert(), [{"instance_uuid": u, **kept} for u in uuids]
        )
    monkeypatch.setattr(image_properties_reader, "_MAX_SHARE", 0.0)  # one chunk a poll
    cloud.start()
    assert cloud.counts(os_type="linux")["b"] < number
    for _ in range(number):
        cloud.poll()
        if cloud.counts(os_type="linux") == {"b": number}:
            break
    assert cloud.counts(os_type="linux") == {"b": number}
