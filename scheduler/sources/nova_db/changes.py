# SPDX-License-Identifier: Apache-2.0
"""Polling one cell's database for the rows that changed since the last poll.

The cost of a poll grows with the number of changes, not of rows:

1. one query for a few checksums finds whether anything changed (`checksums`);
2. if so, rows whose ``updated_at`` is NULL, or not before the highest one seen, are
   read;
3. if the checksums still differ, those of buckets of ids show which rows to compare one
   by one: rows whose time went back, of a host with a wrong clock, or deleted rows.

Instances are too many for checksums of all at each poll. Theirs cover the recently
written rows, and some of the hosts: each host is compared every ten seconds.

Rows that changed a moment ago are always read again: they may change again with the
same time, as MariaDB stores whole seconds. Instances may be committed late: the
checksum covers the last minute, by the rows' own times.

Times of rows are compared with each other; the local clock is not trusted. A small
table is read whole, which is cheaper than checksums. A poll reads one snapshot where
the database supports it. Where it does not, instances are read before compute nodes, so
that a node's row is never older than the instances read with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from .instances import Instances
from .nodes import Node, Nodes
from .packing import inline_numbers, run
from .reading import ComputeService
from .services import Services
from .settings import Ratios


@dataclasses.dataclass(slots=True)
class CellChanges:
    """The changes that a poll of a cell found.

    Attributes
    ----------
    began_at : float
        When the poll began, seconds since the epoch.
    is_whole : bool
        Whether these are all rows of the cell, rather than the changed ones.
    nodes, services : mapping
        By id; None: deleted or not usable.
    instances : mapping
        The UUIDs of all instances of a service host, by host.
    """

    began_at: float
    is_whole: bool
    nodes: Mapping[int, Node | None]
    services: Mapping[int, ComputeService | None]
    instances: Mapping[str, frozenset[str]]


#: Selects the checksums of all tables: the sums, and the table's name.
_TOTALS: Final = inline_numbers(
    sa.union_all(
        *(
            part.sums.total.add_columns(sa.literal_column(f"'{what}'"))
            for what, part in (
                ("instances", Instances),
                ("services", Services),
                ("nodes", Nodes),
            )
        )
    )
)


class CellReader:
    """Read one cell's database; used by one thread at a time.

    It must be replaced after a failure: what it read may not have been applied.
    """

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._nodes = Nodes(cell_uuid, ratios)
        self._services = Services()
        self._instances = Instances()
        self._is_new = True

    @property
    def row_errors(self) -> tuple[str, ...]:
        """The errors of invalid rows."""
        return tuple(self._nodes.row_errors.values())

    def read(
        self, connection: sa.Connection, began_at: float, *, in_full: bool = False
    ) -> CellChanges:
        """Return what changed since the last call; the first call returns everything.

        Parameters
        ----------
        began_at : float
            Now, seconds since the epoch.
        in_full : bool
            Compare every row, even if its time and checksum are unchanged.
        """
        is_new, self._is_new = self._is_new, False
        compares = in_full or is_new
        asked = self._instances.begin(began_at) | self._nodes.begin(began_at)
        totals: Mapping[str, Sequence[Any]] = {}
        if not compares and not self._is_small and _has_snapshots(connection):
            found = run(connection, _TOTALS, asked)
            totals = {row[-1]: row[:-1] for row in found}
        # Small tables first: they are decoded while other cells' queries run.
        services = self._services.read_changes(
            connection, began_at, in_full=compares, total=totals.get("services")
        )
        instances = self._instances.read_changes(
            connection,
            began_at,
            in_full=compares,
            total=totals.get("instances"),
            hosts=self._services.hosts,
        )
        nodes = self._nodes.read_changes(
            connection, began_at, in_full=compares, total=totals.get("nodes")
        )
        return CellChanges(began_at, is_new, nodes, services, instances)

    @property
    def _is_small(self) -> bool:
        """Whether all tables are read whole at each poll, without checksums."""
        parts = (self._instances, self._services, self._nodes)
        return all(part.is_small for part in parts)


def _has_snapshots(connection: sa.Connection) -> bool:
    """Return whether all queries of a poll read one snapshot.

    `PolledDatabase` requests it of PostgreSQL; MariaDB and MySQL may be configured
    otherwise.
    """
    if connection.dialect.name in ("mysql", "mariadb"):
        return connection.default_isolation_level in ("REPEATABLE READ", "SERIALIZABLE")
    return connection.dialect.name == "postgresql"
