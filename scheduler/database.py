# SPDX-License-Identifier: Apache-2.0
"""The databases of Moorage's own stores: engines, and schemas that alembic upgrades."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url

from .errors import ConfigurationError
from .failures import Failure

_LOCK_WAIT_S: Final = 60
_CONNECT_S: Final = 10
#: Seconds for a statement: longer than an upgrade may wait for the lock.
_ANSWER_S: Final = 90
#: Seconds for a read: a user waits for it, or a thread that serves requests.
_READ_S: Final = 10
_IS_READING: Final = "moorage_is_reading"
_REMEDY: Final = (
    "It has to be a URL such as sqlite:////var/lib/moorage/FILE.sqlite, "
    "mysql+pymysql://USER:PASSWORD@HOST/DATABASE or "
    "postgresql+psycopg2://USER:PASSWORD@HOST/DATABASE, and its driver has to be "
    "installed (moorage[mysql], moorage[postgresql])"
)


class StoreUnavailable(Exception):
    """Raised when the database fails or does not answer; it is retried later."""


class StoreUnusable(StoreUnavailable, ConfigurationError):
    """Raised when the database cannot be used until an operator changes something."""


class IncompatibleSchema(StoreUnusable):
    """Raised when the tables are of a newer Moorage, or of another program."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoreSchema:
    """The tables of one store.

    Several stores may share a database: each has its own version table.

    Attributes
    ----------
    migrations : Path
        The folder of alembic's scripts.
    version_table : str
        Holds the revision of the schema.
    first_table : str
        The table that the first migration creates.
    lock : str
        The name of the lock that one upgrade at a time holds.
    lock_number : int
        The number of this lock among PostgreSQL's advisory locks.
    """

    migrations: Path
    version_table: str
    first_table: str
    lock: str
    lock_number: int


