# SPDX-License-Identifier: Apache-2.0
"""Reading cells and aggregates from nova's API database."""

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
from .urls import fill_template

Rows = list[list[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class CellMappingRow:
    """An enabled cell, and the URL of its database."""

    id: int
    uuid: str
    name: str
    connection: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Directory:
    """The cells and aggregates that one poll read."""

    began_at: float
    cells: tuple[CellMappingRow, ...]
    aggregates: tuple[HostAggregate, ...]


class DirectoryReader:
    """Read the API database; the hosts of aggregates only if they changed.

    It must be replaced after a failure.
    """

    def __init__(self, local_connection: str | None) -> None:
        self._local = local_connection
        #: Hosts by aggregate, the checksums of their rows, and the total checksum.
        self._hosts: dict[int, frozenset[str]] = {}
        self._sums: dict[int, tuple[Any, ...]] = {}
        self._total: Rows | None = None

    def read(
        self, connection: sa.Connection, began_at: float, *, in_full: bool = False
    ) -> Directory:
        """Return the current cells and aggregates.

        Parameters
        ----------
        began_at : float
            Now, seconds since the epoch.
        in_full : bool
            Also read the hosts of aggregates whose checksum is unchanged.
        """
        if in_full:
            self._sums, self._total = {}, None
        found: Sequence[Sequence[Any]] = run(connection, _EVERYTHING).all()
        rows = {what: decoded([text or ""]) for what, text in found}
        self._read_hosts(connection, rows["hosts"])
        return Directory(
            began_at=began_at,
            cells=tuple(self._cells(rows["cells"])),
            aggregates=tuple(self._aggregates(rows["aggregates"], rows["metadata"])),
        )

    def _cells(self, rows: Rows) -> Iterable[CellMappingRow]:
        for cell_id, uuid, name, connection, is_disabled in sorted(rows):
            if uuid != schema.CELL0 and not is_disabled:
                url = fill_template(connection or "", self._local)
                yield CellMappingRow(cell_id, uuid, name or "", url)

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
        sums = {i: (n, ids) for i, n, ids in connection.execute(query).all()}
        differing = [i for i, each in sums.items() if self._sums.get(i) != each]
        for some in chunks(differing):
            found: defaultdict[int, set[str]] = defaultdict(set)
            every = packed(c.id, c.aggregate_id, c.host)
            in_some = every.where(c.aggregate_id.in_(some))
            for aggregate_id, host in unpacked(connection, in_some):
                if host is not None:
                    found[aggregate_id].add(sys.intern(host))
            self._hosts.update({i: frozenset(hosts) for i, hosts in found.items()})
        self._hosts = {i: hosts for i, hosts in self._hosts.items() if i in sums}
        self._sums, self._total = sums, total


def _sums_of_hosts() -> tuple[sa.ColumnElement[Any], ...]:
    """Return a checksum of rows that are inserted and deleted, but never updated.

    A new row has a higher id than any before, so the same number of rows then has a
    higher sum. Only SQLite may reuse the id of a deleted row.
    """
    return sa.func.count(), sa.func.sum(schema.aggregate_hosts.c.id)


def _everything() -> sa.CompoundSelect[Any]:
    """Return a query for everything but hosts of aggregates; of these, a checksum."""
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
