# SPDX-License-Identifier: Apache-2.0
"""Reading the compute nodes of a cell, and what changed in them."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from ...polling.polled_table import PolledTable, TableQueries
from ...polling.times import microseconds
from .reading import NodeReader, Ratios
from .schema import compute_nodes
from .services import ComputeService

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A compute node's row, as a poll read it.

    Attributes
    ----------
    version_us : int or None
        The row's ``updated_at``, microseconds since the epoch.
    seen_at : float
        When the poll began that first read this version, seconds since the epoch by the
        local clock.
    values : mapping or None
        The row's values by `HostRecord`'s names; None once they are in the host table.
    shown_with : ComputeService or None
        The service that the node's row in the host table was made with; None: the node
        has no row there.
    """

    id: int
    cell_uuid: str
    uuid: str
    host: str
    nodename: str
    num_instances: int
    version_us: int | None
    seen_at: float
    values: Mapping[str, Any] | None
    shown_with: ComputeService | None = None

    @classmethod
    def of(cls, row: sa.Row[Any], values: Mapping[str, Any], seen_at: float) -> Node:
        """Return the node of a row that was read as these values."""
        return cls(
            row.id,
            values["cell_uuid"],
            values["uuid"],
            values["host"],
            values["nodename"],
            values["num_instances"],
            row.version_us,
            seen_at,
            values,
        )

    @property
    def names(self) -> str | tuple[str, str]:
        """Host and node name; a single string where they are equal."""
        return self.host if self.host == self.nodename else (self.host, self.nodename)

    @property
    def order(self) -> tuple[float, str, int]:
        """The sort key of several rows of one host; the highest row counts."""
        written_us = -math.inf if self.version_us is None else self.version_us
        return written_us, self.cell_uuid, self.id


_C: Final = compute_nodes.c
#: A number that changes with the usage, for rows whose ``updated_at`` is NULL.
_USAGE: Final = (
    sa.cast(sa.func.coalesce(_C.free_ram_mb, -1), sa.BigInteger) * 1000
    + sa.func.coalesce(_C.free_disk_gb, -1) * 100
    + _C.vcpus_used
)
_QUERIES: Final = TableQueries.of(
    compute_nodes,
    number=sa.func.coalesce(microseconds(_C.updated_at), _USAGE),
    columns=[c for c in _C if c.name not in ("id", "updated_at", "deleted", "mapped")],
    live=_C.deleted == 0,
)


class Nodes:
    """Reads which rows of a cell's ``compute_nodes`` have changed.

    Attributes
    ----------
    row_errors : dict
        Error messages of invalid rows, by id.
    """

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._cell_uuid = cell_uuid
        self._reader = NodeReader(cell_uuid, ratios)
        self._table = PolledTable(_QUERIES)
        self.row_errors: dict[int, str] = {}

    def read_changes(
        self, connection: sa.Connection, now: float, *, in_full: bool
    ) -> dict[int, Node | None]:
        """Return what changed since the last call, by id; None: deleted or not usable.

        Parameters
        ----------
        now : float
            When the poll began, seconds since the epoch.
        in_full : bool
            Compare every row.
        """
        rows = self._table.read(connection, now, in_full=in_full)
        changes: dict[int, Node | None] = {}
        for row_id, row in rows.items():
            if row is None:
                self._reader.forget(row_id)
                self.row_errors.pop(row_id, None)
                changes[row_id] = None
                continue
            try:
                values = self._reader.read(row)
            except ValueError as e:
                self._log_row_error(row, e)  # the node keeps its last state
                continue
            self.row_errors.pop(row_id, None)
            changes[row_id] = None if values is None else Node.of(row, values, now)
        return changes

    def _log_row_error(self, row: sa.Row[Any], error: ValueError) -> None:
        text = f"compute node {row.hypervisor_hostname} (uuid {row.uuid}): {error}"
        if self.row_errors.get(row.id) != text:
            self.row_errors[row.id] = text
            LOG.error(
                "Cell %s has an invalid row; its host keeps its last state or is left "
                "out: %s",
                self._cell_uuid,
                text,
            )
