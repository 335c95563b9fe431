# SPDX-License-Identifier: Apache-2.0
"""The host table: every compute node that a source reported, as columns."""

from __future__ import annotations

import dataclasses
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

from ..candidates import DecisionOffer, HostCandidates, HostLayout, Rows
from .aggregates import AggregateMap, HostAggregate, PlacementPlace
from .batch import HostBatch, TableImage, View
from .column_arrays import ColumnArrays
from .image_properties import ImageProperties
from .instances import InstanceMap
from .pending import Consumption, PendingClaim, UnreportedClaim
from .record import COLUMNS, Columns, HostRecord

#: Rows written at a time: readers wait for at most that many.
_CHUNK = 500

_values_of = operator.attrgetter(*COLUMNS)


class HostTable:
    """One row per compute node, one array per column, changed in place under one lock.

    A decision reads through a view, which never changes. What a claim consumes is added
    to what its host reported, until a report includes it.

    Parameters
    ----------
    clock : callable, optional
        Returns now, seconds since the epoch.
    columns : mapping, optional
        The declarations of all columns by name; by default, those of `HostRecord`.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, columns: Columns = COLUMNS
    ) -> None:
        self.columns = columns
        #: Columns that plugins declare, and their defaults.
        self._added = {
            name: column.default
            for name, column in columns.items()
            if name not in COLUMNS
        }
        self._clock = clock
        self._lock = threading.RLock()
        self._revision = 0
        self._arrays = ColumnArrays(columns)
        #: Claims by node and instance, the oldest first; other nodes have no entry.
        self._pending: dict[str, dict[str, PendingClaim]] = {}
        self.aggregates = AggregateMap()
        self.instances = InstanceMap()
        #: The places of compute nodes by aggregates of Placement.
        self.placement_places = frozenset[PlacementPlace]()
        self._placement_places: Mapping[str, tuple[PlacementPlace, ...]] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def revision(self) -> int:
        """The number of the last change; it only increases."""
        return self._revision

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
        if node_uuids is None:
            with self._lock:
                every = np.arange(len(self._arrays), dtype=np.intp)
                return HostBatch(self._view(), every, is_whole=True)
        with self._lock:
            return self._listed(self._view(), self._arrays.rows_of(node_uuids))

    def batch_of_offer(self, offer: DecisionOffer) -> HostBatch:
        """Return the hosts of an offer's open candidates, with these candidates.

        The offer may cache the rows of its hosts until hosts are added or removed.
        """
        with self._lock:
            view = self._view()
            token = id(self), self._arrays.layout_revision
            offered = offer.on_hosts(HostLayout(token, self._arrays.rows_of))
        return self._listed(view, offered.rows, offered)

    def image(self) -> TableImage:
        """Return all that the table holds, as it is now.

        It copies the instances, some milliseconds for 200,000, and nothing else.
        """
        with self._lock:
            return TableImage(
                self._view(),
                tuple(self.aggregates),
                *self.instances.contents(),
                self.claims(),
            )

    def _view(self) -> View:
        return self._arrays.view(self.instances, self._revision)

    def _listed(
        self, view: View, found: Rows, offered: HostCandidates | None = None
    ) -> HostBatch:
        size = len(view.numbers["revision"])
        # One element more than there are rows: -1 refers to it.
        is_listed = np.zeros(size + 1, bool)
        is_listed[found] = True
        rows = np.flatnonzero(is_listed[:size])
        return HostBatch(view, rows, is_whole=len(rows) == size, offered=offered)

    def has_node(self, node_uuid: str) -> bool:
        """Return whether a compute node has a row."""
        return node_uuid in self._arrays

    def host_of(self, node_uuid: str) -> str | None:
        """Return the service host of a compute node; None: it has no row."""
        with self._lock:
            row = self._arrays.row_of(node_uuid)
            return None if row is None else self._arrays.text("host", row)

    def missing(self, node_uuids: Iterable[str]) -> list[str]:
        """Return which of these compute nodes have no row."""
        return [uuid for uuid in node_uuids if uuid not in self._arrays]

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """Return the present revision, and the nodes whose rows changed since one.

        Instances are not part of a row.
        """
        with self._lock:
            rows = np.flatnonzero(self._arrays.numbers("revision") > revision)
            changed = frozenset(self._arrays.text("uuid", row) for row in rows.tolist())
            return self._revision, changed

    def nodes_of(
        self, host: str | None, node: str | None = None, cell: str | None = None
    ) -> tuple[str, ...]:
        """Return the UUIDs of a host's compute nodes, of one node, or of one cell.

        Names must match exactly; None matches any.
        """
        wanted = {"host": host, "nodename": node, "cell_uuid": cell}
        conditions = {
            name: [value] for name, value in wanted.items() if value is not None
        }
        with self._lock:
            rows = self._arrays.where(conditions)
            return tuple(self._arrays.text("uuid", row) for row in rows)

    def nodes_beside(self, node_uuids: Collection[str]) -> frozenset[str]:
        """Return these providers, and all compute nodes of their service hosts.

        Only with Ironic does a service host have several. A provider without a row is
        returned alone.
        """
        with self._lock:
            found = map(self._arrays.row_of, node_uuids)
            hosts = {self._arrays.text("host", row) for row in found if row is not None}
            beside = self._arrays.where({"host": hosts})
            nodes = (self._arrays.text("uuid", row) for row in beside)
            return frozenset([*node_uuids, *nodes])

    def take_freed(self) -> list[str]:
        """Return the compute nodes that an instance has left since the last call."""
        left = self.instances.take_left()
        return [node for host in left for node in self.nodes_of(host)]

    def least_service_version(self) -> int:
        """Return the lowest version of a compute service; 0: none is known.

        Services that are forced down do not count, as in nova.
        """
        with self._lock:
            versions = self._arrays.numbers("service_version")
            is_down = self._arrays.numbers("forced_down")
            known = versions[(versions > 0) & ~is_down]
        return int(known.min()) if len(known) else 0

    # -- reports of a source -------------------------------------------------------

    def put(self, record: HostRecord, instances: Collection[str] | None = None) -> None:
        """Add or replace the row of a compute node.

        Parameters
        ----------
        record : HostRecord
        instances : collection of str, optional
            UUIDs of all instances of its service host; None: not reported. Claims of
            these instances are now part of the report, the others stay added to it.
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
                columns[name] = [each.extra.get(name, default) for each in chunk]
            self._put(columns, instances or {})

    def put_columns(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add or replace the rows of compute nodes, as `put_many` does, but faster.

        Parameters
        ----------
        columns : mapping
            The values of all of these nodes by column. It has all columns of
            `HostRecord`; without one that a plugin declares, new rows get its default,
            and the others keep their value.
        """
        for first in range(0, len(columns["uuid"]), _CHUNK):
            some = slice(first, first + _CHUNK)
            self._put({name: values[some] for name, values in columns.items()}, {})

    def _put(
        self,
        columns: Mapping[str, Sequence[Any]],
        instances: Mapping[str, Collection[str]],
    ) -> None:
        uuids, hosts = columns["uuid"], columns["host"]
        with self._lock:
            self._revision += 1
            n_before = len(self._arrays)
            at = self._arrays.rows_for(uuids)
            for name, values in columns.items():
                self._arrays.write(name, at, values)
            new = np.arange(n_before, len(self._arrays))
            for name, default in self._added.items():
                if name not in columns and len(new):
                    self._arrays.write(name, new, [default] * len(new))
            in_them = self.aggregates.of_hosts(hosts)
            self._arrays.write("aggregates", at, in_them)
            if len(new):
                self._write_placement_places(new)
            self._touch(at)
            reported = {h: instances[h] for h in hosts if h in instances}
            self._replace_instances(reported)
            if self._pending:
                for uuid, host in zip(uuids, hosts, strict=True):
                    if uuid in self._pending:
                        self._settle_reported(uuid, host, reported.get(host, ()))

    def _row(self, node_uuid: str) -> int:
        row = self._arrays.row_of(node_uuid)
        return int(self._arrays.rows_for([node_uuid])[0]) if row is None else row

    def _settle_reported(
        self, node_uuid: str, host: str, reported: Collection[str]
    ) -> None:
        for uuid in self._claims_on(node_uuid).keys() & set(reported):
            self._pop_claim(node_uuid, uuid)
        row = self._row(node_uuid)
        for uuid, claim in self._claims_on(node_uuid).items():
            self._apply_claim(row, claim)
            self._add_instance(host, uuid, claim.consumption)

    def _claims_on(self, node_uuid: str) -> Mapping[str, PendingClaim]:
        return self._pending.get(node_uuid, {})

    def _pop_claim(self, node_uuid: str, instance_uuid: str) -> PendingClaim | None:
        claims = self._pending.get(node_uuid, {})
        claim = claims.pop(instance_uuid, None)
        if not claims:
            self._pending.pop(node_uuid, None)
        return claim

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
                self._revision += 1
                unknown += self._change(chunk)
        return unknown

    def _change(self, changes: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
        unknown: list[str] = []
        touched: list[int] = []
        by_column: defaultdict[str, tuple[list[int], list[Any]]]
        by_column = defaultdict(lambda: ([], []))
        # Claims are added to the reported values: subtract them, and add them again.
        concerned = self._pending.keys() & {node_uuid for node_uuid, _ in changes}
        claimed = [(node, self._row(node)) for node in concerned]
        for node_uuid, row in claimed:
            self._revert_claims(node_uuid, row)
        for node_uuid, values in changes:
            found = self._arrays.row_of(node_uuid)
            if found is None:
                unknown.append(node_uuid)
                continue
            touched.append(found)
            for name, value in values.items():
                rows, new_values = by_column[name]
                rows.append(found)
                new_values.append(value)
        for name, (rows, new_values) in by_column.items():
            self._arrays.write(name, rows, new_values)
        if "host" in by_column:
            moved = by_column["host"]
            in_them = self.aggregates.of_hosts(moved[1])
            self._arrays.write("aggregates", moved[0], in_them)
        self._touch(touched)
        for node_uuid, row in claimed:
            for claim in self._claims_on(node_uuid).values():
                self._apply_claim(row, claim)
        return unknown

    def as_reported(self, node_uuid: str) -> HostRecord | None:
        """Return a compute node's row as it was reported, without pending claims.

        None: it has no row.
        """
        with self._lock:
            row = self._arrays.row_of(node_uuid)
            if row is None:
                return None
            self._revert_claims(node_uuid, row)
            values, extra = (
                {name: self._arrays.read(name, row) for name in names}
                for names in (COLUMNS, self._added)
            )
            for claim in self._claims_on(node_uuid).values():
                self._apply_claim(row, claim)
            return HostRecord(**values, extra=extra)

    def drop(self, node_uuid: str) -> None:
        """Remove a compute node, known or not, together with its pending claims.

        The last row takes its place.
        """
        self.drop_many([node_uuid])

    def drop_many(self, node_uuids: Iterable[str]) -> None:
        """Remove compute nodes, as `drop` does."""
        with self._lock:
            for node_uuid in node_uuids:
                if self._arrays.remove(node_uuid):
                    self._revision += 1
                    # They could not be released: `release_claim` finds claims by row.
                    self._pending.pop(node_uuid, None)

    def set_instances(self, host: str, uuids: Collection[str]) -> None:
        """Replace the instances of a service host; those with pending claims stay."""
        self.set_instances_of({host: uuids})

    def set_instances_of(self, instances: Mapping[str, Collection[str]]) -> None:
        """Replace the instances of service hosts, as `set_instances` does."""
        with self._lock:
            self._revision += 1
            self._replace_instances(instances)

    def _replace_instances(self, instances: Mapping[str, Collection[str]]) -> None:
        pending = self._pending_by_host()
        for host, uuids in instances.items():
            claimed = pending.get(host)
            self.instances.set_host(host, {*uuids, *claimed} if claimed else uuids)

    def _pending_by_host(self) -> Mapping[str, set[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for node_uuid, claims in self._pending.items():
            found[self._arrays.text("host", self._row(node_uuid))] |= claims.keys()
        return found

    def add_instances(
        self,
        host: str,
        uuids: Collection[str],
        properties: Mapping[str, ImageProperties] | None = None,
    ) -> None:
        """Record that a service host has built these instances, among others.

        Parameters
        ----------
        properties : mapping, optional
            Image properties by instance; those of other instances do not change.
        """
        with self._lock:
            self._revision += 1
            for uuid in uuids:
                self.instances.add(host, uuid)
            if properties:
                self.set_image_properties(properties)
            self._end_builds(host, uuids)

    def set_image_properties(self, properties: Mapping[str, ImageProperties]) -> None:
        """Set the image properties of instances; those on no host are ignored."""
        with self._lock:
            self._revision += 1
            for uuid, its in properties.items():
                self.instances.set_image_properties(uuid, its)

    def _end_builds(self, host: str, uuids: Collection[str]) -> None:
        for node_uuid in self.nodes_of(host):
            pending = self._claims_on(node_uuid)
            for uuid in pending.keys() & set(uuids):
                row, built = self._row(node_uuid), pending[uuid].consumption
                pending[uuid].consumption = dataclasses.replace(built, io_ops=0)
                self._arrays.add("num_io_ops", row, -built.io_ops)
                self._touch([row])

    # -- claims ----------------------------------------------------------------------

    def consume(
        self,
        node_uuid: str,
        instance_uuid: str,
        consumption: Consumption,
        claimed_at: float | None = None,
        *,
        is_reserved: bool = False,
    ) -> None:
        """Add what an instance was granted; repeating it changes nothing.

        For a node without a row nothing is added: its next report includes it.

        Parameters
        ----------
        claimed_at : float, optional
            Seconds since the epoch; now by default.
        is_reserved : bool
            Whether it is not granted yet; repeat it once it is.
        """
        with self._lock:
            row = self._arrays.row_of(node_uuid)
            if row is None:
                return
            if known := self._claims_on(node_uuid).get(instance_uuid):
                known.is_reserved &= is_reserved
                return
            self._revision += 1
            now = self._clock() if claimed_at is None else claimed_at
            claim = PendingClaim(consumption, now, is_reserved=is_reserved)
            self._pending.setdefault(node_uuid, {})[instance_uuid] = claim
            self._apply_claim(row, claim)
            host = self._arrays.text("host", row)
            self._add_instance(host, instance_uuid, consumption)

    def fits(self, node_uuid: str, consumption: Consumption, since: int) -> bool:
        """Return whether a compute node still has the cells and devices for a claim.

        It does not while it has a claim that does not fit: its report is older than
        what made room for that claim, and shows as free what that claim took.

        Parameters
        ----------
        since : int
            The revision at which it had: a row that has not changed is not fitted
            again.
        """
        with self._lock:
            row = self._arrays.row_of(node_uuid)
            if row is None:
                return True
            if not self._all_fit(node_uuid):
                return False
            if self._arrays.read("revision", row) <= since:
                return True
            return consumption.fits(*self._devices(row))

    def _all_fit(self, node_uuid: str) -> bool:
        return all(each.is_complete for each in self._claims_on(node_uuid).values())

    def consume_if_fits(
        self,
        node_uuid: str,
        instance_uuid: str,
        consumption: Consumption,
        claimed_at: float,
        since: int,
    ) -> bool:
        """Reserve what an instance needs if it still fits; see `fits`."""
        with self._lock:
            is_there = instance_uuid in self._claims_on(node_uuid)
            if not is_there and not self.fits(node_uuid, consumption, since):
                return False
            self.consume(
                node_uuid, instance_uuid, consumption, claimed_at, is_reserved=True
            )
            return True

    def has_place(self, node_uuid: str, instance_uuid: str) -> bool:
        """Return whether a claim has the cells and devices that it needs.

        Claims that no report includes yet get theirs in the order of their times.
        """
        with self._lock:
            claims = self._claims_on(node_uuid)
            if instance_uuid not in claims:
                return True
            self._sort_claims(node_uuid)
            return self._claims_on(node_uuid)[instance_uuid].is_complete

    def _sort_claims(self, node_uuid: str) -> None:
        claims = self._pending[node_uuid]
        by_time = sorted(claims.items(), key=lambda c: (c[1].claimed_at, c[0]))
        if by_time != list(claims.items()):
            self._fit_claims_again(node_uuid, dict(by_time))

    def _fit_claims_again(
        self, node_uuid: str, claims: dict[str, PendingClaim]
    ) -> None:
        row = self._row(node_uuid)
        self._revision += 1
        self._revert_claims(node_uuid, row)
        self._pending[node_uuid] = claims
        for claim in claims.values():
            self._apply_claim(row, claim)

    def withdraw_claim(self, node_uuid: str, instance_uuid: str) -> None:
        """Undo `consume` of a claim that was not granted, if it is still counted."""
        with self._lock:
            if instance_uuid in self._claims_on(node_uuid):
                host = self._arrays.text("host", self._row(node_uuid))
                self.release_claim(host, instance_uuid)

    def _add_instance(self, host: str, uuid: str, consumption: Consumption) -> None:
        self.instances.add(host, uuid)
        if consumption.image_properties:
            self.instances.set_image_properties(uuid, consumption.image_properties)

    def claims(self) -> tuple[UnreportedClaim, ...]:
        """Return the claims that no report of their node includes yet."""
        with self._lock:
            return tuple(
                UnreportedClaim(
                    node,
                    self._arrays.text("host", self._row(node)),
                    uuid,
                    claim.claimed_at,
                    claim.is_reserved,
                )
                for node, claims in self._pending.items()
                for uuid, claim in claims.items()
            )

    def mark_reported(self, node_uuid: str, instance_uuids: Iterable[str]) -> None:
        """Record that the row, as it was reported, includes these claims.

        They are no longer added to the reported values; the instances stay.
        """
        with self._lock:
            for instance_uuid in instance_uuids:
                claim = self._pop_claim(node_uuid, instance_uuid)
                if claim is not None:
                    self._revision += 1
                    self._revert_claim(self._row(node_uuid), claim)
            if not self._all_fit(node_uuid):  # what one of them lacked may be free now
                claims = dict(self._claims_on(node_uuid))
                self._fit_claims_again(node_uuid, claims)

    def release_claim(self, host: str, instance_uuid: str) -> None:
        """Undo `consume` on a service host: the claim was released, or has ended.

        An instance that is not there, or that a report included, is only removed.
        """
        with self._lock:
            self._revision += 1
            self.instances.remove(host, instance_uuid)
            for node_uuid in self.nodes_of(host):
                self.mark_reported(node_uuid, [instance_uuid])

    def _revert_claims(self, node_uuid: str, row: int) -> None:
        for claim in reversed(list(self._claims_on(node_uuid).values())):
            self._revert_claim(row, claim)

    def _apply_claim(self, row: int, claim: PendingClaim) -> None:
        self._add(row, claim.consumption, 1)
        topology, pools = self._devices(row)
        claim.usage = claim.consumption.take(topology, pools)
        if claim.usage is not None:
            for name, value in claim.usage.changes():
                self._arrays.write(name, [row], [value])

    def _revert_claim(self, row: int, claim: PendingClaim) -> None:
        self._add(row, claim.consumption, -1)
        if claim.usage is not None:
            for name, value in claim.usage.undone(*self._devices(row)):
                self._arrays.write(name, [row], [value])

    def _add(self, row: int, consumption: Consumption, sign: int) -> None:
        for name, delta in consumption.deltas():
            self._arrays.add(name, row, sign * delta)
        self._touch([row])

    def _devices(self, row: int) -> tuple[Any, Any]:
        value = self._arrays.value
        return value("numa_topology", row), value("pci_stats", row)

    # -- aggregates --------------------------------------------------------------------

    def put_aggregate(self, aggregate: HostAggregate) -> None:
        """Add or replace an aggregate, also in the rows of its hosts."""
        with self._lock:
            self._write_aggregates(self.aggregates.put(aggregate))

    def drop_aggregate(self, aggregate_id: int) -> None:
        """Remove an aggregate, known or not."""
        with self._lock:
            self._write_aggregates(self.aggregates.drop(aggregate_id))

    def put_aggregates(self, aggregates: Iterable[HostAggregate]) -> None:
        """Replace all aggregates; unaffected rows are not touched."""
        changed = {aggregate.id: aggregate for aggregate in aggregates}
        with self._lock:
            concerned: set[str] = set()
            for old in self.aggregates:
                if old.id not in changed:
                    concerned |= self.aggregates.drop(old.id)
                elif old == changed[old.id]:
                    del changed[old.id]
            for new in changed.values():
                concerned |= self.aggregates.put(new)
            self._write_aggregates(concerned)

    def _write_aggregates(self, hosts: Collection[str]) -> None:
        self._revision += 1
        if not hosts:
            return
        rows = self._arrays.where({"host": hosts}).tolist()
        names = (self._arrays.text("host", row) for row in rows)
        self._arrays.write(
            "aggregates", rows, [self.aggregates.of_host(name) for name in names]
        )
        self._touch(rows)

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
            self._revision += 1
            self._placement_places = dict(places)
            distinct = set(self._placement_places.values())
            self.placement_places = frozenset[PlacementPlace]().union(*distinct)
            found = self._arrays.rows_of(changed)
            rows = found[found >= 0]
            if len(rows):
                self._write_placement_places(rows)
                self._touch(rows)

    def _write_placement_places(self, rows: Rows) -> None:
        known = self._placement_places
        uuids = (self._arrays.text("uuid", row) for row in rows.tolist())
        values = [known.get(uuid, ()) for uuid in uuids]
        self._arrays.write("placement_places", rows, values)

    def _touch(self, rows: Sequence[int] | Rows) -> None:
        self._arrays.write("revision", rows, self._revision)
