# SPDX-License-Identifier: Apache-2.0
"""Lookups in nova's databases for single decisions, in addition to the polls.

Server groups, flavors, build requests, and where instances and services are.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from cachetools import TTLCache
from oslo_config import cfg
from oslo_utils import uuidutils

from ....objects import Flavor, MalformedObject, RequestSpec, Serializer
from ...decoding import loads
from ...errors import InvalidRequest
from ...failures import Failure, cause_of
from ...instances import InstanceLocation, InstanceState
from ...polling.polled_table import chunks
from ..base import (
    BaseHostSource,
    BuildRequestUnavailable,
    FlavorsUnavailable,
    GroupsUnavailable,
    RequestsUnavailable,
    ServiceHost,
    ServiceState,
)
from . import schema
from .polled_databases import API_OPTION, AS_API_DATABASE, CellDatabase, PolledDatabases
from .schema import (
    CELL0,
    cell_mappings,
    instance_group_member,
    instance_groups,
    instance_mappings,
    instances,
)
from .services import read_states

LOG = logging.getLogger(__name__)

#: Longest block device mappings that are read: an instance may have dozens of devices,
#: of about a kilobyte each.
_MAX_CHARACTERS: Final = 1 << 20

_C: Final = schema.build_requests.c
_MAPPINGS_OF: Final = sa.select(_C.block_device_mappings).where(
    _C.instance_uuid == sa.bindparam("instance_uuid"),
    sa.func.length(_C.block_device_mappings) <= _MAX_CHARACTERS,
)


def read_boot_volumes(connection: sa.Connection, instance_uuid: str) -> Sequence[str]:
    """Return the volume that a new instance boots from, if it exists already.

    The result is empty if the compute host creates the volume, from an image or a
    snapshot.
    """
    row = connection.execute(_MAPPINGS_OF, {"instance_uuid": instance_uuid}).first()
    if row is None or not row.block_device_mappings:
        return ()
    return tuple(_boot_volumes(loads(row.block_device_mappings)))


def _boot_volumes(primitive: Any) -> Iterator[str]:  # noqa: ANN401 - JSON's own types
    """Yield the volume of a BlockDeviceMappingList that has boot index 0."""
    for mapping in primitive["nova_object.data"]["objects"]:
        match mapping["nova_object.data"]:
            case {"boot_index": 0, "volume_id": str(uuid)} if uuidutils.is_uuid_like(
                uuid
            ):
                yield uuid


#: Longest request spec that is read: one with many networks and devices has some dozens
#: of kilobytes.
_MAX_SPEC: Final = 1 << 20
_REQUESTS: Final = schema.request_specs.c
_REQUESTS_OF: Final = sa.select(_REQUESTS.instance_uuid, _REQUESTS.spec).where(
    _REQUESTS.instance_uuid.in_(sa.bindparam("uuids", expanding=True)),
    sa.func.length(_REQUESTS.spec) <= _MAX_SPEC,
)


def read_requests(
    connection: sa.Connection, instance_uuids: Iterable[str]
) -> dict[str, RequestSpec]:
    """Return the request specs of instances, as nova keeps them current.

    One that cannot be read is logged and left out.
    """
    requests: dict[str, RequestSpec] = {}
    for uuids in chunks(instance_uuids):
        for row in connection.execute(_REQUESTS_OF, {"uuids": uuids}):
            try:
                spec = Serializer().deserialize_entity(None, loads(row.spec))
            except (ValueError, MalformedObject) as e:
                LOG.warning("The request spec of %s: %s", row.instance_uuid, e)
                continue
            if isinstance(spec, RequestSpec):
                requests[row.instance_uuid] = spec
    return requests


#: Most flavors that are read at once.
MAX_FLAVORS: Final = 1000

_FLAVORS, _SPECS = schema.flavors.c, schema.flavor_extra_specs.c
_SIZES: Final = (
    sa.select(
        *(_FLAVORS.id, _FLAVORS.name, _FLAVORS.flavorid, _FLAVORS.vcpus),
        *(_FLAVORS.memory_mb, _FLAVORS.root_gb, _FLAVORS.ephemeral_gb, _FLAVORS.swap),
    )
    .where(_FLAVORS.disabled.is_not(sa.true()))
    .order_by(_FLAVORS.id)
    .limit(MAX_FLAVORS + 1)
)
_SPECS_OF: Final = sa.select(_SPECS.flavor_id, _SPECS.key, _SPECS.value).where(
    _SPECS.flavor_id.in_(sa.bindparam("ids", expanding=True))
)


def read_flavors(
    connection: sa.Connection, names: Collection[str] | None = None
) -> list[Flavor]:
    """Return the flavors that are not disabled, or only those with these names.

    Raises
    ------
    InvalidRequest
        There are more than `MAX_FLAVORS`.
    """
    query = _SIZES
    if names is not None:
        query = query.where(_FLAVORS.name.in_(list(names)))
    rows = connection.execute(query).all()
    if len(rows) > MAX_FLAVORS:
        raise InvalidRequest(
            f"nova has more than {MAX_FLAVORS} flavors, too many to be read at once: "
            "name one of them"
        )
    specs = _specs_of(connection, [row.id for row in rows])
    return [
        Flavor(
            id=row.id,
            name=row.name,
            flavorid=row.flavorid,
            vcpus=row.vcpus,
            memory_mb=row.memory_mb,
            root_gb=row.root_gb or 0,
            ephemeral_gb=row.ephemeral_gb or 0,
            swap=row.swap,
            extra_specs=specs[row.id],
        )
        for row in rows
        # MariaDB compares names without regard to case.
        if names is None or row.name in names
    ]


def _specs_of(
    connection: sa.Connection, ids: Iterable[int]
) -> defaultdict[int, dict[str, str]]:
    specs: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for flavor_id, key, value in connection.execute(_SPECS_OF, {"ids": list(ids)}):
        specs[flavor_id][key] = value or ""
    return specs


#: Most group members that are read for one request: more than its hints may name.
_MAX_ROWS: Final = 1000
#: UUIDs that are no group of a project, and seconds for which they are remembered:
#: most are those of instances, which never become groups.
_MAX_NO_GROUPS: Final = 10_000
_NO_GROUPS_S: Final = 300.0

_GROUPS, _MEMBERS = instance_groups.c, instance_group_member.c
_MAPPINGS: Final = instance_mappings.c
_IS_LEAVING: Final = sa.case((_MAPPINGS.queued_for_delete.is_(sa.true()), 1), else_=0)
_QUERY: Final = (
    sa.select(_GROUPS.uuid, _MEMBERS.instance_uuid, _IS_LEAVING.label("is_leaving"))
    .select_from(
        instance_groups.outerjoin(
            instance_group_member, _MEMBERS.group_id == _GROUPS.id
        ).outerjoin(
            instance_mappings, _MAPPINGS.instance_uuid == _MEMBERS.instance_uuid
        )
    )
    .where(_GROUPS.uuid.in_(sa.bindparam("uuids", expanding=True)))
    .where(_GROUPS.project_id == sa.bindparam("project_id"))
    .order_by(_IS_LEAVING, _MEMBERS.id)
    .limit(_MAX_ROWS)
)


class GroupReader:
    """Reads the members of server groups, and remembers which UUIDs are no groups.

    Members are read for each request: an instance that was added just before counts.
    nova keeps deleted instances as members until its database is archived, so those
    that are queued for deletion count only while they are on a host.

    Parameters
    ----------
    clock : callable
        Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._no_groups: TTLCache[tuple[str, str], None]
        self._no_groups = TTLCache(_MAX_NO_GROUPS, _NO_GROUPS_S, clock)

    def unread(self, uuids: Collection[str], project_id: str) -> list[str]:
        """Return, sorted, the UUIDs that may be those of groups of the project."""
        with self._lock:
            return sorted(u for u in uuids if (project_id, u) not in self._no_groups)

    def read(
        self,
        connection: sa.Connection,
        uuids: Collection[str],
        project_id: str,
        is_placed: Callable[[str], bool],
    ) -> Mapping[str, frozenset[str]]:
        """Return the members of the project's groups, by the group's UUID."""
        values = {"uuids": list(uuids), "project_id": project_id}
        rows = connection.execute(_QUERY, values).all()
        members: defaultdict[str, set[str]] = defaultdict(set)
        for uuid, instance, is_leaving in rows:
            is_member = instance and (not is_leaving or is_placed(instance))
            members[uuid].update([instance] if is_member else ())
        if len(rows) < _MAX_ROWS:  # else rows of groups may not have been read
            no_groups = [(project_id, uuid) for uuid in uuids if uuid not in members]
            with self._lock:
                self._no_groups.update(dict.fromkeys(no_groups))
        return {uuid: frozenset(of_group) for uuid, of_group in members.items()}


