# SPDX-License-Identifier: Apache-2.0
"""Reading the compute services of a cell, and what changed in them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from ...polling.polled_table import (
    ChangedRows,
    PolledTable,
    TableQueries,
    chunks,
)
from ...polling.times import US_PER_S, microseconds
from ..base import ServiceState
from .schema import services


class ComputeService(NamedTuple):
    """A compute service of a cell.

    Attributes
    ----------
    last_seen_up : float
        The time of the last heartbeat or, before the first one, of the service's
        creation, seconds since the epoch (the rule of nova's servicegroup driver "db");
        NaN: neither is known.
    service_version : int
        nova's version number of the service; 0: unknown.
    """

    host: str
    disabled: bool
    disabled_reason: str | None
    forced_down: bool
    last_seen_up: float
    service_version: int


#: The columns of the host table that come from a service.
SERVICE_COLUMNS: Final = ComputeService._fields[1:]


_COLUMNS: Final = services.c
_IS_COMPUTE: Final = (_COLUMNS.deleted == 0) & (_COLUMNS.binary == "nova-compute")
_LAST_SEEN_UP_US: Final = sa.func.coalesce(
    microseconds(_COLUMNS.last_seen_up), microseconds(_COLUMNS.created_at)
)


#: Disabled, forced_down and version as one number: two bits, and a factor.
_DISABLED, _FORCED_DOWN, _VERSION = 1, 2, 4
_STATE: Final = (
    sa.case((_COLUMNS.disabled.is_(True), _DISABLED), else_=0)
    + sa.case((_COLUMNS.forced_down.is_(True), _FORCED_DOWN), else_=0)
    + sa.func.coalesce(_COLUMNS.version, 0) * _VERSION
)
_QUERIES: Final = TableQueries.of(
    services,
    # The sum changes if either part does. Only a change of the time by as many
    # microseconds as the state changes by could offset it: times differ by whole
    # seconds or, where fractions are stored, almost never by so little.
    number=sa.func.coalesce(_LAST_SEEN_UP_US, 0) + _STATE,
    columns=(
        _COLUMNS.host,
        _LAST_SEEN_UP_US.label("seen_us"),
        _STATE.label("state"),
        _COLUMNS.disabled_reason,
    ),
    live=_IS_COMPUTE,
)


def polled_services() -> PolledTable:
    """Return a `PolledTable` for the compute services of one cell."""
    return PolledTable(_QUERIES, is_complete=True)


def read_services(rows: ChangedRows) -> dict[int, ComputeService | None]:
    """Return the services of rows by id; None: deleted, or without a host."""
    return {
        row_id: None if row is None else _read_service(row)
        for row_id, row in rows.items()
    }


def _read_service(row: sa.Row[Any]) -> ComputeService | None:
    if row.host is None:
        return None
    return ComputeService(
        host=sys.intern(row.host),
        disabled=bool(row.state & _DISABLED),
        disabled_reason=row.disabled_reason,
        forced_down=bool(row.state & _FORCED_DOWN),
        last_seen_up=math.nan if row.seen_us is None else row.seen_us / US_PER_S,
        service_version=row.state // _VERSION,
    )


#: Selects whether services of given hosts are disabled or forced down; nova has an
#: index on host.
_STATES: Final = sa.select(
    _COLUMNS.host, _COLUMNS.disabled, _COLUMNS.forced_down
).where(_COLUMNS.host.in_(sa.bindparam("hosts", expanding=True)), _IS_COMPUTE)


def read_states(
    connection: sa.Connection, hosts: Iterable[str]
) -> dict[str, ServiceState]:
    """Return the states of the compute services of given hosts, by host."""
    return {
        host: ServiceState(bool(disabled), bool(forced_down))
        for chunk in chunks(hosts)
        for host, disabled, forced_down in connection.execute(_STATES, {"hosts": chunk})
    }
