# SPDX-License-Identifier: Apache-2.0
"""The database of reported hosts, from which a restarted scheduler restores them."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import URL, Connection, Engine, make_url

from ...errors import ConfigurationError
from ...failures import Failure
from ...hosts import COLUMNS, Columns, HostRecord
from ...hosts.columns import read_count, read_uuid, read_uuids
from ..report_columns import RefusedReport, read_field, read_record, serializable
from .revisions import ReportedNode

LOG = logging.getLogger(__name__)

METADATA = sa.MetaData()
HOSTS = sa.Table(
    "hosts",
    METADATA,
    sa.Column("node_uuid", sa.String(36), primary_key=True),
    sa.Column("incarnation", sa.String(36), nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # Seconds since the epoch.
    sa.Column("seen_at", sa.Double, nullable=False),
    # JSON: the columns of a HostReport, and its instances.
    sa.Column(
        "report",
        sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"),
        nullable=False,
    ),
)

#: Rows of one statement; old SQLite takes at most 999 parameters.
_CHUNK: Final = 150
#: Invalid rows that are logged one by one.
_MAX_LOGGED: Final = 20
_LOCK: Final = "moorage_hosts_schema"
#: Moorage's key among PostgreSQL's advisory locks.
_LOCK_NUMBER: Final = 0x6D6F6F72
_LOCK_WAIT_S: Final = 60
_CONNECT_S: Final = 10
_MAX_ATTEMPTS: Final = 3
#: Seconds by which `seen_at` of one report may differ between processes that share a
#: store.
_SEEN_AT_TOLERANCE_S: Final = 5.0


_OPTION: Final = "[moorage] store_connection"


class StoreUnavailable(Exception):
    """Raised when the database fails or does not answer; it is retried later."""


class StoreUnusable(StoreUnavailable, ConfigurationError):
    """Raised when the database cannot be used until an operator changes something."""


class HostStore:
    """Read and write the hosts of one database; each call has its own transactions.

    Parameters
    ----------
    url : str
        An SQLAlchemy URL of SQLite, MariaDB or PostgreSQL.
    columns : mapping, optional
        The declarations of all columns of hosts by name.

    Raises
    ------
    ConfigurationError
        The URL is invalid, or its driver is not installed.
    """

    def __init__(self, url: str, columns: Columns = COLUMNS) -> None:
        self._engine = _engine(url)
        self._columns = columns
        #: Its URL without the password.
        self.name = self._engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        self._engine.dispose()

    def upgrade(self) -> None:
        """Create or upgrade the tables; several processes may do so at once.

        Raises
        ------
        StoreUnavailable
        StoreUnusable
            The database has a newer schema, or another program's tables.
        """
        with self._translated_errors():
            _prepare_file(self._engine.url)
            with self._engine.connect() as connection, _schema_lock(connection):
                self._check_tables(connection)
                config = Config()
                config.set_main_option("script_location", str(_MIGRATIONS))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")

    def _check_tables(self, connection: Connection) -> None:
        options = {"version_table": _VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        found = context.get_current_revision()
        if found is None and sa.inspect(connection).has_table(HOSTS.name):
            raise self._unusable(
                f"the database has a table {HOSTS.name} of another program",
                "Use a separate database",
            )
        known = ScriptDirectory(str(_MIGRATIONS)).walk_revisions()
        if found is not None and found not in {each.revision for each in known}:
            raise self._unusable(
                f"its tables were created by a newer Moorage (revision {found})",
                "Upgrade Moorage, or use another database",
            )

    def _unusable(self, cause: str, remedy: str) -> StoreUnusable:
        return StoreUnusable(f"{Failure.of(_OPTION, self.name, cause, remedy)}")

    def load(self) -> list[tuple[ReportedNode, HostRecord]]:
        """Return all hosts; invalid rows are logged and left out.

        Each record's `last_seen_up` is the stored `seen_at`.

        Raises
        ------
        StoreUnavailable
        """
        with self._translated_errors(), self._engine.connect() as connection:
            rows = connection.execute(sa.select(HOSTS)).all()
        found, invalid = [], []
        for row in rows:
            try:
                found.append(_read(self._columns, *row))
            except (ValueError, RecursionError) as e:
                invalid.append(f"row '{row.node_uuid}': {e}")
        for message in invalid[:_MAX_LOGGED]:
            LOG.warning("The store %s has an invalid host, %s", self.name, message)
        if len(invalid) > _MAX_LOGGED:
            LOG.warning(
                "The store %s has %d more invalid hosts",
                self.name,
                len(invalid) - _MAX_LOGGED,
            )
        return found

    def write(self, hosts: Mapping[str, ReportedNode]) -> None:
        """Write hosts, unless the store has a newer state of them.

        A state is newer if it has a higher revision of the same incarnation, or another
        incarnation: one known to be later or, where that is unknown, one that was seen
        later by the clock. Equal states are not written: many processes may share a
        store, and all receive the same reports. If it fails, some may be written.

        Raises
        ------
        StoreUnavailable
        """
        # Sorted: writers that lock rows in one order cannot deadlock.
        for chunk in _chunks(sorted(hosts)):
            with self._translated_errors():
                self._write({uuid: hosts[uuid] for uuid in chunk})

    def _write(self, hosts: dict[str, ReportedNode]) -> None:
        """Write some hosts; retry if another scheduler has inserted one."""
        for n_left in reversed(range(_MAX_ATTEMPTS)):
            try:
                with self._engine.begin() as connection:
                    _write(connection, hosts)
                return
            except sa.exc.IntegrityError:
                if not n_left:
                    raise

    def delete(self, node_uuids: Iterable[str], seen_before: float) -> None:
        """Delete hosts, except those another scheduler has stored as seen later.

        Raises
        ------
        StoreUnavailable
        """
        for chunk in _chunks(node_uuids):
            with self._translated_errors(), self._engine.begin() as connection:
                connection.execute(
                    sa.delete(HOSTS).where(
                        HOSTS.c.node_uuid.in_(chunk), HOSTS.c.seen_at < seen_before
                    )
                )

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, OSError) as e:
            failure = Failure.of(_OPTION, self.name, e)
            refused = StoreUnusable if failure.is_refusal else StoreUnavailable
            raise refused(f"{failure}") from e


_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_VERSION_TABLE: Final = "moorage_version"
_REMEDY: Final = (
    "It has to be a URL such as sqlite:////var/lib/moorage/hosts.sqlite, "
    "mysql+pymysql://USER:PASSWORD@HOST/DATABASE or "
    "postgresql+psycopg2://USER:PASSWORD@HOST/DATABASE, and its driver has to be "
    "installed (moorage[mysql], moorage[postgresql])"
)


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        engine = sa.create_engine(parsed, pool_pre_ping=True, **_engine_options(parsed))
    except (sa.exc.ArgumentError, ImportError, ValueError) as e:
        failure = Failure.of(_OPTION, url, e, _REMEDY)
        raise ConfigurationError(f"{failure}") from e
    if _is_sqlite(parsed):
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    return engine


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _engine_options(url: URL) -> dict[str, Any]:
    if _is_sqlite(url):
        return {"connect_args": {"timeout": _CONNECT_S}}
    return {
        "connect_args": {"connect_timeout": _CONNECT_S},
        # By default, MariaDB locks the gaps between rows, and two writers may deadlock.
        "isolation_level": "READ COMMITTED",
    }


def _prepare_file(url: URL) -> None:
    """Make a file that only its owner can read: it describes a whole cloud."""
    path = url.database or ""
    if not _is_sqlite(url) or path in ("", ":memory:") or path.startswith("file:"):
        return
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with contextlib.suppress(PermissionError):
        os.chmod(path, 0o600)


def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
    # Transactions begin explicitly, not where the driver guesses.
    connection.isolation_level = None
    # Invalid UTF-8 then fails its own row, not the whole query.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextlib.contextmanager
def _schema_lock(connection: Connection) -> Iterator[None]:
    """Hold the database's schema lock, within a transaction."""
    name = connection.dialect.name
    if name == "sqlite":
        with connection.begin():  # BEGIN IMMEDIATE locks the file
            yield
    elif name == "postgresql":
        with connection.begin():
            lock = sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NUMBER))
            connection.execute(lock)
            yield
    else:
        with _named_lock(connection):
            yield


