# SPDX-License-Identifier: Apache-2.0
"""Hosts have the launches of their instances if lifetimes are used, and only then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.hosts import Consumption, HostTable, Launch, Launches

from ....conftest import NOW, instance_uuid, node_uuid
from ....fixtures.database_servers import Database
from .databases import Nova, us

pytestmark = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(None, id="sqlite"),
        pytest.param(Database.MARIADB, id="mariadb", marks=pytest.mark.database),
        pytest.param(Database.POSTGRESQL, id="postgresql", marks=pytest.mark.database),
    ],
)


def launch(at: float, image: str = "", project: str = "p") -> Launch:
    return int(NOW + at), project, 2, 4096, image


class Cloud:
    """Hosts a, with two instances, and b, with none; and a source of them."""

    def __init__(self, nova: Nova, conf: cfg.ConfigOpts) -> None:
        self.nova, self.conf = nova, conf
        nova.host("a")
        nova.host("b")
        self.build("one", "a", -500.5, image_ref="image")
        self.build("two", "a", -900.0)
        self.table, self.source = HostTable(nova.clock), nova.source(conf)

    def use_lifetimes(self, model: str = "lifetimes.json") -> None:
        self.conf.set_override("lifetime_model", model, "filter_scheduler")

    def build(self, name: str, host: str | None, at: float, **columns: Any) -> None:
        columns = {"project_id": "p", "vcpus": 2, "memory_mb": 4096, **columns}
        now_us = int(self.nova.clock.now * 1_000_000)
        self.nova.instance(
            instance_uuid(name),
            host,
            created_at=us(at),
            updated_at=now_us,
            **{"image_ref": "", **columns},
        )

    def poll(self) -> None:
        self.nova.clock.now += 10
        self.source.refresh_if_stale(self.table)

    @property
    def launches(self) -> dict[str, Launches | None]:
        rows = self.table.batch()
        return dict(zip(rows.host.tolist(), rows.launches.tolist(), strict=True))


@pytest.fixture
def cloud(
    tmp_path: Path, conf: cfg.ConfigOpts, kind: Database | None
) -> Iterator[Cloud]:
    with Nova(tmp_path, kind=kind) as nova:
        yield Cloud(nova, conf)


BOTH = (launch(-900.0), launch(-501, "image"))


def test_launches_follow_the_instances(cloud: Cloud) -> None:
    cloud.use_lifetimes()
    cloud.source.start(cloud.table)
    assert cloud.launches == {"a": BOTH, "b": ()}
    cloud.build("three", "b", 5.0, project_id="other")
    now_us = us(11)
    cloud.nova.change_instance(
        instance_uuid("one"), image_ref="other", updated_at=now_us
    )
    cloud.poll()
    rebuilt = (launch(-900.0), launch(-501, "other"))
    assert cloud.launches == {"a": rebuilt, "b": (launch(5.0, project="other"),)}
    cloud.nova.change_instance(instance_uuid("two"), host="b", updated_at=us(21))
    cloud.nova.change_instance(instance_uuid("three"), deleted=1, updated_at=us(21))
    cloud.poll()
    assert cloud.launches == {"a": rebuilt[1:], "b": rebuilt[:1]}
    # A node's new row has them, too.
    cloud.nova.change("a", updated_at=us(30), vcpus_used=7)
    cloud.poll()
    rows = cloud.table.batch()
    used = dict(zip(rows.host.tolist(), rows.vcpus_used.tolist(), strict=True))
    assert used == {"a": 7, "b": 2}
    assert cloud.launches == {"a": rebuilt[1:], "b": rebuilt[:1]}


def test_claim_is_a_launch_in_addition_to_those_that_are_read(cloud: Cloud) -> None:
    cloud.use_lifetimes()
    cloud.source.start(cloud.table)
    group = ("q", 1, 1, "")
    claim = Consumption(memory_mb=1, disk_mb=1, vcpus=1, group=group)
    cloud.table.claims.consume(node_uuid("b"), instance_uuid("four"), claim)
    claimed = (int(NOW), *group)
    cloud.build("three", "b", -5.0)
    cloud.poll()
    assert cloud.launches["b"] == (launch(-5.0), claimed)
    cloud.table.claims.release("b", instance_uuid("four"))
    assert cloud.launches["b"] == (launch(-5.0),)


def test_host_with_an_instance_of_unknown_size_has_unknown_launches(
    cloud: Cloud,
) -> None:
    cloud.use_lifetimes()
    cloud.build("odd", "a", -5.0, vcpus=None)
    cloud.source.start(cloud.table)
    assert cloud.launches == {"a": None, "b": ()}


def test_launches_are_read_once_a_model_is_named(cloud: Cloud) -> None:
    cloud.source.start(cloud.table)
    unknown = {"a": None, "b": None}
    assert cloud.launches == unknown
    cloud.use_lifetimes()
    cloud.source.refresh(cloud.table)  # as SIGHUP does
    assert cloud.launches == {"a": BOTH, "b": ()}
    cloud.use_lifetimes("")
    cloud.source.refresh(cloud.table)
    assert cloud.launches == unknown


def test_launches_are_read_if_a_poll_runs_while_a_model_is_named(cloud: Cloud) -> None:
    cloud.source.start(cloud.table)
    is_polling, may_end = threading.Event(), threading.Event()

    def wait(*_args: object) -> None:
        if not is_polling.is_set():
            is_polling.set()
            assert may_end.wait(60)

    sa.event.listen(cloud.nova.cells["cell1"], "before_cursor_execute", wait)
    poll = threading.Thread(target=cloud.poll)
    poll.start()
    assert is_polling.wait(60)
    cloud.use_lifetimes()
    reload = threading.Thread(target=cloud.source.refresh, args=[cloud.table])
    reload.start()
    reload.join(0.3)  # it waits for the poll
    may_end.set()
    poll.join(60)
    reload.join(60)
    assert cloud.launches == {"a": BOTH, "b": ()}
