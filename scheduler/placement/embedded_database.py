# SPDX-License-Identifier: Apache-2.0
"""The SQLite under the embedded Placement: one process, one connection, one schema.

Import it once openstack-placement is known to be installed: it needs its libraries.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from typing import IO, Any

from alembic.util import CommandError
from oslo_config import cfg
from oslo_db.exception import DBError
from placement.db.sqlalchemy import migration
from sqlalchemy import URL, CreateEnginePlugin, Engine, event
from sqlalchemy.dialects import plugins
from sqlalchemy.pool import StaticPool

from ..errors import ConfigurationError

_OPTION = "[moorage] embedded_placement_database"
_PLUGIN = "moorage_single_connection"
_NEVER = -1


class SingleConnection(CreateEnginePlugin):
    """Keep one connection to a file, where oslo.db opens one a transaction.

    All requests come from one thread. It halves what a write to the file costs: no
    reading of the schema each time, and no waiting for the disk.
    """

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        """Change what create_engine was told; SQLAlchemy calls it."""
        super().__init__(url, kwargs)
        kwargs["poolclass"] = StaticPool
        kwargs["connect_args"]["check_same_thread"] = False

    def update_url(self, url: URL) -> URL:
        """Return the URL as it is; SQLAlchemy has taken our name out of it."""
        return url

    def engine_created(self, engine: Engine) -> None:
        """Have each new connection set up."""
        event.listen(engine, "connect", _write_ahead)


def _write_ahead(connection: sqlite3.Connection, _record: object) -> None:
    # What was committed outlives a killed process. A machine that loses its power may
    # lose the last writes, and never the file.
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode == "wal":  # there are file systems without
        connection.execute("PRAGMA synchronous = NORMAL")


def connection_url(database: str) -> str:
    """Return what [placement_database] connection has to be for a file."""
    plugins.register(_PLUGIN, __name__, SingleConnection.__name__)
    url = URL.create("sqlite", database=database, query={"plugin": _PLUGIN})
    return url.render_as_string()


def engine_options(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return what oslo.db makes the engine with."""
    options: dict[str, Any] = dict(conf.placement_database.items())
    del options["sync_on_startup"]
    # A connection that is recycled takes a database in memory with it. The other one
    # is a sleep after each transaction, for the sake of green threads.
    return {**options, "connection_recycle_time": _NEVER, "thread_checkin": False}


def lock(database: str) -> IO[str]:
    """Return an open file that keeps other processes off a file until it is closed.

    It is beside it, named FILE.lock, and has the process in it. The kernel lets go of
    it when the process ends, however it ends.

    Raises
    ------
    ConfigurationError
        Another process has it, which is named; or it cannot be written or locked.
    """
    path = f"{database}.lock"
    try:
        file = open(path, "a+")  # noqa: SIM115 -- it stays open as long as we are
    except OSError as e:
        raise ConfigurationError(f"{_OPTION}: {path} cannot be written: {e}.") from e
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sign(file)
    except BlockingIOError as e:
        with file:
            raise _taken(database, file) from e
    except OSError as e:
        file.close()
        raise ConfigurationError(f"{_OPTION}: {path} cannot be locked: {e}.") from e
    return file


def _sign(file: IO[str]) -> None:
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()


def _taken(database: str, file: IO[str]) -> ConfigurationError:
    file.seek(0)
    # Empty for an instant: the other one may not have signed yet.
    holder = file.read().strip() or "of unknown id"
    return ConfigurationError(
        f"{_OPTION}: {database} is used by another process, {holder}. Stop it, name "
        "another file, or run a Placement of its own and set [placement]."
    )


def make_schema(database: str) -> None:
    """Make the tables, or bring them up to date; a half-made file is finished.

    Raises
    ------
    ConfigurationError
        The file is not SQLite's, cannot be written, or is a newer Placement's.
    """
    try:
        _make_schema()
    except (DBError, CommandError) as e:
        raise ConfigurationError(
            f"{_OPTION}: {database} cannot be used as Placement's database: {e}. Name "
            "another file; one that does not exist is made."
        ) from e


def _make_schema() -> None:
    if migration.version() is None:
        # Half a second less than every migration since the first one.
        migration.create_schema()
        migration.stamp("head")
    else:
        migration.upgrade("head")
