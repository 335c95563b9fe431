# SPDX-License-Identifier: Apache-2.0
"""The store, on each database that it may be."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from moorage.scheduler.database import StoreUnavailable, StoreUnusable
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.sources.push.store import METADATA, HostStore
from moorage.scheduler.sources.report_columns import report_values
from moorage.scheduler.sources.reported.revisions import ReportedNode
from moorage.testing.builders import NOW, host, instance_uuid

from ....fixtures.database_servers import (
    STORE_DATABASES,
    Database,
    database_server,
    store_database,
)
from ....fixtures.ports import free_port

ONE, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
A = instance_uuid("a")
#: What certainly arrived after ONE, regardless of the clock.
SUCCESSOR = {"incarnation": OTHER, "earlier": (ONE,)}


@pytest.fixture(params=STORE_DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, which is dropped after."""
    with store_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def store(database: str) -> Iterator[HostStore]:
    made = HostStore(database)
    made.upgrade()
    yield made
    made.close()


def held(name: str, revision: int = 1, **changes: Any) -> tuple[str, ReportedNode]:
    """Return the UUID and the state of a host of that name."""
    its = {"incarnation": ONE, "seen_at": NOW, "instances": {A}, **changes}
    record = host(host=name, stats={"é": "☃"})
    return record.uuid, ReportedNode(
        revision=revision, data=report_values(record), **its
    )


def kept(store: HostStore) -> dict[str, ReportedNode]:
    return {record.uuid: its for its, record in store.load()}


def rows(url: str, statement: str) -> Any:
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            answer = connection.execute(sa.text(statement))
            return answer.all() if answer.returns_rows else None
    finally:
        engine.dispose()


def test_hosts_are_read_as_they_were_written(store: HostStore) -> None:
    images = {A: frozenset({("os_type", "linux")}), ONE: frozenset()}
    hosts = dict(held(f"h{i}", i, image_properties=images) for i in range(400))
    store.write(hosts)
    for uuid_, its in kept(store).items():
        its.stored_at = 0.0
        assert its == hosts.pop(uuid_)
    assert hosts == {}
    (_, record), *_ = store.load()
    assert record.last_seen_up == NOW
    assert record.stats == {"é": "☃"}


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        ({"revision": 1}, {"revision": 2}, "second"),
        ({"revision": 2}, {"revision": 1, "seen_at": NOW + 9}, "first"),
        ({"revision": 2}, {"revision": 2, "seen_at": NOW + 9}, "second"),
        ({"revision": 2}, {"revision": 2, "seen_at": NOW - 9}, "first"),
        ({"revision": 9}, {"incarnation": OTHER, "seen_at": NOW + 9}, "second"),
        ({"revision": 1}, {"incarnation": OTHER, "seen_at": NOW - 9}, "first"),
        ({"revision": 9}, {**SUCCESSOR, "seen_at": NOW - 3600}, "second"),
        ({**SUCCESSOR, "revision": 1}, {"revision": 9, "seen_at": NOW - 9}, "first"),
    ],
)
def test_newer_state_wins(
    store: HostStore, first: dict[str, Any], second: dict[str, Any], wins: str
) -> None:
    """Two schedulers that share a store may write in any order."""
    for each in (first, second):
        store.write(dict([held("h1", **each)]))
    uuid_, won = held("h1", **{"first": first, "second": second}[wins])
    its = kept(store)[uuid_]
    assert (its.incarnation, its.revision, its.seen_at) == (
        won.incarnation,
        won.revision,
        won.seen_at,
    )


def test_forgotten_host_is_deleted_unless_another_saw_it(store: HostStore) -> None:
    hosts = dict([held("h1"), held("h2", seen_at=NOW + 100)])
    store.write(hosts)
    store.delete(hosts, NOW + 50)
    assert list(kept(store)) == [held("h2")[0]]


def test_upgrade_again_changes_nothing(store: HostStore) -> None:
    store.write(dict([held("h1")]))
    store.upgrade()
    assert len(kept(store)) == 1


def test_many_may_upgrade_at_once(database: str) -> None:
    stores = [HostStore(database) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(HostStore.upgrade, stores))
    for each in stores:
        each.write(dict([held("h1")]))
        assert len(kept(each)) == 1
        each.close()


