# SPDX-License-Identifier: Apache-2.0
"""Polling one cell's database for what changed since the last poll.

A poll reads one snapshot where the database supports it. Where it does not, instances
are read before compute nodes, so that a node's row is never older than the instances
read with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from .instances import Instances
from .nodes import Node, Nodes
from .reading import Ratios
from .services import ComputeService, polled_services, read_services


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
    recently_written : collection of str
        The UUIDs of the instances whose rows have just changed.
    """

    began_at: float
    is_whole: bool
    nodes: Mapping[int, Node | None]
    services: Mapping[int, ComputeService | None]
    instances: Mapping[str, frozenset[str]]
    recently_written: Collection[str] = ()


class CellReader:
    """Read one cell's database; used by one thread at a time.

    It must be replaced after a failure: what it read may not have been applied.
    """

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._nodes = Nodes(cell_uuid, ratios)
        self._services = polled_services()
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
        in_full = in_full or is_new
        services = self._services.read(connection, began_at, in_full=in_full)
        instances = self._instances.read_changes(connection, began_at, in_full=in_full)
        return CellChanges(
            began_at=began_at,
            is_whole=is_new,
            nodes=self._nodes.read_changes(connection, began_at, in_full=in_full),
            services=read_services(services),
            instances=instances,
            recently_written=self._instances.recently_written,
        )
