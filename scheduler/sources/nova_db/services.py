# SPDX-License-Identifier: Apache-2.0
"""Reading the compute services of a cell, and what changed in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import sqlalchemy as sa

from ..base import ServiceState
from .polled_table import PolledTable, TableQueries, chunks
from .reading import ComputeService, ServiceRow, read_service
from .schema import microseconds, services

_C: Final = services.c
_IS_COMPUTE: Final = (_C.deleted == 0) & (_C.binary == "nova-compute")
_SEEN_US: Final = sa.func.coalesce(
    microseconds(_C.last_seen_up), microseconds(_C.created_at)
)


#: `ServiceRow.state`.
_STATE: Final = (
    sa.func.coalesce(_C.version, 0) * 4
    + sa.case((_C.forced_down.is_(True), 2), else_=0)
    + sa.case((_C.disabled.is_(True), 1), else_=0)
)
_QUERIES: Final = TableQueries.of(
    services,
    # A difference between times is whole seconds, or almost never small enough to be
    # offset by the state.
    number=sa.func.coalesce(_SEEN_US, 0) + _STATE,
    columns=(_C.host, _SEEN_US, _STATE),
    live=_IS_COMPUTE,
)


class Services:
    """The rows of ``services`` of computes."""

    def __init__(self) -> None:
        self._table = PolledTable(_QUERIES, ServiceRow._make, is_complete=True)

    def read_changes(
        self, connection: sa.Connection, now: float, *, in_full: bool
    ) -> dict[int, ComputeService | None]:
        """Return what changed since the last call, by id; None: deleted.

        Parameters
        ----------
        now : float
            When the poll began, seconds since the epoch.
        in_full : bool
            Compare every row.
        """
        read = self._table.read_all if in_full else self._table.read_changes
        rows = read(connection, now).items()
        return {i: None if row is None else read_service(row) for i, row in rows}


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
        for some in chunks(hosts)
        for host, disabled, forced_down in connection.execute(_STATES, {"hosts": some})
    }