#: The vm_states in which an instance without a host and without a task gets a host only
#: by a new request.
ON_NO_HOST: Final = ("error", "shelved_offloaded")


class DatabaseLookups(BaseHostSource):
    """Read from nova's databases what the host table does not hold.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
    databases : PolledDatabases
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts | None,
        databases: PolledDatabases,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(conf)
        self._databases = databases
        self._api = databases.api
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
            for cell in (self._databases.cells() if by_cell else ())
            if cell.mapping.uuid in by_cell and cell.is_prompt
            for host, state in _states_of(cell, by_cell[cell.mapping.uuid]).items()
        }

    def locate_instance(self, instance_uuid: str) -> InstanceLocation:
        """Look up an instance in each cell's database, then in the API database.

        An instance without a row or without a host is pending, as it may still be
        built, unless it was deleted, has failed, or is shelved and offloaded. nova sets
        a task state before it requests a host for a move, and resets it when the move
        is over. If a database does not answer, the location is unknown.
        """
        columns = instances.c
        query = sa.select(
            columns.host, columns.deleted, columns.vm_state, columns.task_state
        ).where(
            columns.uuid == instance_uuid,
            # Exclude the copy in the other cell during a resize between cells.
            columns.hidden.isnot(sa.true()),
        )
        state = InstanceState.PENDING
        for cell in self._databases.cells():
            try:
                with cell.engine().connect() as connection:
                    row = connection.execute(query).first()
            except Exception as e:  # oslo.db has exceptions of its own
                LOG.debug(
                    "Locating an instance in %s failed: %s", cell.what, cause_of(e)
                )
                state = InstanceState.UNKNOWN
                continue
            if row is None:
                continue
            has_no_task = not row.task_state
            if row.deleted:
                return InstanceLocation(InstanceState.GONE)
            if row.host:
                return InstanceLocation(InstanceState.ON_HOST, row.host, has_no_task)
            if has_no_task and row.vm_state in ON_NO_HOST:
                return InstanceLocation(InstanceState.GONE)
        if state is InstanceState.PENDING:
            state = self._state_without_host(instance_uuid)
        return InstanceLocation(state)

    def _state_without_host(self, instance_uuid: str) -> InstanceState:
        """Return the state of an instance that has no host in any cell.

        nova puts instances that could not be scheduled into cell0.
        """
        mapping = instance_mappings.c
        query = (
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
                row = connection.execute(query).first()
        except Exception as e:  # oslo.db has exceptions of its own
            LOG.debug("Locating an instance failed: %s", cause_of(e))
            return InstanceState.UNKNOWN
        is_gone = row is not None and (row.queued_for_delete or row.uuid == CELL0)
        return InstanceState.GONE if is_gone else InstanceState.PENDING

    def boot_volumes(self, instance_uuid: str) -> Sequence[str]:
        """Read the build request of an instance from the API database.

        A build request exists until its instance is in a cell: an instance that is
        moved has none.
        """
        try:
            with self._api.engine().connect() as connection:
                return read_boot_volumes(connection, instance_uuid)
        except Exception as e:  # oslo.db has exceptions of its own
            raise BuildRequestUnavailable(
                f"Reading a build request of nova failed: {cause_of(e)}"
            ) from e

    def flavors(self, names: Collection[str] | None = None) -> Sequence[Flavor]:
        """Read flavors from the API database."""
        engine = self._api.engine()
        try:
            with engine.connect() as connection:
                return read_flavors(connection, names)
        except InvalidRequest:
            raise
        except Exception as e:  # oslo.db has exceptions of its own
            url = engine.url.set(query={})
            failure = Failure.of(API_OPTION, url, e, AS_API_DATABASE)
            raise FlavorsUnavailable(f"Reading nova's flavors failed: {failure}") from e

    def requests_of(self, instance_uuids: Collection[str]) -> Mapping[str, RequestSpec]:
        """Read request specs from the API database.

        nova stores a request spec without the groups of ports' resources.
        """
        try:
            with self._api.engine().connect() as connection:
                return read_requests(connection, instance_uuids)
        except Exception as e:  # oslo.db has exceptions of its own
            raise RequestsUnavailable(
                f"Reading request specs of {self._api.what} failed: {cause_of(e)}"
            ) from e

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
        except Exception as e:  # oslo.db has exceptions of its own
            raise GroupsUnavailable(
                f"Reading server groups of {self._api.what} failed: {cause_of(e)}"
            ) from e


def _states_of(
    cell: CellDatabase, hosts: Collection[str]
) -> Mapping[str, ServiceState]:
    try:
        with cell.engine().connect() as connection:
            return read_states(connection, hosts)
    except Exception as e:  # oslo.db has exceptions of its own
        LOG.debug("Reading services of %s failed: %s", cell.what, cause_of(e))
        return {}
