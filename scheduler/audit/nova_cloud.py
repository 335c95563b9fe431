# SPDX-License-Identifier: Apache-2.0
"""What nova's databases know: hosts, instances, migrations and deleted rows.

All cells are read, also disabled ones and cell0: instances there hold allocations, too.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from oslo_config import cfg

from ..clock import now_s
from ..decoding import loads
from ..errors import ConfigurationError, DatabaseUnavailable
from ..failures import Failure
from ..hosts import Launch
from ..polling.polled_table import chunks, pages
from ..polling.times import microseconds, seconds
from ..sources.nova_db import schema
from ..sources.nova_db.changes import LAUNCH_COLUMNS, read_launch
from ..sources.nova_db.database_lookups import ON_NO_HOST
from ..sources.nova_db.directory import DirectoryReader, fill_template
from ..sources.nova_db.engines import Engines
from ..sources.nova_db.polled_databases import API_OPTION, AS_API_DATABASE
from .cloud import (
    Cloud,
    Fate,
    FateState,
    KnownFlavor,
    KnownHost,
    KnownInstance,
    reported_totals,
)

#: The states of migrations that have ended; "finished" waits for the user's
#: confirmation (nova's migration_get_in_progress_by_host_and_node).
_ENDED: Final = (
    "confirmed", "reverted", "error", "failed", "completed", "cancelled", "done"
)  # fmt: skip

_I: Final = schema.instances.c
_M: Final = schema.migrations.c
_N: Final = schema.compute_nodes.c
_X: Final = schema.instance_extra.c
_P: Final = schema.instance_mappings.c

_CELLS: Final = sa.select(
    *(schema.cell_mappings.c.id, schema.cell_mappings.c.uuid),
    *(schema.cell_mappings.c.name, schema.cell_mappings.c.database_connection),
).order_by(schema.cell_mappings.c.id)
_NODES: Final = sa.select(
    *(_N.id, _N.uuid, _N.host, _N.hypervisor_hostname, _N.hypervisor_type),
    *(_N.vcpus, _N.memory_mb, _N.local_gb),
).where(_N.deleted == 0, _N.uuid.is_not(None))
_ON_HOSTS: Final = sa.select(
    *(_I.id, _I.uuid, _I.host, _I.node, _I.task_state),
    *(_I.vcpus, _I.memory_mb, _I.root_gb, _I.ephemeral_gb),
).where(_I.deleted == 0, _I.host.is_not(None), _I.hidden.is_not(sa.true()))
_LAUNCHES: Final = sa.select(
    *(_I.id, *LAUNCH_COLUMNS),
    microseconds(_I.deleted_at).label("deleted_us"),
).where(
    _I.host.is_not(None),
    _I.hidden.is_not(sa.true()),
    (_I.deleted == 0) | _I.deleted_at.is_not(None),
)
_STATUS: Final = sa.func.coalesce(_M.status, "")
#: Evacuations that are done keep the source's allocation until its service restarts.
_MOVES: Final = sa.select(
    *(_M.id, _M.uuid, _M.instance_uuid, _M.status),
    *(_M.source_compute, _M.source_node),
).where(
    _M.deleted == 0,
    _STATUS.not_in(_ENDED)
    | ((_M.migration_type == "evacuation") & (_STATUS == "done")),
)

_UUIDS: Final[sa.BindParameter[Any]] = sa.bindparam("uuids", expanding=True)
_INSTANCES_OF: Final = sa.select(
    *(_I.uuid, _I.host, _I.deleted, _I.vm_state, _I.task_state),
    microseconds(sa.func.coalesce(_I.deleted_at, _I.updated_at)).label("changed_us"),
).where(_I.uuid.in_(_UUIDS))
_MIGRATIONS_OF: Final = sa.select(
    *(_M.uuid, _M.instance_uuid, _STATUS.label("status")),
    microseconds(sa.func.coalesce(_M.updated_at, _M.created_at)).label("changed_us"),
).where(_M.uuid.in_(_UUIDS))
_MAPPINGS_OF: Final = sa.select(
    _P.instance_uuid, _P.cell_id, _P.queued_for_delete
).where(_P.instance_uuid.in_(_UUIDS))
_BUILDS_OF: Final = sa.select(schema.build_requests.c.instance_uuid).where(
    schema.build_requests.c.instance_uuid.in_(_UUIDS)
)
_FLAVORS_OF: Final = sa.select(_X.instance_uuid, _X.flavor).where(
    _X.deleted == 0, _X.instance_uuid.in_(_UUIDS)
)


class _Cell(NamedTuple):
    """A cell, as its mapping has it."""

    uuid: str
    name: str
    url: str


class NovaReader:
    """Reads nova's API database and the databases of all cells.

    Raises
    ------
    ConfigurationError
        ``[api_database] connection`` is not set.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        if not conf.api_database.connection:
            raise ConfigurationError(
                "[api_database] connection is not set; the source 'nova_db' needs the "
                "URL of nova's API database, such as mysql+pymysql://nova:…@db/nova_api"
            )
        self._conf = conf
        self._engines = Engines(conf)
        #: The cells that `read` has found.
        self._cells: list[_Cell] = []

    def close(self) -> None:
        """Close all connections."""
        self._engines.dispose()

    def read(self) -> Cloud:
        """Return hosts, instances and unfinished migrations of all cells."""
        local = self._conf.database.connection
        with self._connected_to_api() as connection:
            aggregates = DirectoryReader(local).read(connection, now_s()).aggregates
            self._read_cells(connection)
        hosts: dict[str, KnownHost] = {}
        instances: dict[str, KnownInstance] = {}
        moving: set[str] = set()
        n_busy = n_without_node = 0
        for cell in self._cells:
            with self._connected_to(cell) as connection:
                node_of: dict[tuple[str, str], str] = {}
                for row in pages(connection, _NODES, _N.id):
                    totals = reported_totals(
                        row.hypervisor_type, row.vcpus, row.memory_mb, row.local_gb
                    )
                    node_of[row.host, row.hypervisor_hostname] = row.uuid
                    hosts[row.uuid] = KnownHost(
                        row.uuid, row.host or "", row.hypervisor_hostname or "", totals
                    )
                evacuated: dict[str, frozenset[str]] = {}
                for row in pages(connection, _MOVES, _M.id):
                    if row.status != "done":
                        moving.update(filter(None, (row.uuid, row.instance_uuid)))
                        continue
                    source = node_of.get((row.source_compute, row.source_node))
                    before = evacuated.get(row.instance_uuid, frozenset())
                    evacuated[row.instance_uuid] = before | (
                        {source} if source else set()
                    )
                for row in pages(connection, _ON_HOSTS, _I.id):
                    node = node_of.get((row.host, row.node))
                    n_without_node += node is None
                    if row.task_state:
                        moving.add(row.uuid)
                        n_busy += 1
                        continue
                    amounts = (row.vcpus, row.memory_mb, row.root_gb, row.ephemeral_gb)
                    flavor = None if None in amounts else KnownFlavor(*amounts)
                    instances[row.uuid] = KnownInstance(
                        frozenset({row.host}),
                        node,
                        evacuated.get(row.uuid, frozenset()),
                        flavor,
                    )
        # A migration is in the database of the cell that its instance comes from.
        n_busy += len(moving & instances.keys())
        for uuid in moving:
            instances.pop(uuid, None)
        notes = []
        if n_busy:
            notes.append(
                f"{n_busy:,} instances with a task or a migration in progress are not "
                "compared"
            )
        if n_without_node:
            notes.append(
                f"{n_without_node:,} instances are on a host that has no compute node "
                "in their cell: where they hold their allocation is not compared"
            )
        return Cloud(
            hosts, aggregates, instances, frozenset(moving), "nova-compute", notes
        )

    def _read_cells(self, connection: sa.Connection) -> None:
        local = self._conf.database.connection
        self._cells = [
            _Cell(
                row.uuid,
                row.name or row.uuid,
                fill_template(row.database_connection or "", local),
            )
            for row in connection.execute(_CELLS)
        ]

    def launches(self) -> Iterator[tuple[Launch, float]]:
        """Yield the launch of each instance, and when it was deleted, if it was.

        Deleted rows are included, until nova archives them. An instance that lives is
        deleted at infinity; seconds since the epoch.
        """
        with self._connected_to_api() as connection:
            self._read_cells(connection)
        for cell in self._cells:
            with self._connected_to(cell) as connection:
                for row in pages(connection, _LAUNCHES, _I.id):
                    if (launch := read_launch(row)) is not None:
                        yield launch, seconds(row.deleted_us) or math.inf

    def fates(self, consumer_uuids: Collection[str]) -> Mapping[str, Fate]:
        """Return the fates of consumers, from all rows, deleted ones included."""
        fates: dict[str, Fate] = {}
        for cell in self._cells:
            with self._connected_to(cell) as connection:
                for row in _some(connection, _MIGRATIONS_OF, consumer_uuids):
                    of = f"migration of instance {row.instance_uuid}"
                    is_gone = row.status in _ENDED
                    verb = "ended" if is_gone else "is in progress"
                    fates[row.uuid] = Fate(
                        FateState.GONE if is_gone else FateState.IN_USE,
                        f"{of} {verb} as {row.status!r}",
                        seconds(row.changed_us),
                    )
                for row in _some(connection, _INSTANCES_OF, consumer_uuids):
                    known = fates.get(row.uuid)
                    # A resize between cells leaves deleted and hidden copies.
                    if known is None or known.state is FateState.GONE:
                        fates[row.uuid] = _fate_of_instance(row, cell.name)
        unknown = [uuid for uuid in consumer_uuids if uuid not in fates]
        with self._connected_to_api() as connection:
            builds = {row[0] for row in _some(connection, _BUILDS_OF, unknown)}
            mappings = {
                row.instance_uuid: row
                for row in _some(connection, _MAPPINGS_OF, unknown)
            }
        for uuid in unknown:
            mapping = mappings.get(uuid)
            if uuid in builds:
                fates[uuid] = Fate(FateState.IN_USE, "it has a build request")
            elif mapping is None:
                text = "neither a cell nor the API database of nova knows it"
                fates[uuid] = Fate(FateState.GONE, text)
            elif mapping.queued_for_delete:
                fates[uuid] = Fate(FateState.GONE, "instance is deleted, in no cell")
            else:
                text = "instance mapping without an instance and a build request"
                fates[uuid] = Fate(FateState.GONE, text)
        return fates

    def flavors(self, instance_uuids: Collection[str]) -> Mapping[str, KnownFlavor]:
        """Read the flavors that instances have stored, with swap and extra specs."""
        flavors = {}
        for cell in self._cells:
            with self._connected_to(cell) as connection:
                for uuid, text in _some(connection, _FLAVORS_OF, instance_uuids):
                    try:
                        data = loads(text)["cur"]["nova_object.data"]
                        flavors[uuid] = KnownFlavor(
                            vcpus=int(data["vcpus"]),
                            memory_mb=int(data["memory_mb"]),
                            root_gb=int(data.get("root_gb") or 0),
                            ephemeral_gb=int(data.get("ephemeral_gb") or 0),
                            swap_mb=int(data.get("swap") or 0),
                            extra_specs=dict(data.get("extra_specs") or {}),
                        )
                    except (json.JSONDecodeError, KeyError, TypeError, ValueError):
                        continue  # an unreadable flavor: the amounts are not compared
        return flavors

    @contextlib.contextmanager
    def _connected_to_api(self) -> Iterator[sa.Connection]:
        url = self._conf.api_database.connection
        try:
            with self._engines.api().connect() as connection:
                yield connection
        except Exception as e:  # oslo.db has exceptions of its own
            failure = Failure.of(API_OPTION, url, e, AS_API_DATABASE)
            raise DatabaseUnavailable(f"{failure}") from e

    @contextlib.contextmanager
    def _connected_to(self, cell: _Cell) -> Iterator[sa.Connection]:
        try:
            with self._engines.cell(cell.url).connect() as connection:
                yield connection
        except Exception as e:  # oslo.db has exceptions of its own
            what = f"The database of cell {cell.name} ({cell.uuid})"
            raise DatabaseUnavailable(f"{Failure.of(what, cell.url, e)}") from e


def _fate_of_instance(row: Any, cell_name: str) -> Fate:  # noqa: ANN401 - a row
    """Return the fate of an instance that was not on a host when the cloud was read."""
    since = seconds(row.changed_us)
    if row.deleted:
        text = f"instance was deleted in cell {cell_name}"
        return Fate(FateState.GONE, text, since)
    if not row.host and not row.task_state and row.vm_state in ON_NO_HOST:
        text = f"instance is {row.vm_state} and on no host, in cell {cell_name}"
        return Fate(FateState.GONE, text, since)
    return Fate(FateState.IN_USE, f"instance is {row.vm_state} in cell {cell_name}")


def _some(
    connection: sa.Connection, query: sa.Select[Any], uuids: Iterable[str]
) -> Iterator[Any]:
    for chunk in chunks(uuids):
        yield from connection.execute(query, {"uuids": chunk})
