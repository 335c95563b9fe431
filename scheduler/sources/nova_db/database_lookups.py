# SPDX-License-Identifier: Apache-2.0
"""Single questions that a decision asks nova's databases, beside the polls."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from ....objects import Flavor
from ...errors import InvalidRequest
from ...failures import Failure, cause_of
from ...instances import InstanceLocation, InstanceState
from ..base import (
    BuildRequestUnavailable,
    FlavorsUnavailable,
    GroupsUnavailable,
    ServiceHost,
    ServiceState,
)
from .build_requests import read_boot_volumes
from .databases import ApiDatabase, CellDatabase
from .flavors import read_flavors
from .schema import CELL0, cell_mappings, instance_mappings, instances
from .server_groups import GroupReader
from .services import read_states

LOG = logging.getLogger(__name__)

#: The option of the API database's URL, and what is wrong with one that fails.
API_OPTION: Final = "[api_database] connection"
AS_API_DATABASE: Final = "It has to be that of nova's API database"
#: States of an instance without a host and without a task in which nothing starts it on
#: a host: only a new request does.
_ON_NO_HOST: Final = ("error", "shelved_offloaded")


class DatabaseLookups:
    """Reads what the host table does not hold.

    Parameters
    ----------
    cells : callable
        Returns the databases of the enabled cells.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        api: ApiDatabase,
        cells: Callable[[], Iterable[CellDatabase]],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._cells = cells
        self._groups = GroupReader(clock)

    def service_states(
        self, hosts: Collection[ServiceHost]
    ) -> Mapping[ServiceHost, ServiceState]:
        """Read the rows of these services.

        A database that is unavailable, or slow to answer a poll, is not queried.
        """
        by_cell: defaultdict[str, list[str]] = defaultdict(list)
        for cell_uuid, host in hosts:
            by_cell[cell_uuid].append(host)
        return {
            (cell.mapping.uuid, host): state
            for cell in (self._cells() if by_cell else ())
            if cell.mapping.uuid in by_cell and cell.is_prompt
            for host, state in _states_of(cell, by_cell[cell.mapping.uuid]).items()
        }

    def locate_instance(self, instance_uuid: str) -> InstanceLocation:
        """Look up an instance in each cell's database, then in the API database.

        An instance without a row or without a host is pending, as it may still be
        built, unless it was deleted or has failed. nova sets a task state before it
        requests a host for a move, and resets it when the move is over. If a database
        does not answer, the location is unknown.
        """
        rows = instances.c
        wanted = sa.select(
            rows.host, rows.deleted, rows.vm_state, rows.task_state
        ).where(
            rows.uuid == instance_uuid,
            # The copy in the other cell during a resize between cells.
            rows.hidden.isnot(sa.true()),
        )
        state = InstanceState.PENDING
        for cell in self._cells():
            try:
                with cell.engine().connect() as connection:
                    row = connection.execute(wanted).first()
            except Exception as e:  # oslo.db has classes of its own
                LOG.debug(
                    "Locating an instance in %s failed: %s", cell.what, cause_of(e)
                )
                state = InstanceState.UNKNOWN
                continue
            if row is None:
                continue
            is_settled = not row.task_state
            if row.deleted:
                return InstanceLocation(InstanceState.GONE)
            if row.host:
                return InstanceLocation(InstanceState.ON_HOST, row.host, is_settled)
            if is_settled and row.vm_state in _ON_NO_HOST:
                return InstanceLocation(InstanceState.GONE)
        if state is InstanceState.PENDING:
            state = self._state_without_host(instance_uuid)
        return InstanceLocation(state)

    def _state_without_host(self, instance_uuid: str) -> InstanceState:
        """Return the state of an instance that has no host in any cell.

        nova puts those that could not be scheduled into cell0.
        """
        mapping = instance_mappings.c
        wanted = (
            sa.select(cell_mappings.c.uuid, mapping.queued_for_delete)
            .select_from(
                instance_mappings.outerjoin(
                    cell_mappings, mapping.cell_id == cell_mappings.c.id
                )
            )
            .where(mapping.instance_uuid == instance_uuid)
        )
        try:
            with self._api.engine().connect() as connection:
                row = connection.execute(wanted).first()
        except Exception as e:  # oslo.db has classes of its own
            LOG.debug("Locating an instance failed: %s", cause_of(e))
            return InstanceState.UNKNOWN
        is_gone = row is not None and (row.queued_for_delete or row.uuid == CELL0)
        return InstanceState.GONE if is_gone else InstanceState.PENDING

    def boot_volumes(self, instance_uuid: str) -> Sequence[str]:
        """Read the build request of an instance from the API database.

        It exists until the instance is in a cell: one that is moved has none.
        """
        try:
            with self._api.engine().connect() as connection:
                return read_boot_volumes(connection, instance_uuid)
        except Exception as e:  # oslo.db has classes of its own
            raise BuildRequestUnavailable(
                f"Reading a build request of nova failed: {cause_of(e)}"
            ) from e

    def flavors(self, names: Collection[str] | None) -> Sequence[Flavor]:
        """Read flavors from the API database."""
        engine = self._api.engine()
        try:
            with engine.connect() as connection:
                return read_flavors(connection, names)
        except InvalidRequest:
            raise
        except Exception as e:  # oslo.db has classes of its own
            url = engine.url.set(query={})
            failure = Failure.of(API_OPTION, url, e, AS_API_DATABASE)
            raise FlavorsUnavailable(f"Reading nova's flavors failed: {failure}") from e

    def members_of_groups(
        self,
        uuids: Collection[str],
        project_id: str,
        is_placed: Callable[[str], bool],
    ) -> Mapping[str, frozenset[str]]:
        """Read the members of a project's groups from the API database."""
        unread = self._groups.unread(uuids, project_id)
        if not unread:
            return {}
        if not self._api.is_prompt:
            raise GroupsUnavailable(self._api.describe())
        try:
            with self._api.engine().connect() as connection:
                return self._groups.read(connection, unread, project_id, is_placed)
        except Exception as e:  # oslo.db has classes of its own
            raise GroupsUnavailable(
                f"Reading server groups of {self._api.what} failed: {cause_of(e)}"
            ) from e


def _states_of(
    cell: CellDatabase, hosts: Collection[str]
) -> Mapping[str, ServiceState]:
    try:
        with cell.engine().connect() as connection:
            return read_states(connection, hosts)
    except Exception as e:  # oslo.db has classes of its own
        LOG.debug("Reading services of %s failed: %s", cell.what, cause_of(e))
        return {}
