# SPDX-License-Identifier: Apache-2.0
"""Reading the compute services of a cell, and what changed in them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from ...polling.polled_table import (
    US_PER_S,
    ChangedRows,
    PolledTable,
    TableQueries,
    chunks,
)
from ...polling.times import microseconds
from ..base import ServiceState
from .schema import services


class ComputeService(NamedTuple):
    """A compute service of a cell.

    Attributes
    ----------
    last_seen_up : float
        Its last heartbeat, else its creation, seconds since the epoch (the rule of
        nova's servicegroup driver "db"); NaN: neither is known.
    service_version : int
        0: unknown.
    """

    host: str
    disabled: bool
    disabled_reason: str | None
    forced_down: bool
    last_seen_up: float
    service_version: int


#: The columns of the host table that come from a service.
SERVICE_COLUMNS: Final = ComputeService._fields[1:]


_C: Final = services.c
_IS_COMPUTE: Final = (_C.deleted == 0) & (_C.binary == "nova-compute")
_SEEN_US: Final = sa.func.coalesce(
    microseconds(_C.last_seen_up), microseconds(_C.created_at)
)


#: Three columns as one number.
_DISABLED, _FORCED_DOWN, _VERSION = 1, 2, 4
_STATE: Final = (
    sa.case((_C.disabled.is_(True), _DISABLED), else_=0)
    + sa.case((_C.forced_down.is_(True), _FORCED_DOWN), else_=0)
    + sa.func.coalesce(_C.version, 0) * _VERSION
)
_QUERIES: Final = TableQueries.of(
    services,
    # A difference between times is whole seconds, or almost never small enough to be
    # offset by the state.
    number=sa.func.coalesce(_SEEN_US, 0) + _STATE,
    columns=(
        _C.host,
        _SEEN_US.label("seen_us"),
        _STATE.label("state"),
        _C.disabled_reason,
    ),
    live=_IS_COMPUTE,
)


def polled_services() -> PolledTable:
    """Return the table of a cell's compute services, to be polled."""
    return PolledTable(_QUERIES, is_complete=True)


def read_services(rows: ChangedRows) -> dict[int, ComputeService | None]:
    """Return the services of rows; None: deleted, or without a host."""
    return {i: None if row is None else _read(row) for i, row in rows.items()}


def _read(row: sa.Row[Any]) -> ComputeService | None:
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


#: Selects the states of some hosts' services; nova has an index on host.
_STATES: Final = sa.select(_C.host, _C.disabled, _C.forced_down).where(
    _C.host.in_(sa.bindparam("hosts", expanding=True)), _IS_COMPUTE
)


def read_states(
    connection: sa.Connection, hosts: Iterable[str]
) -> dict[str, ServiceState]:
    """Return the states of these hosts' services, by host."""
    return {
        host: ServiceState(bool(disabled), bool(forced_down))
        for chunk in chunks(hosts)
        for host, disabled, forced_down in connection.execute(_STATES, {"hosts": chunk})
    }
