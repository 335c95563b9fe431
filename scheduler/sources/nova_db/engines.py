# SPDX-License-Identifier: Apache-2.0
"""Engines of nova's databases, with timeouts of ``[moorage] cell_timeout``."""

from __future__ import annotations

import math
import threading

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db.sqlalchemy import engines
from sqlalchemy.pool import SingletonThreadPool, StaticPool

#: The options of oslo.db that are passed to an engine.
_OPTIONS = (
    "mysql_sql_mode",
    "mysql_wsrep_sync_wait",
    "connection_recycle_time",
    "connection_debug",
    "connection_trace",
    "max_pool_size",
    "max_overflow",
    "pool_timeout",
    "sqlite_synchronous",
    "connection_parameters",
)


def is_local(engine: sa.Engine) -> bool:
    """Return whether an engine is read in the caller's thread: SQLite does not hang."""
    return engine.dialect.name == "sqlite"


def is_in_memory(engine: sa.Engine) -> bool:
    """Return whether only one thread may be able to use an engine's database."""
    return isinstance(engine.pool, StaticPool | SingletonThreadPool)


def with_time_limits(connection: str, timeout_s: float) -> sa.URL:
    """Return a database URL with the driver's timeouts added.

    Timeouts that the URL sets itself stay. PyMySQL and psycopg2 take whole seconds.
    """
    url = sa.make_url(connection)
    whole_s = str(max(1, math.ceil(timeout_s)))
    limits: dict[str, str] = {}
    if url.get_backend_name() in ("mysql", "mariadb"):
        names = ("connect_timeout", "read_timeout", "write_timeout")
        limits = dict.fromkeys(names, whole_s)
    elif url.get_backend_name() == "postgresql":
        limits = {
            "connect_timeout": whole_s,
            "tcp_user_timeout": str(int(timeout_s * 1000)),
            "options": f"-c statement_timeout={int(timeout_s * 1000)}",
        }
    given = url.query
    return url.update_query_dict({k: v for k, v in limits.items() if k not in given})


class Engines:
    """Create the engines of the API database and of cells, one for each connection URL.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        With ``[database]``, whose pool options apply to cells, ``[api_database]`` and
        ``[moorage] cell_timeout``.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._lock = threading.Lock()
        self._made: dict[str, sa.Engine] = {}

    def api(self) -> sa.Engine:
        """Return the engine of the API database, which is not connected yet."""
        return self._engine(self._conf.api_database.connection, self._conf.api_database)

    def cell(self, connection: str) -> sa.Engine:
        """Return the engine of a cell's database.

        Raises
        ------
        sqlalchemy.exc.ArgumentError
            The text is not a database URL.
        """
        return self._engine(connection, self._conf.database)

    def _engine(self, connection: str, options: cfg.ConfigOpts.GroupAttr) -> sa.Engine:
        with self._lock:
            engine = self._made.get(connection)
            if engine is None:
                engine = engines.create_engine(
                    with_time_limits(connection, self._conf.moorage.cell_timeout),
                    max_retries=0,  # the poll retries
                    **{name: getattr(options, name) for name in _OPTIONS},
                )
                self._made[connection] = engine
            return engine

    def dispose(self) -> None:
        """Close all connections; the engines stay usable."""
        with self._lock:
            for engine in self._made.values():
                engine.dispose()
