# SPDX-License-Identifier: Apache-2.0
"""The compute services of a cell, and what changed of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from ..base import ServiceState
from .instances import chunks
from .packing import packed, unpacked
from .reading import Service, ServiceRow, read_service
from .schema import Moment, microseconds, services
from .signatures import Signatures, bucket_of, ids_of, sum_queries
from .times import SMALL, Mark


class Services:
    """The rows of ``services`` of computes.

    All that is read of a row is in its sums: a change is found whatever its time says.
    """

    _c = services.c
    _live = (_c.deleted == 0) & (_c.binary == "nova-compute")
    _seen_us = sa.func.coalesce(
        microseconds(_c.last_seen_up), microseconds(_c.created_at)
    )
    _is_disabled = sa.case((_c.disabled.is_(True), 1), else_=0)
    _is_forced_down = sa.case((_c.forced_down.is_(True), 1), else_=0)
    _version = sa.func.coalesce(_c.version, 0)
    _query = packed(
        _c.id,
        *(_c.id, _c.host, _is_disabled, _is_forced_down, _seen_us, _version),
        microseconds(_c.updated_at),
    ).where(_live)
    _late = _query.where(
        sa.or_(
            _c.updated_at >= sa.bindparam("mark", type_=Moment),
            _c.updated_at.is_(None),
        )
    )
    # Times are whole seconds or as good as never equal: small numbers do not make up
    # for a difference between them.
    sums = sum_queries(
        _c.id,
        sa.func.coalesce(_seen_us, 0)
        + _is_disabled
        + 2 * _is_forced_down
        + 4 * _version,
        _live,
    )

    def __init__(self) -> None:
        self._known: dict[int, Service | None] = {}
        self._mark = Mark()
        self._signatures = Signatures()

    @property
    def is_small(self) -> bool:
        """Whether the table is read whole at each look."""
        return len(self._known) <= SMALL

    def hosts(self) -> set[str]:
        """Return the hosts that have a service."""
        return {service.host for service in self._known.values() if service}

    def look(
        self,
        connection: sa.Connection,
        now: float,
        *,
        in_full: bool,
        total: Sequence[Any] | None = None,
    ) -> dict[int, Service | None]:
        """Return what changed since the last time; see `Nodes.look`."""
        if in_full or self.is_small:
            return self._compare(connection, now, None)
        total = total or connection.execute(self.sums.total).one()
        changes: dict[int, Service | None] = {}
        if not self._signatures.agrees(total):
            values = {"mark": self._mark.us}
            changes = self._take(_rows(connection, self._late, values), now)
        if not self._signatures.agrees(total):
            told = connection.execute(self.sums.by_bucket)
            for bucket in self._signatures.differing(told.all()):
                changes.update(self._compare(connection, now, bucket))
        return changes

    def _compare(
        self, connection: sa.Connection, now: float, bucket: int | None
    ) -> dict[int, Service | None]:
        """Read a bucket's rows, or all."""
        query, ours = self._query, set(self._known)
        if bucket is not None:
            query = query.where(services.c.id.between(*ids_of(bucket)))
            ours = {i for i in ours if bucket_of(i) == bucket}
        rows = _rows(connection, query)
        changes = self._take(rows, now)
        gone = ours.difference(row.id for row in rows)
        for row_id in gone:
            del self._known[row_id]
            self._signatures.drop(row_id)
        changes.update(dict.fromkeys(gone))
        return changes

    def _take(
        self, rows: Iterable[ServiceRow], now: float
    ) -> dict[int, Service | None]:
        changes: dict[int, Service | None] = {}
        for row in rows:
            self._mark.note(row.updated_us, now)
            service = read_service(row)
            if row.id not in self._known or self._known[row.id] != service:
                self._known[row.id] = changes[row.id] = service
                self._signatures.put(row.id, _number(row))
        return changes


#: The states of some hosts' services; nova has an index of their hosts.
_STATES = sa.select(services.c.host, services.c.disabled, services.c.forced_down).where(
    services.c.host.in_(sa.bindparam("hosts", expanding=True)),
    services.c.binary == "nova-compute",
    services.c.deleted == 0,
)


def read_states(
    connection: sa.Connection, hosts: Iterable[str]
) -> dict[str, ServiceState]:
    """Return the states of these hosts' services, by host."""
    rows = (
        row
        for some in chunks(hosts)
        for row in connection.execute(_STATES, {"hosts": some})
    )
    return {
        host: ServiceState(bool(disabled), bool(forced_down))
        for host, disabled, forced_down in rows
    }


def _rows(
    connection: sa.Connection,
    query: sa.Select[str],
    values: Mapping[str, object] | None = None,
) -> list[ServiceRow]:
    return list(map(ServiceRow._make, unpacked(connection, query, values)))


def _number(row: ServiceRow) -> int:
    """Return what the database adds up of a service."""
    return (row.seen_us or 0) + row.disabled + 2 * row.forced_down + 4 * row.version
