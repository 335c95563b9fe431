# SPDX-License-Identifier: Apache-2.0
"""The embedded Placement's options, and its SQLite database: lock, connection, schema.

Importing this module requires openstack-placement.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sqlite3
import types
from collections.abc import Callable, Iterator
from typing import IO, Any

import jsonschema
from alembic.util import CommandError
from jsonschema.validators import validator_for
from oslo_config import cfg
from oslo_db.exception import DBError
from oslo_db.sqlalchemy import enginefacade
from oslo_log import log
from oslo_middleware import cors
from placement import conf as placement_conf
from placement import db_api, policy, util
from placement.db.sqlalchemy import migration
from placement.objects import resource_class, trait
from sqlalchemy import URL, CreateEnginePlugin, Engine, event
from sqlalchemy.dialects import plugins
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from ..errors import ConfigurationError
from ..failures import cause_of

_OPTION = "[moorage] embedded_placement_database"
WRITER_REMEDY = "Name another file; one that does not exist is created"
READER_REMEDY = (
    "Start moorage-scheduler with the same option first, which creates or upgrades it"
)
_NEVER = -1


class SingleConnection(CreateEnginePlugin):
    """Use one connection for a file, where oslo.db opens one per transaction.

    All requests come from one thread. This halves the cost of a write to the file: the
    schema is not read each time, and no write waits for the disk.
    """

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        """Change the arguments of create_engine; SQLAlchemy calls it."""
        super().__init__(url, kwargs)
        kwargs["poolclass"] = StaticPool
        kwargs["connect_args"]["check_same_thread"] = False

    def update_url(self, url: URL) -> URL:
        """Return the URL unchanged; SQLAlchemy has removed the plugin's name."""
        return url

    def engine_created(self, engine: Engine) -> None:
        """Set up each new connection."""
        event.listen(engine, "connect", _write_ahead)


class ReadingConnection(SingleConnection):
    """Use one connection for a file that another process writes to."""

    def engine_created(self, engine: Engine) -> None:
        """Forbid writing on each new connection."""
        event.listen(engine, "connect", _only_read)


def _only_read(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON")


def _write_ahead(connection: sqlite3.Connection, _record: object) -> None:
    # Commits survive a killed process. A power failure may lose the last writes, but
    # does not corrupt the file.
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode == "wal":  # some file systems do not support it
        connection.execute("PRAGMA synchronous = NORMAL")


def connection_url(database: str, plugin: type[SingleConnection]) -> str:
    """Return the value of [placement_database] connection for a file."""
    name = f"moorage_{plugin.__name__}"
    plugins.register(name, __name__, plugin.__name__)
    url = URL.create("sqlite", database=database, query={"plugin": name})
    return url.render_as_string()


def make_conf(connection: str) -> cfg.ConfigOpts:
    """Return Placement's options, for a database at a URL."""
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    log.register_options(conf)
    conf.register_opts(cors.CORS_OPTS, "cors")
    conf.set_override("connection", connection, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    # Not "placement": another Placement's policy file on this host must not be read.
    conf(
        [],
        project="moorage-embedded-placement",
        default_config_files=[],
        default_config_dirs=[],
    )
    return conf


def patch_database(conf: cfg.ConfigOpts, undo: list[Callable[[], object]]) -> Any:  # noqa: ANN401 - untyped
    """Let Placement use this database, and return the manager of its transactions.

    Parameters
    ----------
    undo : list of callable
        Functions that restore Placement's own state are appended to it; the last one is
        to be called first.
    """
    options: dict[str, Any] = dict(conf.placement_database.items())
    del options["sync_on_startup"]
    # Recycling the connection would lose a database in memory. thread_checkin sleeps
    # after each transaction, for green threads.
    options |= {"connection_recycle_time": _NEVER, "thread_checkin": False}
    # Placement's own manager can be configured once per process; a patched factory
    # can be removed again, as Placement's own fixtures do.
    manager = enginefacade.transaction_context()
    manager.configure(**options)
    undo.append(db_api.placement_context_manager.patch_factory(manager))
    undo.append(manager.dispose_pool)
    _reset_sync_flags()
    policy.reset()
    undo.append(policy.reset)
    undo.append(_reset_sync_flags)
    return manager


def _reset_sync_flags() -> None:
    # The flags say that the database has been populated; a new one has not.
    trait._TRAITS_SYNCED = False  # noqa: SLF001 - Placement has no public way
    resource_class._RESOURCE_CLASSES_SYNCED = False  # noqa: SLF001 - nor here


def skip_schema_checks() -> Callable[[], None]:
    """Stop Placement from checking its own, constant schemas at every request.

    jsonschema.validate checks the schema before the body: half of a write's cost.
    Return a function that restores the checks.
    """
    original = util.jsonschema
    util.jsonschema = types.SimpleNamespace(
        validate=_validate,
        FormatChecker=jsonschema.FormatChecker,
        ValidationError=jsonschema.ValidationError,
    )
    return functools.partial(setattr, util, "jsonschema", original)


def _validate(
    body: Any,  # noqa: ANN401 - decoded JSON, which is validated here
    schema: dict[str, Any],
    format_checker: jsonschema.FormatChecker | None = None,
) -> None:
    validator = validator_for(schema)(schema, format_checker=format_checker)
    error = jsonschema.exceptions.best_match(validator.iter_errors(body))
    if error is not None:
        raise error


def check_exists(database: str) -> None:
    """Raise ConfigurationError if no process has created the file yet."""
    if not os.path.exists(database):
        raise ConfigurationError(f"{_OPTION}: there is no {database}. {READER_REMEDY}.")


def lock(database: str) -> IO[str]:
    """Lock a database file for this process; return the lock's open file.

    It is named FILE.lock and contains the process ID. Closing it releases the lock; the
    kernel does so when the process ends, however it ends.

    Raises
    ------
    ConfigurationError
        Another process, which the message names, has locked the file, or it cannot be
        written or locked.
    """
    path = f"{database}.lock"
    try:
        file = open(path, "a+")  # noqa: SIM115 -- open until the caller closes it
    except OSError as e:
        raise ConfigurationError(f"{_OPTION}: {path} cannot be written: {e}.") from e
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_pid(file)
    except BlockingIOError as e:
        with file:
            raise _locked_by_other(database, file) from e
    except OSError as e:
        file.close()
        raise ConfigurationError(f"{_OPTION}: {path} cannot be locked: {e}.") from e
    return file


def _write_pid(file: IO[str]) -> None:
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()


def _locked_by_other(database: str, file: IO[str]) -> ConfigurationError:
    file.seek(0)
    # Empty for an instant: the other process may not have written its ID yet.
    holder = file.read().strip() or "of unknown id"
    return ConfigurationError(
        f"{_OPTION}: {database} is used by another process, {holder}. Stop it, name "
        "another file, or run a separate Placement and set [placement]."
    )


@contextlib.contextmanager
def translated_errors(database: str, remedy: str) -> Iterator[None]:
    """Raise ConfigurationError for errors of the database."""
    try:
        yield
    except (DBError, CommandError, SQLAlchemyError) as e:
        raise ConfigurationError(
            f"{_OPTION}: {database} cannot be used as Placement's database: "
            f"{cause_of(e)}. {remedy}."
        ) from e


def make_schema() -> None:
    """Create the tables or upgrade them; an incomplete schema is completed.

    On a connection that only reads, this fails unless there is nothing to do.
    """
    if migration.version() is None:
        # Half a second faster than running all migrations since the first one.
        migration.create_schema()
        migration.stamp("head")
    else:
        migration.upgrade("head")