@pytest.mark.deep
def test_many_may_write_at_once(store: HostStore, database: str) -> None:
    stores = [HostStore(database) for _ in range(4)]

    def write(each: HostStore) -> None:
        order = random.Random(id(each))
        for revision in range(1, 11):
            names = [f"h{i}" for i in range(200)]
            order.shuffle(names)
            each.write(dict(held(name, revision) for name in names))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, stores))
    assert [its.revision for its in kept(store).values()] == [10] * 200
    for each in stores:
        each.close()


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("table", METADATA.tables)
def test_migrations_make_the_tables_that_are_used(database: str, table: str) -> None:
    engine = sa.create_engine(database)
    made = {c["name"]: c for c in sa.inspect(engine).get_columns(table)}
    keys = sa.inspect(engine).get_pk_constraint(table)["constrained_columns"]
    engine.dispose()
    wanted = METADATA.tables[table].columns
    assert made.keys() == set(wanted.keys())
    assert keys == [column.name for column in wanted if column.primary_key]
    for column in wanted:
        ours = column.type.dialect_impl(engine.dialect)
        assert made[column.name]["nullable"] == column.nullable
        theirs = made[column.name]["type"]
        assert theirs._type_affinity is ours._type_affinity  # noqa: SLF001 - SQLAlchemy's


def migrate(url: str, revision: str) -> None:
    """Bring an empty database, or an older one, to a revision."""
    config = Config()
    folder = resources.files("moorage.scheduler.sources.push") / "migrations"
    config.set_main_option("script_location", str(folder))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


@pytest.fixture
def old_hosts(database: str) -> dict[str, ReportedNode]:
    """Hosts in the tables of the first revision."""
    migrate(database, "001")
    hosts = dict(held(f"h{i}", i) for i in range(200))
    store = HostStore(database)
    store.write(hosts)
    store.close()
    return hosts


def test_upgrade_from_the_first_revision_keeps_hosts_and_adds_disabled_ones(
    database: str, old_hosts: dict[str, ReportedNode]
) -> None:
    names = ["h1", "H1", "Höst", "x" * 255]
    store = HostStore(database)
    with pytest.raises(StoreUnavailable, match="disabled_hosts"):
        store.disabled_hosts()
    store.upgrade()
    for uuid_, each in kept(store).items():
        assert dataclasses.replace(each, stored_at=0.0) == old_hosts.pop(uuid_)
    assert old_hosts == {}
    assert store.disabled_hosts() == {}
    for name in names:
        store.disable(name, "ünder repair \U0001f527", NOW)
    assert set(store.disabled_hosts()) == set(names)
    assert store.enable("h1")
    assert not store.enable("h1")
    assert set(store.disabled_hosts()) == set(names[1:])
    store.close()
    assert rows(database, "SELECT version_num FROM moorage_version") == [("003",)]


def test_schedulers_of_an_older_version_write_on_after_an_upgrade(
    database: str, old_hosts: dict[str, ReportedNode]
) -> None:
    """Schedulers are upgraded one by one, and share the store meanwhile."""
    older, *newer = (HostStore(database) for _ in range(4))
    with ThreadPoolExecutor(4) as pool:
        upgrades = [pool.submit(each.upgrade) for each in newer]
        older.write(dict(held(f"h{i}", 1000) for i in range(200)))
        for upgrade in upgrades:
            upgrade.result()
    older.write(dict([held("another")]))
    assert kept(newer[0]).keys() == {*old_hosts, held("another")[0]}
    for each in (older, *newer):
        each.close()


GARBAGE = [
    ("report", "'{'"),
    ("report", "'[]'"),
    ("report", "'{}'"),
    ("report", f"'{'[' * 100_000}'"),
    ("incarnation", "'first'"),
    ("revision", "-1"),
    ("node_uuid", "'n1'"),
]


@pytest.mark.parametrize(("column", "value"), GARBAGE)
def test_invalid_row_is_logged_and_left_out(
    store: HostStore,
    database: str,
    caplog: pytest.LogCaptureFixture,
    column: str,
    value: str,
) -> None:
    bad, _ = held("h1")
    store.write(dict([held("h1"), held("h2")]))
    rows(database, f"UPDATE hosts SET {column} = {value} WHERE node_uuid = '{bad}'")
    assert list(kept(store)) == [held("h2")[0]]
    assert (value.strip("'") if column == "node_uuid" else bad) in caplog.text


