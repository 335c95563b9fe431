# SPDX-License-Identifier: Apache-2.0
"""A poll of unchanged databases reads no rows, and still misses no change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.hosts import HostTable

from ....conftest import instance_uuid, node_uuid
from ....fixtures.database_servers import Database
from .databases import (
    INSTANCES,
    NODES,
    SERVICES,
    Nova,
    contents,
    node,
    read_afresh,
    service,
    us,
)
from .test_changes import DATABASES

N_HOSTS = 100
N_INSTANCES = 300

pytestmark = DATABASES


class Idle:
    """A cell whose instances were all written at once, as after a migration."""

    def __init__(self, nova: Nova, conf: cfg.ConfigOpts) -> None:
        self.nova, self.conf = nova, conf
        hosts = [f"h{i}" for i in range(N_HOSTS)]
        unreported = {"updated_at": None, "free_disk_gb": None}
        with nova.cells["cell1"].begin() as connection:
            rows = [node(name) for name in hosts[1:]]
            connection.execute(NODES.insert(), [*rows, node("h0") | unreported])
            connection.execute(SERVICES.insert(), [service(name) for name in hosts])
            made = [
                {
                    "uuid": instance_uuid(i),
                    "host": hosts[i % N_HOSTS],
                    "updated_at": us(-30),
                    "deleted": 0,
                }
                for i in range(N_INSTANCES)
            ]
            connection.execute(INSTANCES.insert(), made)
        self.table, self.source = HostTable(), nova.source(conf)
        self.source.start(self.table)

    def poll(self, later: float = 0.0) -> None:
        self.nova.clock.now += later
        self.source.refresh_if_stale(self.table)

    def check(self) -> None:
        self.poll()
        assert contents(self.table) == read_afresh(self.nova, self.conf)

    @contextmanager
    def counted(self) -> Iterator[list[str]]:
        """Yield the queries of the cell, except sums."""
        statements: list[str] = []

        def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
            if not statement.startswith("SELECT count("):
                statements.append(statement)

        engine = self.nova.cells["cell1"]
        sa.event.listen(engine, "before_cursor_execute", note)
        yield statements
        sa.event.remove(engine, "before_cursor_execute", note)


@pytest.fixture
def idle(kind: Database, tmp_path: Path, conf: cfg.ConfigOpts) -> Iterator[Idle]:
    with Nova(tmp_path, kind=kind) as nova:
        yield Idle(nova, conf)


def test_poll_of_unchanged_tables_reads_only_sums(idle: Idle) -> None:
    for later in (0, 5):
        with idle.counted() as statements:
            idle.poll(later)
        assert statements == []


def test_only_the_instance_that_changed_is_read_again(idle: Idle) -> None:
    idle.nova.change_instance(instance_uuid(1), host="h7", updated_at=us())
    idle.check()
    with idle.counted() as statements:
        idle.poll()
    (query,) = statements
    (ids,) = re.findall(r"id IN \(([^)]*\)?s?)\)", query)
    assert "instances" in query
    assert "," not in ids


def test_instance_that_is_committed_late_is_found(idle: Idle) -> None:
    for later in (0, 20):
        idle.poll(later)
        idle.nova.instance(instance_uuid(f"late {later}"), "h1", updated_at=us(-60))
        idle.check()


def test_instance_that_is_deleted_without_a_new_time_is_gone(idle: Idle) -> None:
    for number, later in enumerate((0, 10, 20)):
        idle.poll(later)
        idle.nova.change_instance(instance_uuid(number), deleted=number + 1)
        idle.check()


def test_instance_that_moves_twice_in_a_second_is_followed(idle: Idle) -> None:
    for later in (0, 90):
        idle.poll(later)
        time = us(idle.nova.clock.now - us() / 1_000_000)
        for host in ("h7", "h8", "h9", "h7"):
            idle.nova.change_instance(instance_uuid(1), host=host, updated_at=time)
            idle.check()
            idle.nova.clock.now += 0.3


def test_instance_after_a_long_silence_is_found(idle: Idle) -> None:
    for later in (0, 1000):
        idle.poll(later)
        time = us(idle.nova.clock.now - us() / 1_000_000)
        idle.nova.instance(instance_uuid(f"new {later}"), "h1", updated_at=time)
        idle.check()


def test_many_changes_after_a_silence_are_found(idle: Idle) -> None:
    idle.poll(100)
    idle.nova.update(
        idle.nova.cells["cell1"],
        INSTANCES,
        INSTANCES.c.host == "h2",
        host="h3",
        updated_at=us(100),
    )
    idle.check()


def test_nodes_that_change_again_and_again_are_followed(idle: Idle) -> None:
    idle.poll(10)
    for hosts in (("h1", "h2", "h3"), ("h3", "h4", "h5"), ("h6",)):
        for number, host in enumerate(hosts):
            idle.nova.change(host, vcpus_used=number + 1, updated_at=us(10))
        idle.check()


def test_node_that_reports_without_a_time_comes(idle: Idle) -> None:
    idle.poll(10)
    idle.nova.change("h0", free_disk_gb=7)
    idle.check()
    assert idle.table.has_node(node_uuid("h0"))
    idle.nova.change("h0", free_disk_gb=9)
    idle.check()


def test_host_whose_service_comes_back_is_as_it_was(idle: Idle) -> None:
    idle.poll(10)
    before = contents(idle.table)
    where = SERVICES.c.host == "h5"
    idle.nova.update(idle.nova.cells["cell1"], SERVICES, where, deleted=1)
    idle.check()
    assert not idle.table.has_node(node_uuid("h5"))
    idle.nova.update(idle.nova.cells["cell1"], SERVICES, where, deleted=0)
    idle.check()
    assert contents(idle.table) == before
