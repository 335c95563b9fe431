# SPDX-License-Identifier: Apache-2.0
"""A nova's databases, as far as they are read, on any database server."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import fixtures
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.nova_db import NovaDBSource, schema

from ....conftest import NOW, node_uuid
from ....fixtures.database_servers import Database, database_server, new_database

NODES, SERVICES = schema.compute_nodes, schema.services
INSTANCES = schema.instances

#: Columns of the host table that two tables of the same nova agree in.
COLUMNS = (
    "host",
    "nodename",
    "cell_uuid",
    "free_ram_mb",
    "free_disk_mb",
    "num_instances",
    "disabled",
    "disabled_reason",
    "forced_down",
    "last_seen_up",
    "service_version",
)


def us(seconds: float = 0.0) -> int:
    """The time so many seconds after NOW, as the schema's columns accept it."""
    return int((NOW + seconds) * 1_000_000)


def when(seconds: float = 0.0) -> datetime.datetime:
    time = datetime.datetime.fromtimestamp(NOW + seconds, datetime.UTC)
    return time.replace(tzinfo=None)


def cell_uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"cell.{name}"))


class Clock:
    """A clock that a test puts forward."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@functools.cache
def _empty_file(tables: sa.MetaData) -> bytes:
    """The content of a file of SQLite with these tables, which takes long to create."""
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        engine = sa.create_engine("sqlite://", creator=lambda: memory)
        tables.create_all(engine)
        return memory.serialize()


def _write_without_waiting(connection: sqlite3.Connection, _record: object) -> None:
    """Leave it to the operating system when a commit is written to the disk."""
    connection.execute("PRAGMA synchronous = OFF")


class Nova(fixtures.Fixture):
    """An API database, and one for each cell.

    Those of a server are used by one test after another, which finds them without rows:
    creating a database takes longer than most tests. No test may change their tables.

    Parameters
    ----------
    folder : Path
        The folder of SQLite's files.
    kind : Database, optional
        SQLite by default.
    """

    def __init__(self, folder: Path, *cells: str, kind: Database | None = None) -> None:
        super().__init__()
        self._folder, self._kind = folder, kind
        self._names = cells or ("cell1",)

    def _setUp(self) -> None:
        self._server = None if self._kind is None else database_server(self._kind)
        self.connections: dict[str, str] = {}
        self.engines: dict[str, sa.Engine] = {}
        self.api = self._database("api", schema.API)
        self.cells: dict[str, sa.Engine] = {}
        self.clock = Clock()
        self.add_cell("cell0", uuid=schema.CELL0)
        for name in self._names:
            self.add_cell(name)

    def _database(self, name: str, tables: sa.MetaData) -> sa.Engine:
        if self._server is None:
            file = self._folder / f"{name}.sqlite"
            file.write_bytes(_empty_file(tables))
            url = f"sqlite:///{file}"
            engine = sa.create_engine(url)
            sa.event.listen(engine, "connect", _write_without_waiting)
        else:
            unused = _unused_databases(self._server, tables)
            is_new = not unused
            url = new_database(self._server) if is_new else unused.pop()
            self.addCleanup(unused.append, url)
            engine = sa.create_engine(url)
            if is_new:
                tables.create_all(engine)
            else:
                with engine.begin() as connection:
                    for table in reversed(tables.sorted_tables):
                        connection.execute(table.delete())
        self.addCleanup(engine.dispose)
        self.connections[name] = url
        self.engines[url] = engine
        return engine

    def add_cell(self, name: str, **columns: Any) -> None:
        self.cells[name] = self._database(name, schema.CELL)
        self.insert(
            self.api,
            schema.cell_mappings,
            **{
                "uuid": cell_uuid(name),
                "name": name,
                "database_connection": self.connections[name],
                "disabled": False,
                **columns,
            },
        )

    def source(
        self, conf: cfg.ConfigOpts, api: sa.Engine | None = None, **options: Any
    ) -> NovaDBSource:
        """A source of these databases; an unknown connection becomes an engine."""

        def engine(connection: str) -> sa.Engine:
            return self.engines.get(connection) or sa.create_engine(connection)

        options = {"clock": self.clock, **options}
        made = NovaDBSource(api or self.api, engine, conf=conf, **options)
        self.addCleanup(made.stop)
        return made

    # -- rows --------------------------------------------------------------------------

    def insert(self, engine: sa.Engine, table: sa.Table, **columns: Any) -> int:
        with engine.begin() as connection:
            made = connection.execute(table.insert().values(**columns))
            assert made.inserted_primary_key is not None
            return int(made.inserted_primary_key[0])

    def update(
        self, engine: sa.Engine, table: sa.Table, where: Any, **columns: Any
    ) -> None:
        with engine.begin() as connection:
            connection.execute(table.update().where(where).values(**columns))

    def delete(self, engine: sa.Engine, table: sa.Table, where: Any) -> None:
        with engine.begin() as connection:
            connection.execute(table.delete().where(where))

    def host(self, name: str, cell: str = "cell1", **columns: Any) -> None:
        """A compute node and its service."""
        self.node(name, cell, **columns)
        self.service(name, cell)

    def hosts(self, number: int, cell: str = "cell1", at: float = -100.0) -> None:
        """Hosts named cell-0, cell-1, …, at once."""
        names_and_times = [(f"{cell}-{i}", us(at - i)) for i in range(number)]
        with self.cells[cell].begin() as connection:
            for table, row in ((NODES, node), (SERVICES, service)):
                rows = [row(name, updated_at=time) for name, time in names_and_times]
                connection.execute(table.insert(), rows)

    def node(self, name: str, cell: str = "cell1", **columns: Any) -> None:
        self.insert(self.cells[cell], NODES, **node(name, **columns))

    def service(self, name: str, cell: str = "cell1", **columns: Any) -> None:
        self.insert(self.cells[cell], SERVICES, **service(name, **columns))

    def change(self, name: str, cell: str = "cell1", **columns: Any) -> None:
        """Change a compute node's row."""
        where = NODES.c.hypervisor_hostname == name
        self.update(self.cells[cell], NODES, where, **columns)

    def beat(self, name: str, at: float, cell: str = "cell1", **columns: Any) -> None:
        """Change a service's row as a heartbeat does."""
        where = SERVICES.c.host == name
        moments = {"updated_at": us(at), "last_seen_up": us(at)}
        self.update(self.cells[cell], SERVICES, where, **{**moments, **columns})

    def instance(self, uuid_: str, host: str | None, **columns: Any) -> None:
        values = {"updated_at": us(), "deleted": 0, "node": host, **columns}
        cell = values.pop("cell", "cell1")
        self.insert(self.cells[cell], INSTANCES, uuid=uuid_, host=host, **values)

    def change_instance(self, uuid_: str, cell: str = "cell1", **columns: Any) -> None:
        where = INSTANCES.c.uuid == uuid_
        self.update(self.cells[cell], INSTANCES, where, **columns)


