# SPDX-License-Identifier: Apache-2.0
"""The source nova_db over databases one of which is behind a faulty proxy."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

import sqlalchemy as sa

from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.nova_db import NovaDBSource
from moorage.scheduler.sources.nova_db.engines import Engines

from ..fixtures.nova_databases import Cell, NovaDatabases
from ..fixtures.nova_rows import THEN
from ..fixtures.tcp_proxy import TcpProxy
from .compared import conf_of

CELL_TIMEOUT_S = 2.0
CELL_GRACE_S = 600.0

_PATIENCE_S = 60.0


class ProxiedSource:
    """Our source with the first cell's database behind a proxy, for a `with`.

    Parameters
    ----------
    is_api : bool
        The proxy is before the API database instead.

    Attributes
    ----------
    proxy : TcpProxy
    now : float
        The source's clock, seconds since the epoch.
    """

    def __init__(self, databases: NovaDatabases, *, is_api: bool = False) -> None:
        self.cell: Cell = databases.cells[0]
        self._databases = databases
        self._url = sa.make_url(databases.api_url if is_api else self.cell.url)
        self._is_api = is_api
        assert self._url.port is not None
        self.proxy = TcpProxy(self._url.port, slow_s=2 * CELL_TIMEOUT_S)
        self.now = THEN.replace(tzinfo=datetime.UTC).timestamp()
        self.table = HostTable()

    def __enter__(self) -> ProxiedSource:
        self.proxy.setUp()
        url = self._url.set(port=self.proxy.port)
        through = url.render_as_string(hide_password=False)
        limits = {"cell_timeout": CELL_TIMEOUT_S, "cell_grace": CELL_GRACE_S}
        conf = conf_of(self._databases, {"moorage": limits})
        if self._is_api:
            conf.set_override("connection", through, group="api_database")
        else:
            self._databases.change_mapping(self.cell, database_connection=through)
        self._engines = Engines(conf)
        self.source = NovaDBSource(
            self._engines.api(), self._engines.cell, conf=conf, clock=lambda: self.now
        )
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.source.stop()
        self.proxy.cleanUp()
        self._engines.dispose()
        connection = self.cell.connection
        self._databases.change_mapping(self.cell, database_connection=connection)

    def poll(self, *, after_s: float = 0.0) -> None:
        """Look as a decision does, when so much time has passed."""
        self.now += after_s
        self.source.refresh_if_stale(self.table)

    def hosts(self) -> set[str]:
        """Return the nodes of the first cell that have a row."""
        return set(self.table.nodes_of(None, None, self.cell.uuid))

    def others(self) -> int:
        """Count the rows of all other cells."""
        return len(self.table) - len(self.hosts())

    def until(self, is_so: Callable[[], bool]) -> None:
        """Look again and again, a second of the source's clock later each time."""
        ends_at = time.monotonic() + _PATIENCE_S
        while not is_so():
            assert time.monotonic() < ends_at, "the condition never became true"
            time.sleep(0.05)
            self.poll(after_s=1.0)

    def until_it_is_noted(self) -> None:
        """Poll until the source reports that something is away."""
        self.until(lambda: bool(self.source.notes()))
