# SPDX-License-Identifier: Apache-2.0
"""What nova's API database says: which cells there are, and the aggregates."""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from ...hosts import Aggregate
from . import schema
from .instances import chunks
from .packing import packed, unpacked
from .urls import filled


@dataclasses.dataclass(frozen=True, slots=True)
class CellMapping:
    """An enabled cell, and how to connect to its database."""

    id: int
    uuid: str
    name: str
    connection: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Directory:
    """All that the API database says, as one look found it."""

    began_at: float
    cells: tuple[CellMapping, ...]
    aggregates: tuple[Aggregate, ...]


class DirectoryReader:
    """Read the API database; the hosts of aggregates only where they changed.

    After a failure a new one has to be made.
    """

    def __init__(self, local_connection: str | None) -> None:
        self._local = local_connection
        #: Hosts by aggregate, and what the database added up of their rows, and of all.
        self._hosts: dict[int, frozenset[str]] = {}
        self._sums: dict[int, tuple[Any, ...]] = {}
        self._total: tuple[Any, ...] | None = None

    def read(
        self, connection: sa.Connection, began_at: float, *, in_full: bool = False
    ) -> Directory:
        """Return what it says now.

        Parameters
        ----------
        began_at : float
            Now, seconds since the epoch.
        in_full : bool
            Read also the hosts of aggregates that look unchanged.
        """
        if in_full:
            self._sums, self._total = {}, None
        return Directory(
            began_at=began_at,
            cells=tuple(self._cells(connection)),
            aggregates=tuple(self._aggregates(connection)),
        )

    def _cells(self, connection: sa.Connection) -> Iterable[CellMapping]:
        c = schema.cell_mappings.c
        query = sa.select(c.id, c.uuid, c.name, c.database_connection, c.disabled)
        for row in connection.execute(query.order_by(c.id)).all():
            if row.uuid != schema.CELL0 and not row.disabled:
                url = filled(row.database_connection or "", self._local)
                yield CellMapping(row.id, row.uuid, row.name or "", url)

    def _aggregates(self, connection: sa.Connection) -> Iterable[Aggregate]:
        self._read_hosts(connection)
        metadata: defaultdict[int, dict[str, str]] = defaultdict(dict)
        m = schema.aggregate_metadata.c
        for row in connection.execute(sa.select(m.aggregate_id, m.key, m.value)):
            metadata[row.aggregate_id][row.key] = row.value
        a = schema.aggregates.c
        query = sa.select(a.id, a.uuid, a.name).order_by(a.id)
        for row in connection.execute(query).all():
            yield Aggregate(
                id=row.id,
                uuid=row.uuid or "",
                name=row.name or "",
                hosts=self._hosts.get(row.id, frozenset()),
                metadata=metadata[row.id],
            )

    def _read_hosts(self, connection: sa.Connection) -> None:
        # These rows come and go, but are never written again.
        c = schema.aggregate_hosts.c
        big = sa.cast(c.id, sa.BigInteger)
        sums = sa.func.count(), sa.func.sum(c.id), sa.func.sum(big * big)
        total = tuple(connection.execute(sa.select(*sums)).one())
        if total == self._total:
            return
        by_aggregate = sa.select(c.aggregate_id, *sums).group_by(c.aggregate_id)
        told = {i: tuple(each) for i, *each in connection.execute(by_aggregate).all()}
        differing = [i for i, each in told.items() if self._sums.get(i) != each]
        for some in chunks(differing):
            found: defaultdict[int, set[str]] = defaultdict(set)
            query = packed(c.id, c.aggregate_id, c.host)
            in_some = query.where(c.aggregate_id.in_(some))
            for aggregate_id, host in unpacked(connection, in_some):
                if host is not None:
                    found[aggregate_id].add(sys.intern(host))
            self._hosts.update({i: frozenset(hosts) for i, hosts in found.items()})
        self._hosts = {i: hosts for i, hosts in self._hosts.items() if i in told}
        self._sums, self._total = told, total
