# SPDX-License-Identifier: Apache-2.0
"""The host table: every compute node that a source reported, in columns."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .aggregates import Aggregate, AggregateMap
from .batch import HostBatch, Rows, View
from .candidates import CandidateRows, Offer, candidate_rows
from .fitting import Changes, Taken
from .image_properties import ImageProperties
from .instances import InstanceMap
from .interning import Codes, Interner, compacted
from .numa import HostTopology
from .pci import HostPools
from .record import INTERNED, NUMBERS, Consumption, HostRecord

_FIRST_CAPACITY = 64

#: Values kept beyond those in use before an interned column is compacted.
_SLACK = 1024

Column = npt.NDArray[Any]


@dataclasses.dataclass(slots=True)
class _Claim:
    """What an instance was granted, and what of the host's devices that took."""

    consumption: Consumption
    taken: Taken | None = None


class HostTable:
    """One row a compute node, one array a column, changed in place under one lock.

    A decision reads through a view. A column that a view may still read is copied
    before the next write to it, so that a view never changes.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._size = 0
        self._revision = 0
        self._numbers: dict[str, Column] = {
            name: np.zeros(_FIRST_CAPACITY, dtype) for name, dtype in NUMBERS.items()
        }
        self._numbers["revision"] = np.zeros(_FIRST_CAPACITY, np.int64)
        self._codes: dict[str, Codes] = {
            name: np.zeros(_FIRST_CAPACITY, np.int32)
            for name in (*INTERNED, "aggregates")
        }
        self._interners = {name: Interner() for name in self._codes}
        self._viewed: set[str] = set()
        self._row_of: dict[str, int] = {}
        #: Changes with every row that comes or goes.
        self._layout = 0
        #: Claims that no report of their node includes yet: node, instance, what.
        self._pending: defaultdict[str, dict[str, _Claim]] = defaultdict(dict)
        #: Claims that the last list of a host's instances left out, by host.
        self._left_out: dict[str, set[str]] = {}
        self.aggregates = AggregateMap()
        self.instances = InstanceMap()

    def __len__(self) -> int:
        return self._size

    @property
    def revision(self) -> int:
        """The number of the last change; it only grows."""
        return self._revision

    # -- reading -----------------------------------------------------------------

    def batch(self, node_uuids: Iterable[str] | None = None) -> HostBatch:
        """Return the rows of these compute nodes, or of all, as they are now.

        UUIDs without a row are left out. The order is that of the rows.
        """
        if node_uuids is None:
            with self._lock:
                every = np.arange(self._size, dtype=np.intp)
                return HostBatch(self._view(), every, is_whole=True)
        with self._lock:
            view, found = self._view(), self._rows_of(node_uuids)
            return self._listed(view, found)

    def offered(self, offer: Offer) -> HostBatch:
        """Return the hosts of Placement's open candidates, together with these.

        Which rows the hosts of an answer have is kept with the answer, until hosts
        come or go.
        """
        answer = offer.candidates
        with self._lock:
            view = self._view()
            every = answer.derived.get(
                ("rows", id(self), self._layout),
                lambda: candidate_rows(answer, self._rows_of(answer.by_host)),
            )
        if not offer.is_open.all():
            every = every.take(offer.is_open[every.numbers])
        return self._listed(view, every.rows, every)

    def _rows_of(self, node_uuids: Iterable[str]) -> Rows:
        """Return the row of each UUID, -1 for none."""
        return np.fromiter(
            map(self._row_of.get, node_uuids, itertools.repeat(-1)), np.intp
        )

    def _listed(
        self, view: View, found: Rows, offered: CandidateRows | None = None
    ) -> HostBatch:
        size = len(view.numbers["revision"])
        # One place more than there are rows: that of -1.
        is_listed = np.zeros(size + 1, bool)
        is_listed[found] = True
        rows = np.flatnonzero(is_listed[:size])
        return HostBatch(view, rows, is_whole=len(rows) == size, offered=offered)

    def has_node(self, node_uuid: str) -> bool:
        """Return whether a compute node has a row."""
        return node_uuid in self._row_of

    def nodes_of(
        self, host: str | None, node: str | None = None, cell: str | None = None
    ) -> tuple[str, ...]:
        """Return the UUIDs of a host's compute nodes, of one node, or of one cell.

        Names are compared as they are; None stands for any.
        """
        wanted = {"host": host, "nodename": node, "cell_uuid": cell}
        with self._lock:
            mask = np.ones(self._size, bool)
            for name, value in wanted.items():
                if value is not None:
                    code = self._interners[name].find(value)
                    mask &= self._codes[name][: self._size] == (
                        -1 if code is None else code
                    )
            codes = self._codes["uuid"][: self._size][mask]
            return tuple(self._interners["uuid"].values[code] for code in codes)

    def least_service_version(self) -> int:
        """Return the least version of a compute service; 0 where none is known."""
        with self._lock:
            versions = self._numbers["service_version"][: self._size]
            known = versions[versions > 0]
        return int(known.min()) if len(known) else 0

    def _view(self) -> View:
        for name in self._codes:  # decisions that claim nothing add values, too
            self._compact(name)
        self._viewed = {*self._numbers, *self._codes}
        size = self._size
        return View(
            numbers={name: array[:size] for name, array in self._numbers.items()},
            codes={name: array[:size] for name, array in self._codes.items()},
            interners=dict(self._interners),
            instances=self.instances,
            revision=self._revision,
        )

    # -- reports of a source -------------------------------------------------------

    def put(self, record: HostRecord, instances: Collection[str] | None = None) -> None:
        """Add or replace the row of a compute node.

        Parameters
        ----------
        record : HostRecord
        instances : collection of str, optional
            UUIDs of all instances of its service host; None where the report does not
            tell. Claims that it includes are given back, the others stay consumed.
        """
        with self._lock:
            self._revision += 1
            row = self._row_of.get(record.uuid)
            if row is None:
                row = self._append(record.uuid)
            self._write(row, record)
            if instances is not None:
                self._replace_instances(record.host, instances)
            self._settle(record, row, instances or ())

    def drop(self, node_uuid: str) -> None:
        """Forget a compute node, known or not, and the claims that no report includes.

        The last row takes its place.
        """
        with self._lock:
            row = self._row_of.pop(node_uuid, None)
            if row is None:
                return
            self._revision += 1
            self._layout += 1
            # Nobody could give these back: `give_back` finds claims by row.
            self._pending.pop(node_uuid, None)
            last = self._size - 1
            if row != last:
                for name in (*self._numbers, *self._codes):
                    array = self._writable(name)
                    array[row] = array[last]
                self._row_of[self._text("uuid", row)] = row
            self._size = last

    def _append(self, node_uuid: str) -> int:
        row = self._size
        if row == len(self._numbers["revision"]):
            for arrays in (self._numbers, self._codes):
                for name, array in arrays.items():
                    arrays[name] = np.resize(array, 2 * row)
            self._viewed.clear()
        self._size += 1
        self._layout += 1
        self._row_of[node_uuid] = row
        return row

    def _write(self, row: int, record: HostRecord) -> None:
        for name in NUMBERS:
            self._writable(name)[row] = getattr(record, name)
        for name in INTERNED:
            self._set_code(name, row, getattr(record, name))
        self._set_code("aggregates", row, self.aggregates.of_host(record.host))
        self._touch(row)

    def _settle(self, record: HostRecord, row: int, reported: Collection[str]) -> None:
        pending = self._pending[record.uuid]
        for instance_uuid in pending.keys() & set(reported):
            del pending[instance_uuid]
        for instance_uuid, claim in pending.items():
            self._take(row, claim)
            self._add_instance(record.host, instance_uuid, claim.consumption)

    def set_instances(self, host: str, uuids: Collection[str]) -> None:
        """Replace the instances of a service host; those just claimed there stay.

        A claim that two such reports in a row leave out is given back: its build
        failed, or never began.
        """
        with self._lock:
            self._revision += 1
            left_out = self._pending_on(host).difference(uuids)
            before = self._left_out.pop(host, set())
            for uuid in left_out & before:
                self.give_back(host, uuid)
            if left_out - before:  # nothing is kept of a host without such claims
                self._left_out[host] = left_out - before
            self._replace_instances(host, uuids)
            self._end_builds(host, uuids)

    def _pending_on(self, host: str) -> set[str]:
        return {u for node in self.nodes_of(host) for u in self._pending[node]}

    def _replace_instances(self, host: str, uuids: Collection[str]) -> None:
        self.instances.set_host(host, {*uuids, *self._pending_on(host)})

    def add_instances(
        self,
        host: str,
        uuids: Collection[str],
        properties: Mapping[str, ImageProperties] | None = None,
    ) -> None:
        """Say that a service host has these instances, among others.

        Parameters
        ----------
        properties : mapping, optional
            Image properties by instance; what was known of the others stays.
        """
        with self._lock:
            self._revision += 1
            for uuid in uuids:
                self.instances.add(host, uuid)
            for uuid, its in (properties or {}).items():
                self.instances.describe(uuid, its)
            self._end_builds(host, uuids)

    def _end_builds(self, host: str, uuids: Collection[str]) -> None:
        for node_uuid in self.nodes_of(host):
            pending = self._pending[node_uuid]
            for uuid in pending.keys() & set(uuids):
                row, built = self._row_of[node_uuid], pending[uuid].consumption
                pending[uuid].consumption = dataclasses.replace(built, io_ops=0)
                self._writable("num_io_ops")[row] -= built.io_ops
                self._touch(row)

    # -- claims ----------------------------------------------------------------------

    def consume(
        self, node_uuid: str, instance_uuid: str, consumption: Consumption
    ) -> None:
        """Take what an instance was granted; a second time for it changes nothing.

        A node that has no row any more is left to its next report.
        """
        with self._lock:
            row = self._row_of.get(node_uuid)
            if row is None or instance_uuid in self._pending[node_uuid]:
                return
            self._revision += 1
            claim = self._pending[node_uuid][instance_uuid] = _Claim(consumption)
            self._take(row, claim)
            self._add_instance(self._text("host", row), instance_uuid, consumption)

    def _add_instance(self, host: str, uuid: str, consumption: Consumption) -> None:
        self.instances.add(host, uuid)
        if consumption.image_properties:
            self.instances.describe(uuid, consumption.image_properties)

    def give_back(self, host: str, instance_uuid: str) -> None:
        """Undo `consume` on a service host: the claim was given up, or has ended.

        An instance that is not there, or that a report included, is only forgotten.
        """
        with self._lock:
            self._revision += 1
            self.instances.remove(host, instance_uuid)
            for node_uuid in self.nodes_of(host):
                claim = self._pending[node_uuid].pop(instance_uuid, None)
                if claim is not None:
                    self._return(self._row_of[node_uuid], claim)

    def _take(self, row: int, claim: _Claim) -> None:
        self._add(row, claim.consumption, 1)
        claim.taken = claim.consumption.take(*self._devices(row))
        if claim.taken is not None:
            self._set_codes(row, claim.taken.changes())

    def _return(self, row: int, claim: _Claim) -> None:
        self._add(row, claim.consumption, -1)
        if claim.taken is not None:
            self._set_codes(row, claim.taken.undone(*self._devices(row)))

    def _add(self, row: int, consumption: Consumption, sign: int) -> None:
        for name, delta in consumption.deltas():
            self._writable(name)[row] += sign * delta
        self._touch(row)

    def _devices(self, row: int) -> tuple[HostTopology | None, HostPools]:
        return self._value("numa_topology", row), self._value("pci_stats", row)

    # -- aggregates --------------------------------------------------------------------

    def put_aggregate(self, aggregate: Aggregate) -> None:
        """Add or replace an aggregate, and say so in the rows of its hosts."""
        self._change_aggregates(lambda: self.aggregates.put(aggregate))

    def drop_aggregate(self, aggregate_id: int) -> None:
        """Forget an aggregate, known or not."""
        self._change_aggregates(lambda: self.aggregates.drop(aggregate_id))

    def _change_aggregates(self, change: Callable[[], frozenset[str]]) -> None:
        with self._lock:
            self._revision += 1
            hosts = self._interners["host"]
            concerned = [code for code in map(hosts.find, change()) if code is not None]
            rows = np.isin(self._codes["host"][: self._size], concerned)
            for row in np.flatnonzero(rows).tolist():
                aggregates = self.aggregates.of_host(self._text("host", row))
                self._set_code("aggregates", row, aggregates)
                self._touch(row)

    # -- columns -----------------------------------------------------------------

    def _writable(self, name: str) -> Column:
        arrays: dict[str, Any] = self._numbers if name in self._numbers else self._codes
        if name in self._viewed:
            arrays[name] = arrays[name].copy()
            self._viewed.discard(name)
        return arrays[name]  # type: ignore[no-any-return]

    def _set_code(self, name: str, row: int, value: Any) -> None:
        self._compact(name)
        self._writable(name)[row] = self._interners[name].code(value)

    def _compact(self, name: str) -> None:
        """Leave out the values that no row has any more, where these are many."""
        interner = self._interners[name]
        if len(interner) <= 2 * self._size + _SLACK:
            return
        # Rows beyond the last are left out: what they held keeps no value alive.
        codes = np.zeros_like(self._codes[name])
        codes[: self._size], self._interners[name] = compacted(
            self._codes[name][: self._size], interner.values
        )
        self._codes[name] = codes
        self._viewed.discard(name)

    def _set_codes(self, row: int, values: Changes) -> None:
        for name, value in values:
            self._set_code(name, row, value)

    def _value(self, name: str, row: int) -> Any:
        return self._interners[name].values[self._codes[name][row]]

    def _text(self, name: str, row: int) -> str:
        return str(self._value(name, row))

    def _touch(self, row: int) -> None:
        self._writable("revision")[row] = self._revision
