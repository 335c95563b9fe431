# SPDX-License-Identifier: Apache-2.0
"""What nova's API database says: which cells there are, and the aggregates."""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from ...hosts import HostAggregate
from . import schema
from .instances import chunks
from .packing import decoded, joined, json_row, packed, run, unpacked
from .urls import filled

Rows = list[list[Any]]


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
    aggregates: tuple[HostAggregate, ...]


class DirectoryReader:
    """Read the API database; the hosts of aggregates only where they changed.

    After a failure a new one has to be made.
    """

    def __init__(self, local_connection: str | None) -> None:
        self._local = local_connection
        #: Hosts by aggregate, and what the database added up of their rows, and of all.
        self._hosts: dict[int, frozenset[str]] = {}
        self._sums: dict[int, tuple[Any, ...]] = {}
        self._total: Rows | None = None

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
        found: Sequence[Sequence[Any]] = run(connection, _EVERYTHING).all()
        told = {what: decoded([text or ""]) for what, text in found}
        self._read_hosts(connection, told["hosts"])
        return Directory(
            began_at=began_at,
            cells=tuple(self._cells(told["cells"])),
            aggregates=tuple(self._aggregates(told["aggregates"], told["metadata"])),
        )

    def _cells(self, rows: Rows) -> Iterable[CellMapping]:
        for cell_id, uuid, name, connection, is_disabled in sorted(rows):
            if uuid != schema.CELL0 and not is_disabled:
                url = filled(connection or "", self._local)
                yield CellMapping(cell_id, uuid, name or "", url)

    def _aggregates(self, rows: Rows, metadata: Rows) -> Iterable[HostAggregate]:
        of_aggregate: defaultdict[int, dict[str, str]] = defaultdict(dict)
        for aggregate_id, key, value in metadata:
            of_aggregate[aggregate_id][key] = value
        for aggregate_id, uuid, name in sorted(rows):
            yield HostAggregate(
                id=aggregate_id,
                uuid=uuid or "",
                name=name or "",
                hosts=self._hosts.get(aggregate_id, frozenset()),
                metadata=of_aggregate[aggregate_id],
            )

    def _read_hosts(self, connection: sa.Connection, total: Rows) -> None:
        if total == self._total:
            return
        c = schema.aggregate_hosts.c
        by_aggregate = sa.select(c.aggregate_id, *_sums_of_hosts())
        query = by_aggregate.group_by(c.aggregate_id)
        told = {i: (n, ids) for i, n, ids in connection.execute(query).all()}
        differing = [i for i, each in told.items() if self._sums.get(i) != each]
        for some in chunks(differing):
            found: defaultdict[int, set[str]] = defaultdict(set)
            every = packed(c.id, c.aggregate_id, c.host)
            in_some = every.where(c.aggregate_id.in_(some))
            for aggregate_id, host in unpacked(connection, in_some):
                if host is not None:
                    found[aggregate_id].add(sys.intern(host))
            self._hosts.update({i: frozenset(hosts) for i, hosts in found.items()})
        self._hosts = {i: hosts for i, hosts in self._hosts.items() if i in told}
        self._sums, self._total = told, total


def _sums_of_hosts() -> tuple[sa.ColumnElement[Any], ...]:
    """Return what tells sets of rows apart that come and go and are never changed.

    A new row has an id higher than any before: as many of them have a higher sum. Only
    SQLite may give a row the id of one that is gone.
    """
    return sa.func.count(), sa.func.sum(schema.aggregate_hosts.c.id)


def _everything() -> sa.CompoundSelect[Any]:
    """Return what selects all but the hosts of aggregates, of which only sums."""
    cells, aggregates = schema.cell_mappings.c, schema.aggregates.c
    metadata = schema.aggregate_metadata.c
    columns = {
        "aggregates": (aggregates.id, aggregates.uuid, aggregates.name),
        "metadata": (metadata.aggregate_id, metadata.key, metadata.value),
        "cells": (
            cells.id,
            cells.uuid,
            cells.name,
            cells.database_connection,
            cells.disabled,
        ),
    }
    texts: dict[str, sa.ColumnElement[str]] = {"hosts": json_row(*_sums_of_hosts())}
    texts |= {what: joined(json_row(*each)) for what, each in columns.items()}
    return sa.union_all(
        *(
            sa.select(sa.literal_column(f"'{what}'"), text)
            for what, text in texts.items()
        )
    )


_EVERYTHING: Final = _everything()
