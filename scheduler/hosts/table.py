# SPDX-License-Identifier: Apache-2.0
"""The host table: every compute node that a source reported, as columns."""

from __future__ import annotations

import itertools
import operator
import threading
import time
from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any

import numpy as np

from ..candidates import HostLayout, Offer, Rows
from .aggregates import AggregateMap, HostAggregate, PlacementPlace
from .batch import HostBatch
from .claims import PendingClaims
from .column_arrays import ColumnArrays, TableImage
from .instances import ImageProperties, InstanceMap
from .record import COLUMNS, Columns, HostRecord

#: The most rows that are written at a time, for which readers wait.
_CHUNK = 500

_values_of = operator.attrgetter(*COLUMNS)


class HostTable:
    """One row per compute node, one array per column, changed in place under one lock.

    A decision reads through a view, which never changes. `claims` adds what a claim
    consumes to what its host reported, until a report includes it.

    Parameters
    ----------
    clock : callable, optional
        Returns now, seconds since the epoch.
    columns : mapping, optional
        The declarations of all columns by name; by default, those of `HostRecord`.
    monotonic : callable, optional
        Returns seconds since an arbitrary time, for the ages of claims.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        columns: Columns = COLUMNS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.columns = columns
        #: Columns that plugins declare, and their defaults.
        self._added = {
            name: column.default
            for name, column in columns.items()
            if name not in COLUMNS
        }
        self._lock = threading.RLock()
        self.aggregates = AggregateMap()
        self.instances = InstanceMap()
        self._arrays = ColumnArrays(columns, self.instances)
        self.claims = PendingClaims(
            self._arrays, self.instances, self._lock, clock, monotonic
        )
        #: The names of cells, by UUID; empty if the source knows none.
        self.cell_names: Mapping[str, str] = {}
        #: The places that aggregates of Placement give to nodes: all, and by node UUID.
        self.placement_places = frozenset[PlacementPlace]()
        self._placement_places: Mapping[str, tuple[PlacementPlace, ...]] = {}

    def copied(self, clock: Callable[[], float] = time.time) -> HostTable:
        """Return a copy; changes of one of both do not change the other.

        It takes milliseconds: a column is copied once it is written. The aggregates
        are shared.
        """
        with self._lock:
            copied = HostTable(clock, self.columns, clock)
            copied.aggregates = self.aggregates
            copied.instances = self.instances.copied()
            copied._arrays = self._arrays.copied(copied.instances)
            copied.claims = PendingClaims(
                copied._arrays, copied.instances, copied._lock, clock, clock
            )
            self.claims.copy_to(copied.claims)
            copied.cell_names = self.cell_names
            copied.placement_places = self.placement_places
            copied._placement_places = self._placement_places
            return copied

    def __len__(self) -> int:
        return self._arrays.n_rows

    @property
    def revision(self) -> int:
        """The number of the last change; it only increases."""
        return self._arrays.revision

    @property
    def supply_revision(self) -> int:
        """The number of the last change of the hosts' total supply.

        It changes when hosts are added, removed, enabled or disabled, join aggregates,
        or change a total or an allocation ratio; usage by instances does not count.
        """
        return self._arrays.supply_revision

    # -- reading -----------------------------------------------------------------

    def batch(self, node_uuids: Iterable[str] | None = None) -> HostBatch:
        """Return the rows of these compute nodes, or of all, as they are now.

        UUIDs without a row are omitted. The order is that of the rows.
        """
        with self._lock:
            view = self._arrays.view()
            if node_uuids is None:
                rows = np.arange(self._arrays.n_rows)
                return HostBatch(view, rows, is_whole=True)
            rows = np.unique(self._arrays.rows_of(node_uuids))
        return HostBatch(view, rows[rows >= 0])

    def batch_of_offer(self, offer: Offer) -> HostBatch:
        """Return the hosts of an offer's open candidates, with these candidates.

        The offer may cache the rows of its hosts until hosts are added or removed.
        """
        with self._lock:
            view, n_rows = self._arrays.view(), self._arrays.n_rows
            token = id(self), self._arrays.layout_revision
            offered = offer.on_hosts(HostLayout(token, self._arrays.rows_of))
        # One element more than there are rows: -1 refers to it.
        is_offered = np.zeros(n_rows + 1, bool)
        is_offered[offered.rows] = True
        rows = np.flatnonzero(is_offered[:n_rows])
        return HostBatch(view, rows, is_whole=len(rows) == n_rows, offered=offered)

    def image(self) -> TableImage:
        """Return all that the table holds, as it is now.

        It copies the instances, some milliseconds for 200,000, and nothing else.
        """
        with self._lock:
            return TableImage(
                self._arrays.view(),
                tuple(self.aggregates),
                *self.instances.contents(),
                self.claims.unreported(),
                self.cell_names,
            )

    def has_node(self, node_uuid: str) -> bool:
        """Return whether a compute node has a row."""
        return node_uuid in self._arrays.row_of

    def host_of(self, node_uuid: str) -> str | None:
        """Return the service host of a compute node; None: it has no row."""
        with self._lock:
            row = self._arrays.row_of.get(node_uuid)
            return None if row is None else str(self._arrays.read("host", row))

    def missing(self, node_uuids: Iterable[str]) -> list[str]:
        """Return which of these compute nodes have no row."""
        return [uuid for uuid in node_uuids if uuid not in self._arrays.row_of]

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """Return the present revision, and the nodes changed since `revision`.

        A node changes with its row; instances are not part of a row.
        """
        with self._lock:
            rows = np.flatnonzero(self._arrays.numbers("revision") > revision)
            changed = (self._arrays.read("uuid", row) for row in rows.tolist())
            return self._arrays.revision, frozenset(changed)

    def nodes_of(
        self, host: str | None, node: str | None = None, cell: str | None = None
    ) -> tuple[str, ...]:
        """Return the UUIDs of a host's compute nodes, of one node, or of one cell.

        Names must match exactly; None matches any.
        """
        names = {"host": host, "nodename": node, "cell_uuid": cell}
        wanted = {column: [name] for column, name in names.items() if name is not None}
        with self._lock:
            rows = self._arrays.where(**wanted)
            return tuple(self._arrays.read("uuid", row) for row in rows)

    def nodes_beside(self, node_uuids: Collection[str]) -> frozenset[str]:
        """Return these providers, and all compute nodes of their service hosts.

        Only with Ironic does a service host have several compute nodes. A provider
        without a row is returned alone.
        """
        with self._lock:
            rows = self._arrays.rows_of(node_uuids).tolist()
            hosts = {self._arrays.read("host", row) for row in rows if row >= 0}
            rows_of_hosts = self._arrays.where(host=hosts)
            uuids = (self._arrays.read("uuid", row) for row in rows_of_hosts)
            return frozenset([*node_uuids, *uuids])

    def take_freed(self) -> list[str]:
        """Return the compute nodes that an instance has left since the last call."""
        if not (hosts := self.instances.take_freed()):
            return []
        with self._lock:
            rows = self._arrays.where(host=hosts)
            return [self._arrays.read("uuid", row) for row in rows]

    def least_service_version(self) -> int:
        """Return the lowest version of a compute service; 0: none is known.

        Services that are forced down do not count, as in nova.
        """
        with self._lock:
            versions = self._arrays.numbers("service_version")
            is_down = self._arrays.numbers("forced_down")
            known_versions = versions[(versions > 0) & ~is_down]
        return int(known_versions.min()) if len(known_versions) else 0

    # -- reports of a source -------------------------------------------------------

    def put(self, record: HostRecord, instances: Collection[str] | None = None) -> None:
        """Add or replace the row of a compute node.

        Parameters
        ----------
        record : HostRecord
        instances : collection of str, optional
            UUIDs of all instances of its service host; None: not reported. The report
            includes claims of these instances; all other claims stay added to it.
        """
        self.put_many([record], None if instances is None else {record.host: instances})

    def put_many(
        self,
        records: Collection[HostRecord],
        instances: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Add or replace the rows of compute nodes, as `put` does.

        Readers may see some of the rows before others; each row is complete.

        Parameters
        ----------
        records : collection of HostRecord
        instances : mapping, optional
            All instances of each service host, where they were reported.

        Raises
        ------
        ValueError
            A record has a value of a column that was not declared.
        """
        remaining = iter(records)
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            for record in chunk:
                if record.extra and not record.extra.keys() <= self._added.keys():
                    unknown = sorted(record.extra.keys() - self._added.keys())
                    raise ValueError(
                        f"host {record.host!r} has no columns {', '.join(unknown)}"
                    )
            values = zip(*map(_values_of, chunk), strict=True)
            columns: dict[str, Sequence[Any]] = dict(zip(COLUMNS, values, strict=True))
            for name, default in self._added.items():
                columns[name] = [record.extra.get(name, default) for record in chunk]
            self._put(columns, instances or {})

    def put_columns(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add or replace the rows of compute nodes, as `put_many` does, but faster.

        Parameters
        ----------
        columns : mapping
            The values of all of these nodes by column. All columns of `HostRecord` are
            required. If a column that a plugin declares is missing, new rows get its
            default, and the other rows keep their value.
        """
        for first in range(0, len(columns["uuid"]), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            self._put({name: values[chunk] for name, values in columns.items()}, {})

    def _put(
        self,
        columns: Mapping[str, Sequence[Any]],
        instances: Mapping[str, Collection[str]],
    ) -> None:
        uuids, hosts = columns["uuid"], columns["host"]
        with self._lock:
            self._arrays.revision += 1
            n_before = self._arrays.n_rows
            rows = self._arrays.rows_for(uuids)
            for name, values in columns.items():
                self._arrays.write(name, rows, values)
            new_rows = np.arange(n_before, self._arrays.n_rows)
            for name, default in self._added.items():
                if name not in columns and len(new_rows):
                    self._arrays.write(name, new_rows, [default] * len(new_rows))
            self._arrays.write("aggregates", rows, self.aggregates.of_hosts(hosts))
            if len(new_rows):
                self._write_placement_places(new_rows)
            self._arrays.touch(rows)
            reported = {host: instances[host] for host in hosts if host in instances}
            self._replace_instances(reported)
            if self.claims:
                for uuid, host in zip(uuids, hosts, strict=True):
                    if uuid in self.claims:
                        self.claims.add_to_report(uuid, host, reported.get(host, ()))

    def change_many(self, changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Write some columns of some rows, as their hosts report them.

        Parameters
        ----------
        changes : mapping
            By node UUID: values by column, under the names of `HostRecord`; `uuid`
            cannot be changed.

        Returns
        -------
        list of str
            The nodes that have no row, which were skipped.

        Raises
        ------
        KeyError
            There is no such column; nothing is changed.
        """
        for name in set().union(*changes.values()):
            if name not in self.columns or name == "uuid":
                raise KeyError(f"a report cannot change the column {name!r} of a host")
        unknown = []
        remaining = iter(changes.items())
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            with self._lock:
                self._arrays.revision += 1
                unknown += self._change(chunk)
        return unknown

    def _change(self, changes: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
        unknown: list[str] = []
        changed_rows: list[int] = []
        by_column: defaultdict[str, tuple[list[int], list[Any]]]
        by_column = defaultdict(lambda: ([], []))
        for node_uuid, values in changes:
            row = self._arrays.row_of.get(node_uuid)
            if row is None:
                unknown.append(node_uuid)
                continue
            changed_rows.append(row)
            for name, value in values.items():
                rows, new_values = by_column[name]
                rows.append(row)
                new_values.append(value)
        # Claims are added to the reported values.
        with self.claims.subtracted([node_uuid for node_uuid, _ in changes]):
            for name, (rows, new_values) in by_column.items():
                self._arrays.write(name, rows, new_values)
            if "host" in by_column:
                rows, hosts = by_column["host"]
                self._arrays.write("aggregates", rows, self.aggregates.of_hosts(hosts))
            self._arrays.touch(changed_rows)
        return unknown

    def as_reported(self, node_uuid: str) -> HostRecord | None:
        """Return a compute node's row as it was reported, without pending claims.

        None: it has no row.
        """
        with self._lock:
            row = self._arrays.row_of.get(node_uuid)
            if row is None:
                return None
            with self.claims.subtracted([node_uuid]):
                values, extra = (
                    {name: self._arrays.read(name, row) for name in names}
                    for names in (COLUMNS, self._added)
                )
            return HostRecord(**values, extra=extra)

    def drop(self, node_uuid: str) -> None:
        """Remove a compute node, known or not, together with its pending claims.

        The last row moves to the removed row's index.
        """
        self.drop_many([node_uuid])

    def drop_many(self, node_uuids: Iterable[str]) -> None:
        """Remove compute nodes, as `drop` does."""
        with self._lock:
            for node_uuid in node_uuids:
                # Without a row, `release` could not find these claims.
                self.claims.drop(node_uuid)
                if self._arrays.remove(node_uuid):
                    self._arrays.revision += 1

    def set_instances(self, host: str, uuids: Collection[str]) -> None:
        """Replace the instances of a service host; those with pending claims stay."""
        self.set_instances_of({host: uuids})

    def set_instances_of(self, instances: Mapping[str, Collection[str]]) -> None:
        """Replace the instances of service hosts, as `set_instances` does."""
        with self._lock:
            self._arrays.revision += 1
            self._replace_instances(instances)

    def _replace_instances(self, instances: Mapping[str, Collection[str]]) -> None:
        pending = self.claims.by_host()
        for host, uuids in instances.items():
            claimed = pending.get(host)
            self.instances.set_host(host, {*uuids, *claimed} if claimed else uuids)

    def add_instances(
        self,
        host: str,
        uuids: Collection[str],
        properties: Mapping[str, ImageProperties] | None = None,
    ) -> None:
        """Record that a service host has built these instances; its others stay.

        Parameters
        ----------
        properties : mapping, optional
            Image properties by instance; those of other instances do not change.
        """
        with self._lock:
            self._arrays.revision += 1
            for uuid in uuids:
                self.instances.add(host, uuid)
            if properties:
                self.set_image_properties(properties)
            self.claims.end_builds(host, uuids)

    def set_image_properties(self, properties: Mapping[str, ImageProperties]) -> None:
        """Set the image properties of instances; those on no host are ignored."""
        with self._lock:
            self._arrays.revision += 1
            for uuid, of_instance in properties.items():
                self.instances.set_image_properties(uuid, of_instance)

    # -- cells and aggregates ----------------------------------------------------------

    def put_cell_names(self, names: Mapping[str, str]) -> None:
        """Replace the names of all cells, by UUID; an empty name is none."""
        self.cell_names = {uuid: name for uuid, name in names.items() if name}

    def put_aggregate(self, aggregate: HostAggregate) -> None:
        """Add or replace an aggregate, also in the rows of its hosts."""
        with self._lock:
            self._write_aggregates(self.aggregates.put(aggregate))

    def drop_aggregate(self, aggregate_id: int) -> None:
        """Remove an aggregate, known or not."""
        with self._lock:
            self._write_aggregates(self.aggregates.drop(aggregate_id))

    def replace_aggregate(
        self, id_: int, old: HostAggregate | None, new: HostAggregate | None
    ) -> bool:
        """Replace an aggregate if it is still `old`; None stands for no aggregate.

        Returns
        -------
        bool
            Whether the aggregate is `new` now.
        """
        with self._lock:
            if next((a for a in self.aggregates if a.id == id_), None) != old:
                return False
            if new is None:
                self.drop_aggregate(id_)
            elif new != old:
                self.put_aggregate(new)
            return True

    def put_aggregates(self, aggregates: Iterable[HostAggregate]) -> None:
        """Replace all aggregates; unaffected rows are not touched."""
        changed = {aggregate.id: aggregate for aggregate in aggregates}
        with self._lock:
            affected: set[str] = set()
            for present in self.aggregates:
                if present.id not in changed:
                    affected |= self.aggregates.drop(present.id)
                elif present == changed[present.id]:
                    del changed[present.id]
            for new in changed.values():
                affected |= self.aggregates.put(new)
            self._write_aggregates(affected)

    def _write_aggregates(self, hosts: Collection[str]) -> None:
        self._arrays.revision += 1
        if not hosts:
            return
        rows = self._arrays.where(host=hosts)
        names = [self._arrays.read("host", row) for row in rows]
        self._arrays.write("aggregates", rows, self.aggregates.of_hosts(names))
        self._arrays.touch(rows)

    # -- aggregates of Placement -------------------------------------------------------

    def put_placement_places(
        self, places: Mapping[str, tuple[PlacementPlace, ...]]
    ) -> None:
        """Replace the places that aggregates of Placement give to compute nodes.

        Parameters
        ----------
        places : mapping
            By node UUID; a node may be unknown yet.
        """
        before = self._placement_places
        changed = [
            uuid
            for uuid in before.keys() | places.keys()
            if before.get(uuid) != places.get(uuid)
        ]
        if not changed:
            return
        with self._lock:
            self._arrays.revision += 1
            self._placement_places = dict(places)
            distinct = set(self._placement_places.values())
            self.placement_places = frozenset[PlacementPlace]().union(*distinct)
            rows = self._arrays.rows_of(changed)
            rows = rows[rows >= 0]
            if len(rows):
                self._write_placement_places(rows)
                self._arrays.touch(rows)

    def _write_placement_places(self, rows: Rows) -> None:
        uuids = [self._arrays.read("uuid", row) for row in rows.tolist()]
        values = [self._placement_places.get(uuid, ()) for uuid in uuids]
        self._arrays.write("placement_places", rows, values)
