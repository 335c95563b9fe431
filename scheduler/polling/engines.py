# SPDX-License-Identifier: Apache-2.0
"""Engines of databases that are polled: oslo.db's options, and time limits."""

from __future__ import annotations

import math

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db.sqlalchemy import engines
from sqlalchemy.pool import SingletonThreadPool, StaticPool


def is_local(engine: sa.Engine) -> bool:
    """Return whether an engine is read in the caller's thread: SQLite does not hang."""
    return engine.dialect.name == "sqlite"


def is_in_memory(engine: sa.Engine) -> bool:
    """Return whether only one thread may be able to use an engine's database."""
    return isinstance(engine.pool, StaticPool | SingletonThreadPool)


def with_time_limits(connection: str, timeout_s: float) -> sa.URL:
    """Return a database URL with the driver's timeouts added.

    Timeouts that the URL has already stay. PyMySQL and psycopg2 take whole seconds.
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
    missing = {name: limit for name, limit in limits.items() if name not in url.query}
    return url.update_query_dict(missing)


def create_engine(
    connection: str, options: cfg.ConfigOpts.GroupAttr, timeout_s: float
) -> sa.Engine:
    """Return an engine, which is not connected yet.

    Parameters
    ----------
    options : oslo_config.cfg.ConfigOpts.GroupAttr
        A group with ``connection`` and further options of oslo.db, all of which are
        passed to the engine.

    Raises
    ------
    sqlalchemy.exc.ArgumentError
        `connection` is not a database URL.
    """
    engine: sa.Engine = engines.create_engine(
        with_time_limits(connection, timeout_s),
        max_retries=0,  # the poll retries
        **{name: value for name, value in options.items() if name != "connection"},
    )
    return engine