def test_invalid_utf8_affects_its_own_row_only(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hosts.sqlite"
    store = HostStore(url)
    store.upgrade()
    store.write(dict([held("h1"), held("h2")]))
    bad, _ = held("h1")
    for column, value in (("report", "CAST(x'ff00fe' AS TEXT)"), ("seen_at", "'x'")):
        rows(url, f"UPDATE hosts SET {column} = {value} WHERE node_uuid = '{bad}'")
        assert list(kept(store)) == [held("h2")[0]]
    store.close()


def test_file_is_its_owners_only(tmp_path: Path) -> None:
    file = tmp_path / "new" / "hosts.sqlite"
    store = HostStore(f"sqlite:///{file}")
    store.upgrade()
    store.write(dict([held("h1")]))
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in file.parent.iterdir()}
    store.close()
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "hosts.sqlite"
    file.write_bytes(b"no database at all, but long enough to look at" * 100)
    store = HostStore(f"sqlite:///{file}")
    with pytest.raises(StoreUnavailable, match="not a database"):
        store.upgrade()


def test_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = HostStore(f"sqlite:///{tmp_path}/file/hosts.sqlite")
    with pytest.raises(StoreUnavailable):
        store.upgrade()


@pytest.mark.parametrize(
    "url", ["", "hosts.sqlite", "oracle+nothing://h/d", "mysql+nothing://h/d"]
)
def test_url_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(ConfigurationError, match="store_connection"):
        HostStore(url)


def test_password_is_not_logged() -> None:
    store = HostStore("postgresql+psycopg2://moorage:secret@127.0.0.1:1/none")
    assert "secret" not in store.name
    with pytest.raises(StoreUnavailable) as raised:
        store.load()
    assert "secret" not in str(raised.value)


_WRITER = """
import sys
from moorage.scheduler.sources.push.store import HostStore
from moorage.scheduler.sources.report_columns import report_values
from moorage.scheduler.sources.reported.revisions import ReportedNode
from moorage.testing.builders import host
store = HostStore(sys.argv[1])
revision = 0
while True:
    revision += 1
    store.write({
        record.uuid: ReportedNode(
            sys.argv[2], revision, report_values(record), set(), 1.0 * revision
        )
        for record in map(lambda i: host(host=f"h{i}"), range(20))
    })
    print(revision, flush=True)
"""


@pytest.mark.deep
def test_kill_while_writing_leaves_whole_hosts(store: HostStore, database: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _WRITER, database, ONE]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    try:
        for line in writer.stdout:
            written_last = int(line)
            if written_last >= 5:
                break
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait(30)
        writer.stdout.close()
    hosts = kept(store)
    assert len(hosts) == 20
    (revision,) = {its.revision for its in hosts.values()}
    assert revision >= written_last


def test_store_of_a_newer_moorage_is_refused(store: HostStore, database: str) -> None:
    rows(database, "UPDATE moorage_version SET version_num = '999'")
    with pytest.raises(StoreUnusable, match=r"newer Moorage \(revision 999\)"):
        store.upgrade()


def test_tables_of_another_program_are_refused(database: str) -> None:
    rows(database, "CREATE TABLE hosts (id INTEGER)")
    store = HostStore(database)
    with pytest.raises(StoreUnusable, match="table hosts of another program"):
        store.upgrade()
    store.close()


@pytest.mark.database
@pytest.mark.parametrize(
    ("kind", "login"),
    [
        (Database.MARIADB, "root:wrong-secret"),
        (Database.POSTGRESQL, "nobody:wrong-secret"),
    ],
)
def test_login_that_is_wrong_is_refused(kind: Database, login: str) -> None:
    server = database_server(kind)
    url = f"{server.partition('://')[0]}://{login}@{server.rpartition('@')[2]}/mysql"
    store = HostStore(url)
    with pytest.raises(StoreUnusable, match="Check user and password") as raised:
        store.upgrade()
    assert "wrong-secret" not in str(raised.value)


def test_server_that_is_away_is_not_refused() -> None:
    store = HostStore(f"mysql+pymysql://root@127.0.0.1:{free_port()}/moorage")
    with pytest.raises(StoreUnavailable, match="Connection refused") as raised:
        store.upgrade()
    assert not isinstance(raised.value, StoreUnusable)