@contextlib.contextmanager
def _named_lock(connection: Connection) -> Iterator[None]:
    """Hold a named lock of the MariaDB server: DDL would end a transaction."""
    got = connection.scalar(sa.select(sa.func.get_lock(_LOCK, _LOCK_WAIT_S)))
    if got != 1:
        raise TimeoutError(
            f"another process has upgraded the tables for {_LOCK_WAIT_S} s"
        )
    try:
        yield
        connection.commit()
    finally:
        connection.rollback()
        connection.execute(sa.select(sa.func.release_lock(_LOCK)))


def _chunks(items: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(items)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        yield chunk


def _write(connection: Connection, hosts: dict[str, ReportedNode]) -> None:
    query = sa.select(
        HOSTS.c.node_uuid, HOSTS.c.incarnation, HOSTS.c.revision, HOSTS.c.seen_at
    ).where(HOSTS.c.node_uuid.in_(hosts))
    query = query.order_by(HOSTS.c.node_uuid).with_for_update()
    known = {row.node_uuid: row for row in connection.execute(query)}
    new = [_row(uuid, node) for uuid, node in hosts.items() if uuid not in known]
    newer = [
        {**_row(uuid, node), "b_node_uuid": uuid}
        for uuid, node in hosts.items()
        if uuid in known and _is_newer(node, *known[uuid][1:])
    ]
    if newer:
        connection.execute(_UPDATE, newer)
    if new:
        connection.execute(sa.insert(HOSTS), new)


#: Not DELETE and INSERT: a writer that waits for a row's lock must find the row.
_UPDATE = (
    sa.update(HOSTS)
    .where(HOSTS.c.node_uuid == sa.bindparam("b_node_uuid"))
    .values({c.name: sa.bindparam(c.name) for c in HOSTS.c if c.name != "node_uuid"})
)


def _is_newer(
    node: ReportedNode, incarnation: str, revision: int, seen_at: float
) -> bool:
    if node.incarnation != incarnation:
        return incarnation in node.earlier or node.seen_at >= seen_at
    if node.revision != revision:
        return node.revision > revision
    return node.seen_at > seen_at + _SEEN_AT_TOLERANCE_S


def _row(uuid: str, node: ReportedNode) -> dict[str, Any]:
    report = {**node.data, "instances": sorted(node.instances)}
    return {
        "node_uuid": uuid,
        "incarnation": node.incarnation,
        "revision": node.revision,
        "seen_at": node.seen_at,
        "report": json.dumps(report, separators=(",", ":")),
    }


def _read(
    columns: Columns,
    node_uuid: str,
    incarnation: str,
    revision: int,
    seen_at: float,
    report: str,
) -> tuple[ReportedNode, HostRecord]:
    """Read a row; raise ValueError if it is invalid."""
    if type(seen_at) is not float or not math.isfinite(seen_at):
        raise ValueError(f"seen_at: {seen_at!r} where a number is needed")
    data = json.loads(report)
    if type(data) is not dict:
        raise ValueError(f"its report is {type(data).__name__}, not an object")
    record = read_record(data, seen_at, columns)
    if record.uuid != node_uuid:
        raise RefusedReport(record.host, f"uuid: {record.uuid} is of another row")
    instances = set(read_field(data, "instances", read_uuids, record.host))
    node = ReportedNode(
        incarnation=read_uuid(incarnation),
        revision=read_count(revision),
        data=serializable(data, columns),
        instances=instances,
        seen_at=seen_at,
        stored_at=seen_at,
    )
    return node, record
