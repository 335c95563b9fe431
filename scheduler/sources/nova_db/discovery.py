# SPDX-License-Identifier: Apache-2.0
"""Discovery of hosts: host mappings for new compute nodes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

import sqlalchemy as sa
from oslo_db.exception import DBDuplicateEntry

from .directory import CellMappingRow
from .polled_databases import ApiDatabase, CellDatabase
from .schema import compute_nodes, host_mappings

LOG = logging.getLogger(__name__)

#: nova runs a periodic task whose interval is 0 every 60 s.
_DEFAULT_PERIOD_S: Final = 60


class PeriodicDiscovery:
    """Maps new hosts of all cells that are up, once an interval.

    Parameters
    ----------
    cells : callable
        Returns the databases of the enabled cells.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        api: ApiDatabase,
        cells: Callable[[], Iterable[CellDatabase]],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._cells = cells
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._begun_at: float | None = None

    def run_if_due(self, interval_s: int) -> None:
        """Discover hosts if the interval is over; a negative one means never."""
        if self._is_due(interval_s):
            self._run()

    def start_if_due(self, interval_s: int) -> None:
        """Do what `run_if_due` does in a thread, unless such a thread is running."""
        if (self._thread and self._thread.is_alive()) or not self._is_due(interval_s):
            return
        self._thread = threading.Thread(
            target=self._run, name="moorage discovery", daemon=True
        )
        self._thread.start()

    def _is_due(self, interval_s: int) -> bool:
        now, period_s = self._clock(), interval_s or _DEFAULT_PERIOD_S
        if period_s < 0:
            return False
        if self._begun_at is not None and now - self._begun_at < period_s:
            return False
        self._begun_at = now
        return True

    def _run(self) -> None:
        for cell in [cell for cell in self._cells() if cell.is_up]:
            try:
                discover_hosts(
                    self._api.engine(), cell.engine(), cell.mapping, self._clock()
                )
            except Exception as e:  # whatever the driver raises; it is retried
                LOG.warning("Discovering hosts of %s failed: %s", cell.what, e)


def discover_hosts(
    api_engine: sa.Engine, cell_engine: sa.Engine, cell: CellMappingRow, now: float
) -> int:
    """Map the hosts of a cell's compute nodes whose ``mapped`` is 0 (cf. nova-manage).

    Several processes may map hosts at once. A host that is mapped to another cell is
    skipped. ``updated_at`` stays as the compute wrote it.

    Parameters
    ----------
    now : float
        Seconds since the epoch.

    Returns
    -------
    int
        The number of compute nodes newly mapped.
    """
    c = compute_nodes.c
    unmapped = sa.select(c.id, c.host).where(
        c.deleted == 0, c.mapped == 0, c.host.is_not(None)
    )
    with cell_engine.connect() as connection:
        nodes = connection.execute(unmapped.order_by(c.id)).all()
    hosts = sorted({host for _, host in nodes})
    mapped_here = {host for host in hosts if _map_host(api_engine, cell, host, now)}
    mapped = [node_id for node_id, host in nodes if host in mapped_here]
    if mapped:
        with cell_engine.begin() as connection:
            for node_id in mapped:
                update = compute_nodes.update().where(c.id == node_id, c.deleted == 0)
                connection.execute(update.values(mapped=1))
        LOG.info(
            "Cell %s: mapped %s",
            cell.name or cell.uuid,
            ", ".join(sorted(mapped_here)),
        )
    return len(mapped)


def _map_host(engine: sa.Engine, cell: CellMappingRow, host: str, now: float) -> bool:
    """Map a host to a cell unless it is mapped; return whether it is in this cell."""
    cell_id = _cell_of(engine, host)
    if cell_id is None:
        try:
            with engine.begin() as connection:
                row = {"host": host, "cell_id": cell.id, "created_at": int(now * 1e6)}
                connection.execute(host_mappings.insert().values(row))
        except (sa.exc.IntegrityError, DBDuplicateEntry):
            LOG.debug("Host %s was mapped concurrently by another process", host)
        cell_id = _cell_of(engine, host)
    if cell_id is not None and cell_id != cell.id:
        LOG.warning(
            "Host %s has an unmapped compute node in cell %s, but is mapped to "
            "another cell",
            host,
            cell.name or cell.uuid,
        )
    return cell_id == cell.id


def _cell_of(engine: sa.Engine, host: str) -> int | None:
    query = sa.select(host_mappings.c.cell_id).where(host_mappings.c.host == host)
    with engine.connect() as connection:
        return connection.execute(query).scalar()
