# SPDX-License-Identifier: Apache-2.0
"""Discovery of hosts: host mappings for new compute nodes."""

from __future__ import annotations

import logging

import sqlalchemy as sa
from oslo_db.exception import DBDuplicateEntry

from .directory import CellMappingRow
from .schema import compute_nodes, host_mappings

LOG = logging.getLogger(__name__)


def discover_hosts(
    api_engine: sa.Engine, cell_engine: sa.Engine, cell: CellMappingRow, now: float
) -> int:
    """Map the hosts of a cell's compute nodes whose ``mapped`` is 0 (cf. nova-manage).

    Several processes may do so at once. A host that is mapped to another cell is
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
        found = connection.execute(unmapped.order_by(c.id)).all()
    hosts = sorted({host for _, host in found})
    ours = {host for host in hosts if _is_mapped(api_engine, cell, host, now)}
    mapped = [node_id for node_id, host in found if host in ours]
    if mapped:
        with cell_engine.begin() as connection:
            for node_id in mapped:
                update = compute_nodes.update().where(c.id == node_id, c.deleted == 0)
                connection.execute(update.values(mapped=1))
        LOG.info(
            "Cell %s: mapped %s",
            cell.name or cell.uuid,
            ", ".join(sorted(ours)),
        )
    return len(mapped)


def _is_mapped(engine: sa.Engine, cell: CellMappingRow, host: str, now: float) -> bool:
    """Map a host to this cell unless it is mapped; return whether it is to this one."""
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
