# SPDX-License-Identifier: Apache-2.0
"""Engines of nova's databases, with timeouts of ``[moorage] cell_timeout``."""

from __future__ import annotations

import threading

import sqlalchemy as sa
from oslo_config import cfg

from ...polling.engines import create_engine


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
        self._by_connection: dict[str, sa.Engine] = {}

    def api(self) -> sa.Engine:
        """Return the engine of the API database, which is not connected yet.

        Raises
        ------
        sqlalchemy.exc.ArgumentError
            ``[api_database] connection`` is not a database URL.
        """
        return self._engine(self._conf.api_database.connection, self._conf.api_database)

    def cell(self, connection: str) -> sa.Engine:
        """Return the engine of a cell's database.

        Raises
        ------
        sqlalchemy.exc.ArgumentError
            `connection` is not a database URL.
        """
        return self._engine(connection, self._conf.database)

    def _engine(self, connection: str, options: cfg.ConfigOpts.GroupAttr) -> sa.Engine:
        with self._lock:
            engine = self._by_connection.get(connection)
            if engine is None:
                limit_s = self._conf.moorage.cell_timeout
                engine = create_engine(connection, options, limit_s)
                self._by_connection[connection] = engine
            return engine

    def dispose(self) -> None:
        """Close all connections; the engines stay usable."""
        with self._lock:
            for engine in self._by_connection.values():
                engine.dispose()
