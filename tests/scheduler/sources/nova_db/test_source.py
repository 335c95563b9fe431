# SPDX-License-Identifier: Apache-2.0
"""The source as a scheduler uses it: start, shared polls, aggregates."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy.pool import StaticPool

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.instances import InstanceState
from moorage.scheduler.polling.engines import with_time_limits
from moorage.scheduler.polling.polled_database import SharedRefresh
from moorage.scheduler.service import build
from moorage.scheduler.sources.nova_db import NovaDBSource, from_conf, schema
from moorage.scheduler.sources.nova_db.directory import fill_template

from ....conftest import instance_uuid, node_uuid
from ....fixtures.database_servers import Database
from ....fixtures.ports import refusing_url
from .databases import INSTANCES, NODES, SERVICES, Nova, cell_uuid, node, service, us

WAIT_S = 30.0


@pytest.fixture
def nova(tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path) as nova:
        nova.host("a")
        yield nova


# -- start -----------------------------------------------------------------------------


def test_api_database_that_cannot_be_read_stops_the_start(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    empty = sa.create_engine("sqlite://")
    with pytest.raises(ConfigurationError, match=r"\[api_database\] connection.*cell_"):
        nova.source(conf, api=empty).start(HostTable())


def test_api_database_that_is_lost_later_changes_nothing(
    nova: Nova, conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    table, source = HostTable(), nova.source(conf)
    source.start(table)
    nova.api.dispose()
    (tmp_path / "api.sqlite").rename(tmp_path / "lost")
    nova.host("b")
    source.refresh_if_stale(table)
    assert len(table) == 2
    (note,) = source.notes()
    assert "API database" in note
    with pytest.raises(ConfigurationError):
        source.refresh(table)
    assert len(table) == 2


def test_missing_api_connection_is_named(conf: cfg.ConfigOpts) -> None:
    with pytest.raises(ConfigurationError, match=r"\[api_database\] connection is not"):
        from_conf(conf)


@pytest.mark.parametrize("connection", ["nonsense", "nosuch://host/db"])
def test_wrong_api_connection_is_named(conf: cfg.ConfigOpts, connection: str) -> None:
    conf.set_override("connection", connection, group="api_database")
    with pytest.raises(ConfigurationError, match=r"\[api_database\] connection"):
        from_conf(conf)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(None, id="sqlite"),
        pytest.param(Database.MARIADB, id="mariadb", marks=pytest.mark.database),
        pytest.param(Database.POSTGRESQL, id="postgresql", marks=pytest.mark.database),
    ],
)
def test_scheduler_reads_the_databases_that_its_options_name(
    conf: cfg.ConfigOpts, tmp_path: Path, kind: Database | None
) -> None:
    with Nova(tmp_path, kind=kind) as nova:
        nova.host("a")
        conf.set_override("connection", nova.connections["api"], group="api_database")
        conf.set_override("source", "nova_db", group="moorage")
        conf.set_override("refresh_interval", 0, group="moorage")
        conf.set_override("endpoint_override", refusing_url(), group="placement")
        scheduler = build(conf)
        source = from_conf(conf)
        table = HostTable()
        try:
            source.start(table)
            nova.host("b")
            source.refresh_if_stale(table)
            assert sorted(host.nodename for host in table.batch()) == ["a", "b"]
        finally:
            source.stop()
            scheduler.stop()


def test_options_may_come_with_the_scheduler(nova: Nova, conf: cfg.ConfigOpts) -> None:
    source = NovaDBSource(nova.api, lambda connection: nova.engines[connection])
    with pytest.raises(RuntimeError):
        source.start(HostTable())
    source.adopt(conf)
    table = HostTable()
    source.start(table)
    assert len(table) == 1


def test_databases_in_memory_are_read(conf: cfg.ConfigOpts) -> None:
    def in_memory(metadata: sa.MetaData) -> sa.Engine:
        engine = sa.create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        metadata.create_all(engine)
        return engine

    api, cell = in_memory(schema.API), in_memory(schema.CELL)
    with api.begin() as connection:
        row = {"uuid": cell_uuid("x"), "database_connection": "x", "disabled": False}
        connection.execute(schema.cell_mappings.insert().values(row))
    source = NovaDBSource(api, lambda _: cell, conf=conf, refresh_interval=0.01)
    table = HostTable()
    source.start(table)
    source.start_polling(table)
    with cell.begin() as connection:
        connection.execute(NODES.insert().values(node("a")))
        connection.execute(SERVICES.insert().values(service("a")))
    source.refresh_if_stale(table)
    assert table.has_node(node_uuid("a"))
    source.stop()


# -- polls -----------------------------------------------------------------------------


def _count(engine: sa.Engine) -> list[str]:
    """Return a list that grows by each statement about compute nodes."""
    seen: list[str] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def note(_link: object, _cursor: object, statement: str, *_rest: object) -> None:
        if "compute_nodes" in statement:
            seen.append(statement)

    return seen


def test_same_missing_nodes_are_read_once_a_second(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    table, source = HostTable(), nova.source(conf)
    source.start(table)
    seen = _count(nova.cells["cell1"])
    for _ in range(3):
        source.refresh_if_stale(table, [node_uuid("x")])
    assert len(seen) == 1
    source.refresh_if_stale(table, [node_uuid("x"), node_uuid("y")])
    assert len(seen) == 2
    nova.clock.now += 1
    source.refresh_if_stale(table, [node_uuid("x")])
    assert len(seen) == 3


def test_callers_share_a_poll_that_began_after_their_calls() -> None:
    shared, n_runs = SharedRefresh(), 0
    is_under_way, may_end = threading.Event(), threading.Event()

    def work() -> None:
        nonlocal n_runs
        n_runs += 1
        is_under_way.set()
        assert may_end.wait(WAIT_S)

    first = threading.Thread(target=shared.run, args=(work,))
    first.start()
    assert is_under_way.wait(WAIT_S)
    others = [threading.Thread(target=shared.run, args=(work,)) for _ in range(8)]
    for thread in others:
        thread.start()
    may_end.set()
    for thread in (first, *others):
        thread.join(WAIT_S)
        assert not thread.is_alive()
    # Callers since its start need another one; most of them share it.
    assert 2 <= n_runs <= 9


def test_failed_poll_does_not_stop_the_next_one() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    shared = SharedRefresh()
    with pytest.raises(ZeroDivisionError):
        shared.run(fail)
    done: list[int] = []
    shared.run(lambda: done.append(1))
    assert done


def test_decisions_at_the_same_time_see_what_was_there(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    table, source = HostTable(), nova.source(conf)
    source.start(table)
    lock, failures = threading.Lock(), []

    def decide(number: int) -> None:
        for i in range(10):
            with lock:  # SQLite lets one write at a time
                nova.host(f"h{number}-{i}")
            source.refresh_if_stale(table)
            if not table.has_node(node_uuid(f"h{number}-{i}")):
                failures.append((number, i))

    threads = [threading.Thread(target=decide, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert failures == []
    assert len(table) == 41


# -- aggregates ------------------------------------------------------------------------


def test_aggregates_follow_the_database(nova: Nova, conf: cfg.ConfigOpts) -> None:
    table, source = HostTable(), nova.source(conf)

    def read() -> dict[str, tuple[list[str], dict[str, str]]]:
        source.refresh_if_stale(table)
        return {a.name: (sorted(a.hosts), dict(a.metadata)) for a in table.aggregates}

    hosts, metadata = schema.aggregate_hosts, schema.aggregate_metadata
    one = nova.insert(nova.api, schema.aggregates, name="one", uuid=cell_uuid("one"))
    nova.insert(nova.api, hosts, aggregate_id=one, host="a")
    source.start(table)
    assert read() == {"one": (["a"], {})}
    (host,) = table.batch()
    assert [a.name for a in host.aggregates] == ["one"]
    nova.insert(nova.api, metadata, aggregate_id=one, key="ssd", value="yes")
    nova.insert(nova.api, hosts, aggregate_id=one, host="b")
    assert read() == {"one": (["a", "b"], {"ssd": "yes"})}
    nova.update(nova.api, metadata, metadata.c.key == "ssd", value="no")
    nova.delete(nova.api, hosts, hosts.c.host == "a")
    assert read() == {"one": (["b"], {"ssd": "no"})}
    table.drop_aggregate(one)  # as a cast that is wrong would
    assert read() == {"one": (["b"], {"ssd": "no"})}
    nova.delete(nova.api, schema.aggregates, schema.aggregates.c.id == one)
    assert read() == {}


def test_instances_are_those_of_the_database(nova: Nova, conf: cfg.ConfigOpts) -> None:
    nova.instance("1", "a")
    nova.instance("2", None)
    nova.instance("3", "a", deleted=3)
    table, source = HostTable(), nova.source(conf)
    source.start(table)
    assert table.instances.of_host("a") == {"1"}
    nova.change_instance("2", host="a", updated_at=us(1))
    nova.delete(nova.cells["cell1"], INSTANCES, INSTANCES.c.uuid == "1")
    source.refresh_if_stale(table)
    assert table.instances.of_host("a") == {"2"}


# -- URLs ------------------------------------------------------------------------------

LOCAL = "mysql+pymysql://nova:s3@db.local:3307/nova?charset=utf8#x"


@pytest.mark.parametrize(
    ("template", "local", "url"),
    [
        ("{scheme}://{username}:{password}@{hostname}:{port}/{path}_cell1?{query}",
         LOCAL, "mysql+pymysql://nova:s3@db.local:3307/nova_cell1?charset=utf8"),
        ("{scheme}://u@{hostname}/c#{fragment}", LOCAL, "mysql+pymysql://u@db.local/c#x"),
        ("{scheme}://{username2}@{hostname1},{hostname2}:{port2}/{path}",
         "kind://a@one,b:p@two:9/n", "kind://b@one,two:9/n"),
        ("plain://u@h/d", LOCAL, "plain://u@h/d"),
        ("{scheme}://h/d", None, "{scheme}://h/d"),
        ("{nosuch}://h/d", LOCAL, "{nosuch}://h/d"),
        ("{", LOCAL, "{"),
    ],
)  # fmt: skip
def test_templates_are_filled_as_nova_fills_them(
    template: str, local: str | None, url: str
) -> None:
    assert fill_template(template, local) == url


@pytest.mark.parametrize(
    ("url", "limits"),
    [
        ("mysql+pymysql://h/d",
         {"connect_timeout": "3", "read_timeout": "3", "write_timeout": "3"}),
        ("mysql+pymysql://h/d?read_timeout=9",
         {"connect_timeout": "3", "read_timeout": "9", "write_timeout": "3"}),
        ("postgresql+psycopg2://h/d",
         {"connect_timeout": "3", "tcp_user_timeout": "2500",
          "options": "-c statement_timeout=2500"}),
        ("sqlite:////tmp/x", {}),
    ],
)  # fmt: skip
def test_database_drivers_get_timeouts(url: str, limits: dict[str, str]) -> None:
    assert dict(with_time_limits(url, 2.5).query) == limits


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"host": "a"}, InstanceState.ON_HOST),
        ({"host": None}, InstanceState.PENDING),
        ({"host": None, "vm_state": "building"}, InstanceState.PENDING),
        ({"host": None, "vm_state": "error"}, InstanceState.GONE),
        ({"host": None, "vm_state": "shelved_offloaded"}, InstanceState.GONE),
        ({"host": None, "vm_state": "shelved_offloaded", "task_state": "unshelving"},
         InstanceState.PENDING),
        ({"host": "a", "hidden": True}, InstanceState.PENDING),
        ({"host": "a", "deleted": 7}, InstanceState.GONE),
        (None, InstanceState.PENDING),
    ],
    ids=["on a host", "being built", "still being built", "failed", "shelved",
         "being unshelved", "copy in another cell", "deleted", "not known"],
)  # fmt: skip
def test_instance_is_located_by_its_row(
    nova: Nova, conf: cfg.ConfigOpts, row: dict[str, Any] | None, state: InstanceState
) -> None:
    source, uuid = nova.source(conf), instance_uuid(99)
    source.start(HostTable())
    if row is not None:
        nova.insert(nova.cells["cell1"], INSTANCES, uuid=uuid, updated_at=us(), **row)
    found = source.locate_instance(uuid)
    assert found.state is state
    assert found.host == ("a" if state is InstanceState.ON_HOST else "")


@pytest.mark.parametrize(
    ("task_state", "is_settled"),
    [(None, True), ("rebuilding", False), ("resize_prep", False)],
    ids=["no task", "evacuated", "resized"],
)
def test_instance_without_a_task_stays_on_its_host(
    nova: Nova, conf: cfg.ConfigOpts, task_state: str | None, is_settled: bool
) -> None:
    source, uuid = nova.source(conf), instance_uuid(99)
    source.start(HostTable())
    nova.insert(
        nova.cells["cell1"],
        INSTANCES,
        uuid=uuid,
        host="a",
        task_state=task_state,
        updated_at=us(),
    )
    assert source.locate_instance(uuid).is_settled is is_settled


@pytest.mark.parametrize(
    ("cell", "changes", "state"),
    [
        (None, {}, InstanceState.PENDING),
        (cell_uuid("cell1"), {}, InstanceState.PENDING),
        (schema.CELL0, {}, InstanceState.GONE),
        (None, {"queued_for_delete": True}, InstanceState.GONE),
    ],
    ids=["being scheduled", "scheduled", "not scheduled", "deleted"],
)
def test_instance_without_a_row_is_located_by_its_mapping(
    nova: Nova,
    conf: cfg.ConfigOpts,
    cell: str | None,
    changes: dict[str, Any],
    state: InstanceState,
) -> None:
    source, uuid = nova.source(conf), instance_uuid(99)
    source.start(HostTable())
    cells = schema.cell_mappings.c
    with nova.api.begin() as connection:
        cell_id = connection.scalar(sa.select(cells.id).where(cells.uuid == cell))
    nova.insert(
        nova.api,
        schema.instance_mappings,
        instance_uuid=uuid,
        project_id="project",
        cell_id=cell_id,
        **changes,
    )
    assert source.locate_instance(uuid).state is state


def test_instance_is_nowhere_known_while_a_cell_does_not_answer(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    source = nova.source(conf)
    source.start(HostTable())
    with nova.cells["cell1"].begin() as connection:
        connection.execute(sa.text("DROP TABLE instances"))
    assert source.locate_instance(instance_uuid(99)).state is InstanceState.UNKNOWN
