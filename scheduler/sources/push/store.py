# SPDX-License-Identifier: Apache-2.0
"""Our own database: each reported host, so that a restart forgets none."""

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
from ...hosts import HostRecord
from .columns import RefusedReport, count, field, kept, record_of, uuid_of, uuids_of
from .revisions import Held

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

#: Rows of one statement; SQLite of old takes 999 parameters.
_CHUNK: Final = 150
#: Garbage rows that are told one by one.
_MOST_TOLD: Final = 20
_LOCK: Final = "moorage_hosts_schema"
#: A number of ours among PostgreSQL's advisory locks.
_LOCK_NUMBER: Final = 0x6D6F6F72
_LOCK_WAIT_S: Final = 60
_CONNECT_S: Final = 10
_TRIES: Final = 3
#: Seconds between what two processes that share a store hear and write.
_SAME_S: Final = 5.0


_OPTION: Final = "[moorage] store_connection"


class StoreAway(Exception):
    """The database does not answer, or not as it has to; it is tried again later."""


class StoreRefused(StoreAway, ConfigurationError):
    """The database cannot be used until somebody changes something."""


class HostStore:
    """Read and write the hosts of one database; each call is one by itself.

    Parameters
    ----------
    url : str
        SQLite, MariaDB or PostgreSQL, as SQLAlchemy has it.

    Raises
    ------
    ConfigurationError
        The URL is none, or its driver is not installed.
    """

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        #: Without a password.
        self.name = self._engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Let go of connections; a later call opens new ones."""
        self._engine.dispose()

    def upgrade(self) -> None:
        """Make or upgrade the tables; several processes may do so at once.

        Raises
        ------
        StoreAway
        StoreRefused
            It has a newer schema, or another program's tables.
        """
        with self._reached(), self._engine.connect() as connection:
            _make_private(self._engine.url)
            with _alone(connection):
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
            raise self._refused(
                f"the database has a table {HOSTS.name} of another program",
                "Name a database of its own",
            )
        steps = ScriptDirectory(str(_MIGRATIONS)).walk_revisions()
        if found is not None and found not in {step.revision for step in steps}:
            raise self._refused(
                f"its tables are of a newer Moorage (revision {found})",
                "Upgrade Moorage, or name another database",
            )

    def _refused(self, cause: str, remedy: str) -> StoreRefused:
        return StoreRefused(f"{Failure.of(_OPTION, self.name, cause, remedy)}")

    def load(self) -> list[tuple[Held, HostRecord]]:
        """Return all hosts; what is no host is told and left out.

        Each record's `last_seen_up` is when the host was seen.

        Raises
        ------
        StoreAway
        """
        with self._reached(), self._engine.connect() as connection:
            rows = connection.execute(sa.select(HOSTS)).all()
        found, mistakes = [], []
        for row in rows:
            try:
                found.append(_read(*row))
            except (ValueError, RecursionError) as e:
                mistakes.append(f"row '{row.node_uuid}': {e}")
        for mistake in mistakes[:_MOST_TOLD]:
            LOG.warning("The store %s has what is no host, %s", self.name, mistake)
        if len(mistakes) > _MOST_TOLD:
            LOG.warning(
                "The store %s has %d rows more that are no hosts",
                self.name,
                len(mistakes) - _MOST_TOLD,
            )
        return found

    def write(self, hosts: Mapping[str, Held]) -> None:
        """Write hosts, unless the store has a newer state of them.

        Newer is a higher revision of the same incarnation, or another incarnation:
        one that is known to have come later, or of which that is unknown and which was
        seen later, by the clock. Equal ones are left alone: many processes may share a
        store, and all hear the same. All of them or, where it fails, some of them.

        Raises
        ------
        StoreAway
        """
        # In one order: two writers never wait for each other.
        for chunk in _chunks(sorted(hosts.items(), key=_uuid)):
            with self._reached():
                self._write(dict(chunk))

    def _write(self, hosts: dict[str, Held]) -> None:
        """Write some hosts, again where another scheduler made one meanwhile."""
        for remaining in reversed(range(_TRIES)):
            try:
                with self._engine.begin() as connection:
                    _write(connection, hosts)
                return
            except sa.exc.IntegrityError:
                if not remaining:
                    raise

    def forget(self, node_uuids: Iterable[str], seen_before: float) -> None:
        """Delete hosts, unless another scheduler has seen them since.

        Raises
        ------
        StoreAway
        """
        for chunk in _chunks(node_uuids):
            with self._reached(), self._engine.begin() as connection:
                connection.execute(
                    sa.delete(HOSTS).where(
                        HOSTS.c.node_uuid.in_(chunk), HOSTS.c.seen_at < seen_before
                    )
                )

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, OSError) as e:
            failure = Failure.of(_OPTION, self.name, e)
            refused = StoreRefused if failure.is_refusal else StoreAway
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
        engine = sa.create_engine(
            parsed,
            pool_pre_ping=True,
            connect_args=_connect_args(parsed),
            **_isolation(parsed),
        )
    except (sa.exc.ArgumentError, ImportError, ValueError) as e:
        failure = Failure.of(_OPTION, url, e, _REMEDY)
        raise ConfigurationError(f"{failure}") from e
    if _is_sqlite(parsed):
        event.listen(engine, "do_connect", _before_connect)
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    return engine


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _connect_args(url: URL) -> dict[str, Any]:
    if _is_sqlite(url):
        return {"timeout": _CONNECT_S}
    return {"connect_timeout": _CONNECT_S}


def _isolation(url: URL) -> dict[str, Any]:
    # Else MariaDB locks the gaps between rows, and two writers wait for each other.
    return {} if _is_sqlite(url) else {"isolation_level": "READ COMMITTED"}


def _before_connect(
    _dialect: object, _record: object, args: list[Any], _kw: object
) -> None:
    """Make the file for its owner only; what it holds tells of a whole cloud."""
    path = args[0] if args else ""
    if path and path != ":memory:" and not path.startswith("file:"):
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _make_private(url: URL) -> None:
    """Close a file to others that somebody made open to them."""
    if _is_sqlite(url) and url.database and url.database != ":memory:":
        with contextlib.suppress(PermissionError, FileNotFoundError):
            os.chmod(url.database, 0o600)


def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
    # Transactions begin where we say, not where the driver guesses.
    connection.isolation_level = None
    # A text that is none fails its own row then, not the whole answer.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextlib.contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold the database's lock of the schema, within a transaction."""
    name = connection.dialect.name
    if name == "sqlite":
        with connection.begin():  # immediate, which is the file's lock
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
    """Hold a lock of the MariaDB server: its DDL ends every transaction."""
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


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(items)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        yield chunk