class StoreDatabase:
    """The engine of a store, and its schema.

    Parameters
    ----------
    url : str
        An SQLAlchemy URL of SQLite, MariaDB or PostgreSQL.
    option : str
        The option that has the URL, such as ``[moorage] store_connection``.

    Raises
    ------
    ConfigurationError
        The URL is invalid, or its driver is not installed.
    """

    def __init__(self, url: str, *, option: str, schema: StoreSchema) -> None:
        self._option = option
        self._schema = schema
        self.engine = _engine(url, option, _ANSWER_S)
        # Drivers take timeouts only when they connect: reads, with another timeout,
        # need a second engine. SQLite has one: a database in memory is its engine's.
        is_sqlite = _is_sqlite(self.engine.url)
        self._reader = self.engine if is_sqlite else _engine(url, option, _READ_S)
        #: The URL of the database without the password.
        self.name = self.engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        self.engine.dispose()
        self._reader.dispose()

    def upgrade(self) -> None:
        """Create or upgrade the tables; several processes may call this at once.

        Raises
        ------
        StoreUnavailable
        IncompatibleSchema
            The database has a newer schema, or another program's tables.
        """
        with self.translated_errors():
            _prepare_file(self.engine.url)
            with self.engine.connect() as connection, self._locked(connection):
                self._check_tables(connection)
                config = Config()
                config.set_main_option("script_location", str(self._schema.migrations))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")

    def check(self) -> bool:
        """Return whether the tables exist and need no upgrade; writes nothing.

        Raises
        ------
        StoreUnavailable
        IncompatibleSchema
            The database has a newer schema, or another program's tables.
        """
        if (path := _file_of(self.engine.url)) and not path.exists():
            folder = next(
                parent for parent in path.absolute().parents if parent.exists()
            )
            if not os.access(folder, os.W_OK | os.X_OK):
                cause = f"the file cannot be created in {folder}"
                failure = Failure.of(self._option, self.name, cause, _REMEDY)
                raise StoreUnusable(f"{failure}")
            return False
        with self.reading() as connection:
            revision = self._check_tables(connection)
        head = ScriptDirectory(str(self._schema.migrations)).get_current_head()
        return revision == head

    def _check_tables(self, connection: Connection) -> str | None:
        """Return the revision of the tables; None: there are none."""
        options = {"version_table": self._schema.version_table}
        context = MigrationContext.configure(connection, opts=options)
        revision = context.get_current_revision()
        table = self._schema.first_table
        if revision is None and sa.inspect(connection).has_table(table):
            raise self._unusable(
                f"the database has a table {table} of another program",
                "Use a separate database",
            )
        steps = ScriptDirectory(str(self._schema.migrations)).walk_revisions()
        if revision is not None and revision not in {step.revision for step in steps}:
            raise self._unusable(
                f"its tables are of a newer Moorage (revision {revision})",
                "Upgrade Moorage, or use another database",
            )
        return revision

    def _unusable(self, cause: str, remedy: str) -> IncompatibleSchema:
        return IncompatibleSchema(
            f"{Failure.of(self._option, self.name, cause, remedy)}"
        )

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection for reads only; with SQLite, it waits for no writer.

        Raises
        ------
        StoreUnavailable
        """
        with self.translated_errors(), self._reader.connect() as connection:
            yield connection.execution_options(**{_IS_READING: True})

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection in a transaction.

        Raises
        ------
        StoreUnavailable
        """
        with self.translated_errors(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise StoreUnavailable or StoreUnusable for errors of the database."""
        try:
            yield
        # psycopg2 raises UnicodeDecodeError for error messages that are not UTF-8.
        except (sa.exc.SQLAlchemyError, OSError, UnicodeDecodeError) as e:
            failure = Failure.of(self._option, self.name, e)
            error_class = StoreUnusable if failure.is_refusal else StoreUnavailable
            raise error_class(f"{failure}") from e

    @contextlib.contextmanager
    def _locked(self, connection: Connection) -> Iterator[None]:
        """Hold the lock of the schema, within a transaction."""
        name = connection.dialect.name
        if name == "sqlite":
            with connection.begin():  # BEGIN IMMEDIATE locks the file
                yield
        elif name == "postgresql":
            with connection.begin():
                lock = sa.func.pg_advisory_xact_lock(self._schema.lock_number)
                connection.execute(sa.select(lock))
                yield
        else:
            with _named_lock(connection, self._schema.lock):
                yield


def _engine(url: str, option: str, answer_s: int) -> Engine:
    try:
        parsed = make_url(url)
        engine = sa.create_engine(
            parsed,
            pool_pre_ping=True,
            connect_args=_connect_args(parsed, answer_s),
            **_isolation(parsed),
        )
    except (sa.exc.ArgumentError, ImportError, ValueError) as e:
        failure = Failure.of(option, url, e, _REMEDY)
        raise ConfigurationError(f"{failure}") from e
    if _is_sqlite(parsed):
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    return engine


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _connect_args(url: URL, answer_s: int) -> dict[str, Any]:
    if _is_sqlite(url):
        return {"timeout": _CONNECT_S}
    timeouts: dict[str, Any] = {"connect_timeout": _CONNECT_S}
    if url.get_backend_name() in ("mysql", "mariadb"):
        timeouts |= {"read_timeout": answer_s, "write_timeout": answer_s}
    return timeouts


def _isolation(url: URL) -> dict[str, Any]:
    # By default, MariaDB locks the gaps between rows, and two writers may deadlock.
    return {} if _is_sqlite(url) else {"isolation_level": "READ COMMITTED"}


def _prepare_file(url: URL) -> None:
    """Create SQLite's file, readable by its owner only: it describes a whole cloud."""
    path = _file_of(url)
    if path is None:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with contextlib.suppress(PermissionError):
        os.chmod(path, 0o600)


def _file_of(url: URL) -> Path | None:
    """Return the file of an SQLite database; None: it is in memory, or not SQLite."""
    path = url.database or ""
    if not _is_sqlite(url) or path in ("", ":memory:") or path.startswith("file:"):
        return None
    return Path(path)


def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
    # Transactions begin explicitly, instead of when the driver begins one by itself.
    connection.isolation_level = None
    # Invalid UTF-8 then fails its own row, not the whole query.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _on_begin(connection: Connection) -> None:
    is_reading = connection.get_execution_options().get(_IS_READING)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")


@contextlib.contextmanager
def _named_lock(connection: Connection, name: str) -> Iterator[None]:
    """Hold a named lock of MariaDB, where DDL ends a transaction and its locks."""
    lock_result = connection.scalar(sa.select(sa.func.get_lock(name, _LOCK_WAIT_S)))
    if lock_result != 1:
        raise TimeoutError(
            f"another process has upgraded the tables for {_LOCK_WAIT_S} s"
        )
    try:
        yield
        connection.commit()
    finally:
        connection.rollback()
        connection.execute(sa.select(sa.func.release_lock(name)))
