# SPDX-License-Identifier: Apache-2.0
"""The databases of a real nova 34: their schema made by `nova-manage`, filled by us."""

from __future__ import annotations

import atexit
import dataclasses
import enum
import functools
import os
import re
import shutil
import socket
import subprocess
import tempfile
import uuid
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fixtures
import sqlalchemy
from sqlalchemy import Engine, Table
from sqlalchemy.pool import NullPool

from .interop.peer import peer_or_skip
from .placement_servers import Database, database_server

CELL0_UUID = "00000000-0000-0000-0000-000000000000"

_MANAGE_S = 300.0
_BATCH = 1000
_API_TABLES = (
    "cell_mappings", "host_mappings",
    "aggregates", "aggregate_hosts", "aggregate_metadata",
)  # fmt: skip
_CELL_TABLES = ("services", "compute_nodes", "instances", "instance_system_metadata")
_TABLES = {"api": _API_TABLES, "cell": _CELL_TABLES}
#: How the names of databases and folders end: by whom they were made, so that those of
#: a process that was killed can be told from those in use.
_MADE_BY = re.compile(r"_(?P<machine>[0-9a-f]{8})_(?P<pid>\d+)_[0-9a-f]{12}")


class Kind(enum.Enum):
    """What nova keeps its data in."""

    SQLITE = "sqlite"
    MARIADB = "mariadb"
    POSTGRESQL = "postgresql"

    def server(self) -> str:
        """Return the URL that a database's name is appended to, after a slash.

        Skips the test, or fails it, as `database_server` does.
        """
        if self is Kind.SQLITE:
            return f"sqlite:///{_folder()}"
        return database_server(Database[self.name])


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a cloud.

    Attributes
    ----------
    id : int
        Of its row in cell_mappings.
    url : str
        Where its database is.
    connection : str
        What cell_mappings says of that; perhaps a template.
    """

    id: int
    uuid: str
    name: str
    url: str
    connection: str


class NovaDatabases(fixtures.Fixture):
    """New databases as `nova-manage api_db sync` and `db sync` leave them, and cells.

    Parameters
    ----------
    kind : Kind
    n_cells : int
        Beside cell0. The second one's mapping is a URL template.
    is_whole : bool
        Whether MariaDB's databases have all of nova's tables, which takes a second for
        each; or only those that a scheduler reads.

    Attributes
    ----------
    api_url, main_url : str
        nova's [api_database] connection and [database] connection; the latter is that
        of cell0.
    cells : list of Cell
        Without cell0.
    tables : mapping
        The tables that a scheduler reads, by name, as they are in the database.
    """

    def __init__(self, kind: Kind, n_cells: int = 4, *, is_whole: bool = True) -> None:
        super().__init__()
        self.kind = kind
        self._n_cells = n_cells
        self._is_whole = is_whole

    def _setUp(self) -> None:
        self._engines: dict[str, Engine] = {}
        self.addCleanup(self._dispose)
        self._tag = _tag()
        self.api_url = self._new_database("api")
        self.main_url = self._new_database("cell0")
        self.tables: Mapping[str, Table] = _tables(self.kind)
        self.cells: list[Cell] = []
        self._map(CELL0_UUID, "cell0", self.main_url)
        for _ in range(self._n_cells):
            self.add_cell(is_template=len(self.cells) == 1)

    def add_cell(self, *, is_template: bool = False) -> Cell:
        """Make a further cell with a database of its own, and map it."""
        number = len(self.cells) + 1
        url = self._new_database(f"cell{number}")
        connection = self._as_template(url) if is_template else url
        made, name = str(uuid.uuid4()), f"cell{number}"
        cell = Cell(self._map(made, name, connection), made, name, url, connection)
        self.cells.append(cell)
        return cell

    def _map(self, cell_uuid: str, name: str, connection: str) -> int:
        row = {
            "uuid": cell_uuid, "name": name, "transport_url": "none:///",
            "database_connection": connection, "disabled": False,
        }  # fmt: skip
        with self.api.begin() as connected:
            table = self.tables["cell_mappings"]
            made = connected.execute(table.insert().values(row))
            return int(made.inserted_primary_key[0])

    def _as_template(self, url: str) -> str:
        """Write a URL as nova fills it in from [database] connection."""
        if self.kind is Kind.SQLITE:  # its path has no slash of its own
            return url.replace("sqlite:", "{scheme}:")
        database = url.rpartition("/")[2]
        return "{scheme}://{username}@{hostname}:{port}/" + database

    def change_mapping(self, cell: Cell, **values: Any) -> None:
        """Change columns of a cell's mapping, such as `disabled`."""
        table = self.tables["cell_mappings"]
        with self.api.begin() as connected:
            connected.execute(table.update().where(table.c.id == cell.id), [values])

    @property
    def api(self) -> Engine:
        """The API database."""
        return self.engine(self.api_url)

    def engine(self, url: str) -> Engine:
        """Return the engine of a URL, one for each; a NovaDBSource may be given it."""
        if url not in self._engines:
            self._engines[url] = sqlalchemy.create_engine(url)
        return self._engines[url]

    def insert(self, url: str, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows, many at a time; all have the same columns."""
        every = [dict(row) for row in rows]
        with self.engine(url).begin() as connected:
            for first in range(0, len(every), _BATCH):
                batch = every[first : first + _BATCH]
                connected.execute(self.tables[table].insert(), batch)

    def _new_database(self, name: str) -> str:
        which = "api" if name == "api" else "cell"
        made = _url(self.kind, f"nova_{name}{self._tag}")
        self.addCleanup(_drop, self.kind, made)
        only = None if self._is_whole else _TABLES[which]
        _copy(self.kind, _templates(self.kind)[which], made, only)
        return made

    def _dispose(self) -> None:
        for engine in self._engines.values():
            engine.dispose()


# -- databases as nova-manage makes them, once, to be copied ---------------------------


@functools.cache
def _templates(kind: Kind) -> Mapping[str, str]:
    """Return the URLs of databases of which each test gets copies, by what they are."""
    _drop_the_stale(kind)
    tag = _tag()
    urls = {name: _url(kind, f"nova_{name}{tag}") for name in ("api", "cell")}
    for url in urls.values():
        atexit.register(_drop, kind, url)
        _execute(kind, f"CREATE DATABASE {_name(url)}")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write(
            f"[api_database]\nconnection = {urls['api']}\n"
            f"[database]\nconnection = {urls['cell']}\n"
        )
        conf.flush()
        commands = ("api_db", "sync"), ("db", "sync", "--local_cell")
        with ThreadPoolExecutor(len(commands)) as pool:
            list(pool.map(lambda command: _manage(conf.name, *command), commands))
    return urls


def _tag() -> str:
    """Return the end of a name that nobody else gives; see _MADE_BY."""
    return f"_{_machine()}_{os.getpid()}_{uuid.uuid4().hex[:12]}"


def _machine() -> str:
    """Return this machine's part of names: others may share its database servers."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _drop_the_stale(kind: Kind) -> None:
    """Drop what processes made here that were killed before they could drop it."""
    if kind is Kind.SQLITE:
        for folder in Path(tempfile.gettempdir()).glob("moorage-nova*"):
            if _is_stale(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
        return
    catalog = {
        Kind.MARIADB: "SELECT schema_name FROM information_schema.schemata",
        Kind.POSTGRESQL: "SELECT datname FROM pg_database",
    }
    [names] = _execute(kind, catalog[kind])
    for name in names:
        if name.startswith("nova_") and _is_stale(name):
            _drop(kind, _url(kind, name))


def _is_stale(name: str) -> bool:
    made = _MADE_BY.search(name)
    if made is None or made["machine"] != _machine():
        return False
    try:
        os.kill(int(made["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's, alive
        return False
    return False


def _manage(conf: str, *command: str) -> None:
    manage = peer_or_skip("nova-manage")
    done = subprocess.run(
        [manage, "--config-file", conf, *command],
        env={**os.environ, "OS_NOVA_DISABLE_EVENTLET_PATCHING": "1"},
        capture_output=True,
        text=True,
        timeout=_MANAGE_S,
        check=False,
    )
    assert done.returncode == 0, f"nova-manage {' '.join(command)}: {done.stderr}"


@functools.cache
def _tables(kind: Kind) -> Mapping[str, Table]:
    """Return what a scheduler reads, as nova-manage made it."""
    found: dict[str, Table] = {}
    for name, url in _templates(kind).items():
        engine = sqlalchemy.create_engine(url, poolclass=NullPool)
        metadata = sqlalchemy.MetaData()
        metadata.reflect(engine, only=_TABLES[name])
        found |= metadata.tables
    return found


@functools.cache
def _folder() -> Path:
    made = Path(tempfile.gettempdir()) / f"moorage-nova{_tag()}"
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    made.mkdir(mode=0o700)
    return made


def _url(kind: Kind, name: str) -> str:
    return f"{kind.server()}/{name}"


def _name(url: str) -> str:
    return url.rpartition("/")[2]


def _copy(kind: Kind, template: str, made: str, only: Collection[str] | None) -> None:
    """Copy an empty database; MariaDB's as far as `only` says."""
    if kind is Kind.SQLITE:
        shutil.copy(_folder() / _name(template), _folder() / _name(made))
    elif kind is Kind.POSTGRESQL:
        _execute(kind, f"CREATE DATABASE {_name(made)} TEMPLATE {_name(template)}")
    else:
        tables = _mariadb_tables(template, only)
        start = f"USE {_name(made)}", "SET foreign_key_checks = 0"
        _execute(kind, f"CREATE DATABASE {_name(made)}", *start, *tables)


@functools.cache
def _mariadb_tables(template: str, only: Collection[str] | None) -> Sequence[str]:
    """Return the statements that make the same tables; MariaDB copies no database."""
    engine = sqlalchemy.create_engine(template, poolclass=NullPool)
    with engine.connect() as connected:
        names = connected.execute(sqlalchemy.text("SHOW TABLES")).scalars().all()
        return [
            connected.execute(sqlalchemy.text(f"SHOW CREATE TABLE `{name}`")).one()[1]
            for name in names
            if only is None or name in only
        ]


def _drop(kind: Kind, url: str) -> None:
    if kind is Kind.SQLITE:
        (_folder() / _name(url)).unlink(missing_ok=True)
    else:
        force = " WITH (FORCE)" if kind is Kind.POSTGRESQL else ""
        _execute(kind, f"DROP DATABASE IF EXISTS {_name(url)}{force}")


def _execute(kind: Kind, *statements: str) -> list[Sequence[str]]:
    """Run statements on a server, beside all of its databases.

    Returns the first column of what those give that give rows.
    """
    if kind is Kind.SQLITE:
        return []  # a file comes with the first connection
    url = kind.server() + ("/postgres" if kind is Kind.POSTGRESQL else "")
    engine = sqlalchemy.create_engine(
        url, isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    given: list[Sequence[str]] = []
    with engine.connect() as connected:
        for statement in statements:
            done = connected.exec_driver_sql(statement)
            if done.returns_rows:
                given.append(done.scalars().all())
    return given
