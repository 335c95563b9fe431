# SPDX-License-Identifier: Apache-2.0
"""Reading the compute services of a cell, and what changed in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from ..base import ServiceState
from .checksums import TableChecksum, bucket_of, checksum_queries, ids_of
from .instances import chunks
from .packing import packed, unpacked
from .reading import ComputeService, ServiceRow, read_service
from .schema import UtcMicroseconds, microseconds, services
from .times import SMALL, HighWaterMark


class Services:
    """The rows of ``services`` of computes.

    The checksum covers all columns read: it finds changes whatever a row's time is.
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
            _c.updated_at >= sa.bindparam("mark", type_=UtcMicroseconds),
            _c.updated_at.is_(None),
        )
    )
    # A difference between times is whole seconds, or almost never small enough to be
    # offset by the other terms.
    sums = checksum_queries(
        _c.id,
        sa.func.coalesce(_seen_us, 0)
        + _is_disabled
        + 2 * _is_forced_down
        + 4 * _version,
        _live,
    )

    def __init__(self) -> None:
        self._known: dict[int, ComputeService | None] = {}
        self._mark = HighWaterMark()
        self._checksum = TableChecksum()

    @property
    def is_small(self) -> bool:
        """Whether the table is read whole at each poll."""
        return len(self._known) <= SMALL

    def hosts(self) -> set[str]:
        """Return the hosts that have a service."""
        return {service.host for service in self._known.values() if service}

    def read_changes(
        self,
        connection: sa.Connection,
        now: float,
        *,
        in_full: bool,
        total: Sequence[Any] | None = None,
    ) -> dict[int, ComputeService | None]:
        """Return what changed since the last call; see `Nodes.read_changes`."""
        if in_full or self.is_small:
            return self._compare(connection, now, None)
        total = total or connection.execute(self.sums.total).one()
        changes: dict[int, ComputeService | None] = {}
        if not self._checksum.matches(total):
            values = {"mark": self._mark.us}
            changes = self._apply_rows(_rows(connection, self._late, values), now)
        if not self._checksum.matches(total):
            buckets = connection.execute(self.sums.by_bucket)
            for bucket in self._checksum.differing(buckets.all()):
                changes.update(self._compare(connection, now, bucket))
        return changes

    def _compare(
        self, connection: sa.Connection, now: float, bucket: int | None
    ) -> dict[int, ComputeService | None]:
        """Compare a bucket's rows, or all rows."""
        query, ours = self._query, set(self._known)
        if bucket is not None:
            query = query.where(services.c.id.between(*ids_of(bucket)))
            ours = {i for i in ours if bucket_of(i) == bucket}
        rows = _rows(connection, query)
        changes = self._apply_rows(rows, now)
        gone = ours.difference(row.id for row in rows)
        for row_id in gone:
            del self._known[row_id]
            self._checksum.drop(row_id)
        changes.update(dict.fromkeys(gone))
        return changes

    def _apply_rows(
        self, rows: Iterable[ServiceRow], now: float
    ) -> dict[int, ComputeService | None]:
        changes: dict[int, ComputeService | None] = {}
        for row in rows:
            self._mark.observe(row.updated_us, now)
            service = read_service(row)
            if row.id not in self._known or self._known[row.id] != service:
                self._known[row.id] = changes[row.id] = service
                self._checksum.put(row.id, _number(row))
        return changes


#: Selects the states of some hosts' services; nova has an index on host.
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
    """Return the number of a service that its checksum sums."""
    return (row.seen_us or 0) + row.disabled + 2 * row.forced_down + 4 * row.version