@functools.cache
def _unused_databases(server: str, tables: sa.MetaData) -> list[str]:  # noqa: ARG001
    """Return the URLs of databases with these tables that no test uses at present."""
    return []


def node(name: str, **columns: Any) -> dict[str, Any]:
    """A row of compute_nodes."""
    return {
        "updated_at": us(-100),
        "deleted": 0,
        "host": name,
        "uuid": node_uuid(name),
        "vcpus": 8,
        "memory_mb": 16384,
        "local_gb": 100,
        "vcpus_used": 2,
        "local_gb_used": 50,
        "hypervisor_type": "QEMU",
        "hypervisor_version": 6002001,
        "hypervisor_hostname": name,
        "free_ram_mb": 8192,
        "free_disk_gb": 50,
        "cpu_info": "{}",
        "stats": json.dumps({"num_instances": "1", "io_workload": "0"}),
        "cpu_allocation_ratio": 16.0,
        "ram_allocation_ratio": 1.5,
        "disk_allocation_ratio": 1.0,
        "mapped": 1,
        **columns,
    }


def service(name: str, **columns: Any) -> dict[str, Any]:
    """A row of services."""
    return {
        "created_at": us(-1000),
        "updated_at": us(-10),
        "last_seen_up": us(-10),
        "deleted": 0,
        "host": name,
        "binary": "nova-compute",
        "disabled": False,
        "disabled_reason": None,
        "forced_down": False,
        "version": 74,
        **columns,
    }


def contents(table: HostTable) -> dict[str, Any]:
    """The contents of a table, to compare with another."""
    return {
        state.uuid: (
            *(getattr(state, name) for name in COLUMNS),
            sorted(a.name for a in state.aggregates),
            sorted(state.instances),
        )
        for state in table.batch()
    }


def read_afresh(nova: Nova, conf: cfg.ConfigOpts) -> dict[str, Any]:
    """The table of a source that polls for the first time."""
    table = HostTable()
    nova.source(conf).start(table)
    return contents(table)