def _uuid(item: tuple[str, Held]) -> str:
    return item[0]


def _write(connection: Connection, hosts: dict[str, Held]) -> None:
    query = sa.select(
        HOSTS.c.node_uuid, HOSTS.c.incarnation, HOSTS.c.revision, HOSTS.c.seen_at
    ).where(HOSTS.c.node_uuid.in_(hosts))
    query = query.order_by(HOSTS.c.node_uuid).with_for_update()
    known = {row.node_uuid: row for row in connection.execute(query)}
    new = [_row(uuid, held) for uuid, held in hosts.items() if uuid not in known]
    newer = [
        {**_row(uuid, held), "b_node_uuid": uuid}
        for uuid, held in hosts.items()
        if uuid in known and _is_newer(held, *known[uuid][1:])
    ]
    if newer:
        connection.execute(_UPDATE, newer)
    if new:
        connection.execute(sa.insert(HOSTS), new)


#: Nothing is deleted and made anew: who waits for a row's lock must find it then.
_UPDATE = (
    sa.update(HOSTS)
    .where(HOSTS.c.node_uuid == sa.bindparam("b_node_uuid"))
    .values({c.name: sa.bindparam(c.name) for c in HOSTS.c if c.name != "node_uuid"})
)


def _is_newer(held: Held, incarnation: str, revision: int, seen_at: float) -> bool:
    if held.incarnation != incarnation:
        return incarnation in held.earlier or held.seen_at >= seen_at
    if held.revision != revision:
        return held.revision > revision
    return held.seen_at > seen_at + _SAME_S


def _row(uuid: str, held: Held) -> dict[str, Any]:
    report = {**held.data, "instances": sorted(held.instances)}
    return {
        "node_uuid": uuid,
        "incarnation": held.incarnation,
        "revision": held.revision,
        "seen_at": held.seen_at,
        "report": json.dumps(report, separators=(",", ":")),
    }


def _read(
    node_uuid: str, incarnation: str, revision: int, seen_at: float, report: str
) -> tuple[Held, HostRecord]:
    """Read a row, or raise ValueError with what is wrong."""
    if type(seen_at) is not float or not math.isfinite(seen_at):
        raise ValueError(f"seen_at: {seen_at!r} where a number is needed")
    data = json.loads(report)
    if type(data) is not dict:
        raise ValueError(f"its report is {type(data).__name__}, not an object")
    record = record_of(data, seen_at)
    if record.uuid != node_uuid:
        raise RefusedReport(record.host, f"uuid: {record.uuid} is of another row")
    instances = set(field(data, "instances", uuids_of, record.host))
    held = Held(
        incarnation=uuid_of(incarnation),
        revision=count(revision),
        data=kept(data),
        instances=instances,
        seen_at=seen_at,
        stored_at=seen_at,
    )
    return held, record
