# SPDX-License-Identifier: Apache-2.0
"""What one cell's database holds, and what changed of it since it was read last.

A look at a cell costs what changed, not what is there:

1. a few sums, asked for at once, tell whether anything changed (`signatures`);
2. if so, rows whose ``updated_at`` is NULL, or not before the highest one seen, are
   read;
3. if the sums still differ, those of buckets of ids tell which rows to compare one by
   one: rows whose time went back, of a host whose clock is wrong, or that are gone.

Instances are too many to be summed up at each look. Their sums are those of what was
written lately, and of some of the hosts: each host's turn comes every ten seconds.

Rows that changed some moments ago are read in any case: they may change again and have
the same time, as MariaDB keeps whole seconds. Instances may be committed late: the sums
are those of the last minute's, which only moves on as the rows' clocks do.

Times of rows are compared with each other, never trusted against our clock. A small
table is read whole: that costs less than to ask. All of a look reads one snapshot where
the database has them; instances are read before compute nodes where it has none, so
that a node's row is never older than the instances that are seen with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from .instances import Instances
from .nodes import Node, Nodes
from .packing import run, written_out
from .reading import Service
from .services import Services
from .settings import Ratios


@dataclasses.dataclass(slots=True)
class CellChanges:
    """What a look at a cell found.

    Attributes
    ----------
    began_at : float
        When the look began, seconds since the epoch.
    is_whole : bool
        All that the cell has; what is not in here is not there.
    nodes, services : mapping
        By id; None: gone, or of no use.
    instances : mapping
        The UUIDs of all instances of a service host, by host.
    """

    began_at: float
    is_whole: bool
    nodes: Mapping[int, Node | None]
    services: Mapping[int, Service | None]
    instances: Mapping[str, frozenset[str]]


#: Asks for the sums of all tables at once: the sums, and of which table.
_TOTALS: Final = written_out(
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
    """What was read of one cell's database; used by one thread at a time.

    After a failure a new one has to be made: what this one knows may never have been
    handed on.
    """

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._nodes = Nodes(cell_uuid, ratios)
        self._services = Services()
        self._instances = Instances()
        self._is_new = True

    @property
    def troubles(self) -> tuple[str, ...]:
        """The rows that cannot be understood, with what is wrong."""
        return tuple(self._nodes.troubles.values())

    def read(
        self, connection: sa.Connection, began_at: float, *, in_full: bool = False
    ) -> CellChanges:
        """Return what changed since the last time; everything, the first time.

        Parameters
        ----------
        began_at : float
            Now, seconds since the epoch.
        in_full : bool
            Compare every row, also where nothing says that it changed.
        """
        is_new, self._is_new = self._is_new, False
        compares = in_full or is_new
        asked = self._instances.begin(began_at) | self._nodes.begin(began_at)
        totals: Mapping[str, Sequence[Any]] = {}
        if not compares and not self._is_small and _has_snapshots(connection):
            found = run(connection, _TOTALS, asked)
            totals = {row[-1]: row[:-1] for row in found}
        # First what is small: it is decoded while other cells' rows are on their way.
        services = self._services.look(
            connection, began_at, in_full=compares, total=totals.get("services")
        )
        instances = self._instances.look(
            connection,
            began_at,
            in_full=compares,
            total=totals.get("instances"),
            hosts=self._services.hosts,
        )
        nodes = self._nodes.look(
            connection, began_at, in_full=compares, total=totals.get("nodes")
        )
        return CellChanges(began_at, is_new, nodes, services, instances)

    @property
    def _is_small(self) -> bool:
        """Whether all tables are read whole at each look, and no sums are needed."""
        parts = (self._instances, self._services, self._nodes)
        return all(part.is_small for part in parts)


def _has_snapshots(connection: sa.Connection) -> bool:
    """Return whether all that is asked in one look is asked of one state.

    PostgreSQL is asked for that; MariaDB and MySQL may be configured otherwise.
    """
    if connection.dialect.name in ("mysql", "mariadb"):
        return connection.default_isolation_level in ("REPEATABLE READ", "SERIALIZABLE")
    return connection.dialect.name == "postgresql"
