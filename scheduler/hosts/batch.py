# SPDX-License-Identifier: Apache-2.0
"""A snapshot of rows of the host table."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from ...objects import Instance, NUMATopology
from ..candidates import (
    AllocationRequest,
    CandidateRows,
    HostCandidates,
    Mask,
    Rows,
    empty_candidates,
)
from .aggregates import HostAggregate
from .claims import Consumption
from .column_arrays import View
from .instances import ImageProperty
from .interning import Codes, ValueArrays
from .launches import LAUNCHING, with_launch
from .numa import HostTopology
from .pci import PciDeviceStats
from .record import NOVA_ATTRIBUTES


class HostState:
    """One host of a batch, under the attribute names of nova's HostState.

    A filter or weigher that was written for nova gets one of these for each host.
    Numbers have types of Python's. A filter of nova's protocol may shorten
    `allocation_candidates` and write to `limits`; both affect this object only.
    """

    __slots__ = ("_batch", "_candidates", "_index", "limits")

    def __init__(self, batch: HostBatch, index: int) -> None:
        self._batch = batch
        self._index = index
        self._candidates: list[AllocationRequest] | None = None
        self.limits: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._batch.value(name, self._index)

    def as_batch(self) -> HostBatch:
        """Return the batch of this host alone."""
        return self._batch.take([self._index])

    @property
    def allocation_candidates(self) -> list[AllocationRequest]:
        """The candidates as Placement returned them; none if it was not asked."""
        if self._candidates is None:
            self._candidates = self._batch.allocation_requests_of(self._index)
        return self._candidates

    @allocation_candidates.setter
    def allocation_candidates(self, candidates: list[AllocationRequest]) -> None:
        self._candidates = candidates

    @property
    def numa_topology(self) -> NUMATopology | None:
        """The NUMA cells, as the object that compute hosts report."""
        topology: HostTopology | None = self._batch.value("numa_topology", self._index)
        return None if topology is None else topology.to_object()

    @property
    def pci_stats(self) -> PciDeviceStats:
        """The pools of free PCI devices."""
        pools = self._batch.value("pci_stats", self._index)
        topology = self._batch.value("numa_topology", self._index)
        return PciDeviceStats(pools, topology)

    @property
    def aggregates(self) -> list[HostAggregate]:
        """The aggregates of the service host, by ascending id."""
        return list(self._batch.value("aggregates", self._index))

    @property
    def instances(self) -> dict[str, Instance]:
        """The instances of the service host by UUID; of each only `uuid` is set."""
        return self._batch.instances_of(self._index)

    @property
    def service(self) -> dict[str, Any]:
        """The fields of the compute service that a scheduler needs."""
        seen: float = self.last_seen_up
        return {
            "host": self.host,
            "disabled": self.disabled,
            "forced_down": self.forced_down,
            "last_seen_up": (
                datetime.datetime.fromtimestamp(seen, datetime.UTC)
                if math.isfinite(seen)
                else None
            ),
        }

    def __repr__(self) -> str:
        # nova's own form: operators search logs for it.
        return (
            f"({self.host}, {self.nodename}) ram: {self.free_ram_mb}MB "
            f"disk: {self.free_disk_mb}MB io_ops: {self.num_io_ops} "
            f"instances: {self.num_instances}"
        )


ValueArraysT = TypeVar("ValueArraysT", bound=ValueArrays)

#: Searching for more changed hosts one by one would take longer than asking plugins
#: for all hosts.
_MAX_CHANGED: Final = 64


ScalarT = TypeVar("ScalarT", bound=np.generic)


def without(array: npt.NDArray[ScalarT], indices: Rows) -> npt.NDArray[ScalarT]:
    """Return an array without the elements at a few ascending indices.

    This is several times as fast as a mask. An array with a stride of 0, which has one
    number for all elements, is not copied.
    """
    if array.strides == (0,) or not len(indices):
        return array[len(indices) :]
    starts, ends = [0, *(indices + 1).tolist()], [*indices.tolist(), len(array)]
    return np.concatenate([array[i:j] for i, j in zip(starts, ends, strict=True)])


class HostBatch:
    """n rows of the host table; every column is an attribute of shape (n,).

    Columns of numbers are read-only arrays of int64, float64 or bool; the others are
    arrays of objects, for which `map_distinct` is faster. Attributes have the names of
    nova's HostState; `HostRecord` has their units. The columns never change. Instances
    are not among them: a batch reads those that the table has now.

    Attributes
    ----------
    rows : ndarray of intp, shape (n,)
        The row numbers in the table.
    revision : int
        The revision of the table at which these rows were read.
    placed : mapping
        The service host of each instance that this request has placed so far.
    placed_nodes : mapping
        The compute node's UUID of each of these instances.
    """

    rows: Rows
    revision: int
    placed: Mapping[str, str]
    placed_nodes: Mapping[str, str]

    def __init__(  # noqa: PLR0913 - all but two by name
        self,
        view: View,
        rows: Rows,
        *,
        changed: Mapping[str, npt.NDArray[Any]] | None = None,
        placed: Mapping[str, str] | None = None,
        placed_nodes: Mapping[str, str] | None = None,
        is_whole: bool = False,
        offered: HostCandidates | None = None,
        is_narrowed: bool = False,
    ) -> None:
        self.rows = rows
        self.revision = view.revision
        self.placed = placed or {}
        self.placed_nodes = placed_nodes or {}
        self._view = view
        self._is_whole = is_whole
        # All rows in order need no copy: a view's column never changes.
        self._picked = slice(None) if is_whole else rows
        self._offered = offered
        self._is_narrowed = is_narrowed
        self._candidates: CandidateRows | None = None
        self._changed = dict(changed or {})
        self._gathered: dict[str, npt.NDArray[Any]] = {}
        self._counts: dict[frozenset[str], npt.NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[HostState]:
        return (HostState(self, index) for index in range(len(self)))

    def __getitem__(self, index: int) -> HostState:
        if not -len(self) <= index < len(self):
            raise IndexError(f"host {index} of a batch of {len(self)}")
        return HostState(self, index % len(self))

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        array = self._gathered.get(name)
        if array is None:
            if name in self._view.codes:
                array = self.map_distinct(name, lambda value: value, object)
            elif name in self._changed:
                array = self._changed[name]
            elif name in self._view.numbers:
                array = self._view.numbers[name][self._picked]
            else:
                raise AttributeError(
                    f"hosts have no attribute {name!r}; they have "
                    f"{', '.join(sorted(self.column_names))}"
                )
            array.flags.writeable = False
            self._gathered[name] = array
        return array

    def value(self, name: str, index: int) -> Any:
        """Return one attribute of one host; a number has a type of Python's."""
        if name in self._view.codes:
            codes, position = self._view.codes[name], self.rows[index]
            if name in self._changed:
                codes, position = self._changed[name], index
            return self._view.interners[name].values[codes[position]]
        if name in self._changed:
            return self._changed[name][index].item()
        if name in self._view.numbers:
            return self._view.numbers[name][self.rows[index]].item()
        raise AttributeError(f"hosts have no attribute {name!r}")

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of all columns, also of those that the table derives."""
        names = (*self._view.numbers, *self._view.codes)
        return tuple(name for name in names if name != "revision")

    def has_attribute(self, name: str) -> bool:
        """Return whether a column provides that attribute of nova's HostState."""
        return name in NOVA_ATTRIBUTES

    def is_interned(self, name: str) -> bool:
        """Return whether a column holds interned values, as `map_distinct` needs."""
        return name in self._view.codes

    def codes(self, name: str) -> Codes:
        """Return the codes of an interned column, shape (n,)."""
        if name in self._changed:
            return self._changed[name]
        return self._view.codes[name][self._picked]

    def value_arrays(self, name: str, make: Callable[[], ValueArraysT]) -> ValueArraysT:
        """Return the arrays derived from an interned column's values, by code.

        See `Interner.value_arrays`; index them with `codes` to get these hosts' rows.
        """
        return self._view.interners[name].value_arrays(make)

    def map_codes(
        self,
        name: str,
        cache_key: Hashable,
        function: Callable[[int], npt.NDArray[Any]],
    ) -> npt.NDArray[Any]:
        """Return the results of `function` for an interned column, for each row.

        `function` and `cache_key` are those of `Interner.map_codes`.
        """
        return self._view.interners[name].map_codes(cache_key, function)[
            self.codes(name)
        ]

    def map_distinct(
        self,
        name: str,
        function: Callable[[Any], Any],
        dtype: npt.DTypeLike,
        *,
        cache_key: Hashable | None = None,
    ) -> npt.NDArray[Any]:
        """Return the result of `function` for each row's value in an interned column.

        `function` is called once per distinct value.

        Parameters
        ----------
        cache_key : hashable, optional
            Identifies `function` and all of its parameters. Its results are then cached
            with the column, and it is called once per value, not once per value and
            request: for columns in which most rows differ.

        Returns
        -------
        ndarray of shape (n,), of `dtype`
        """
        codes = self.codes(name)
        if cache_key is not None:
            results = self._view.interners[name].map_values(cache_key, function, dtype)
            is_comparable = len(codes) and results.dtype != object
            if is_comparable and (results == results[0]).all():
                # The usual case: no aggregate has a multiplier, no host has a trait.
                return np.full(len(codes), results[0], dtype)
            return results[codes]
        values = self._view.interners[name].values
        # Marking the codes that occur costs O(n); sorting them would be slower.
        occurs = np.zeros(int(codes.max()) + 1 if len(codes) else 0, bool)
        occurs[codes] = True
        present = np.flatnonzero(occurs)
        results = np.empty(len(occurs), dtype)
        for code in present:
            results[code] = function(values[code])
        return results[codes]

    def matches(self, name: str, values: Collection[Any]) -> Mask:
        """Return where an interned column has one of these values, shape (n,)."""
        interner = self._view.interners[name]
        codes = [code for code in map(interner.find, values) if code is not None]
        return np.isin(self.codes(name), np.array(codes, dtype=np.int32))

    def indices_of(self, rows: Rows) -> Rows:
        """Return the indices of a few table rows in this batch, if it has them.

        They are in the order of this batch.
        """
        is_one = np.zeros(len(self), bool)
        for row in rows.tolist():
            is_one |= self.rows == row
        return np.flatnonzero(is_one)

    @property
    def instances_revision(self) -> int:
        """The number of the last change of the table's instances."""
        return self._view.instances.revision

    def changed_for(self, uuids: Collection[str], since: int) -> Rows | None:
        """Return the indices of the hosts for which instances may have changed.

        These are the hosts that have one of the instances `uuids`, or on which this
        decision has placed one of them, and the hosts whose instances have changed in
        the table since `instances_revision` was `since`. None: there are many.
        """
        instances, interner = self._view.instances, self._view.interners["host"]
        names = set(instances.count(uuids))
        names.update(self.placed[uuid] for uuid in uuids if uuid in self.placed)
        if instances.revision != since:
            names |= instances.changed_since(since)[1]
        if len(names) > _MAX_CHANGED:
            return None
        codes = self._view.codes["host"]
        is_changed = np.zeros(len(codes), bool)
        for name in names:
            if (code := interner.find(name)) is not None:
                is_changed |= codes == code
        rows = np.flatnonzero(is_changed)
        if len(rows) > _MAX_CHANGED:
            return None
        return rows if self._is_whole else self.indices_of(rows)

    def count_instances(self, uuids: Collection[str]) -> npt.NDArray[np.int64]:
        """Return how many of these instances each row's service host has, shape (n,).

        Instances that this decision has placed already are included.
        """
        key = frozenset(uuids)
        counts = self._counts.get(key)
        if counts is None:
            interner = self._view.interners["host"]
            by_code = np.zeros(len(interner.values), np.int64)
            for host, count in self.count_by_host(key).items():
                code = interner.find(host)
                # A host added after the length was read is in none of these rows.
                if code is not None and code < len(by_code):
                    by_code[code] = count
            counts = self._counts[key] = by_code[self.codes("host")]
            counts.flags.writeable = False
        return counts

    def has_reported(self, instance_uuid: str) -> Mask:
        """Return which rows' service hosts have reported an instance, shape (n,).

        A claim does not count: it may be that of a request whose answer was lost, so
        that the instance has never been there.
        """
        hosts = self._view.instances.reported_hosts_of(instance_uuid)
        return self.matches("host", hosts)

    def count_by_host(self, uuids: Collection[str]) -> Mapping[str, int]:
        """Return how many of these instances each service host has, if it has any.

        Hosts outside this batch are included, and instances that this decision has
        placed.
        """
        distinct = frozenset(uuids)
        by_host = self._view.instances.count(distinct.difference(self.placed))
        by_host += Counter(
            self.placed[uuid] for uuid in distinct.intersection(self.placed)
        )
        return by_host

    def sum_image_properties(
        self, factors: Mapping[ImageProperty, float]
    ) -> npt.NDArray[np.float64]:
        """Return how similar each service host's instances are to an image, shape (n,).

        The sum over instances and their (property, text) pairs of each pair's factor.
        Instances that this decision has placed already have the image itself.
        """
        instances = self._view.instances
        indices = self.map_distinct(
            "host", instances.index_of, np.intp, cache_key=("InstanceMap.index_of",)
        )
        sums: npt.NDArray[np.float64] = instances.sum_properties(factors)[indices]
        of_image = sum(factors.values())
        for host, count in Counter(self.placed.values()).items():
            sums[self.matches("host", [host])] += of_image * count
        return sums

    def instances_of(self, index: int) -> dict[str, Instance]:
        """Return the instances of one row's service host by UUID."""
        host = self.value("host", index)
        uuids = set(self._view.instances.of_host(host) - self.placed.keys())
        uuids.update(uuid for uuid in self.placed if self.placed[uuid] == host)
        return {uuid: Instance(uuid=uuid) for uuid in sorted(uuids)}

    # -- allocation candidates -------------------------------------------------------

    @property
    def candidates(self) -> CandidateRows:
        """The hosts' allocation candidates; `rows` are indices into this batch.

        If Placement was not asked, each host has one candidate without mappings.
        """
        if self._candidates is None:
            offered = self._offered
            self._candidates = (
                empty_candidates(len(self))
                if offered is None
                else offered.within(self.rows)
            )
        return self._candidates

    @property
    def request_groups(self) -> Collection[str]:
        """The request groups for which candidates have providers; empty without any."""
        return () if self._offered is None else self._offered.groups()

    def any_candidate(self, mask: Mask) -> Mask:
        """Return which hosts have at least one of these candidates, shape (n,).

        Parameters
        ----------
        mask : ndarray of bool, shape (n_candidates,)
        """
        has_candidate = np.zeros(len(self), bool)
        has_candidate[self.candidates.rows[mask]] = True
        return has_candidate

    def candidates_of(self, index: int) -> list[int] | None:
        """Return the numbers of one host's candidates; None: all that were offered.

        They are in Placement's order.
        """
        if self._offered is None or not self._is_narrowed:
            return None
        candidates = self.candidates
        numbers: list[int] = candidates.numbers[candidates.rows == index].tolist()
        return numbers

    def allocation_requests_of(self, index: int) -> list[AllocationRequest]:
        """Return one host's candidates as Placement returned them."""
        if self._offered is None:
            return []
        candidates = self.candidates
        of_host = np.flatnonzero(candidates.rows == index).tolist()
        return [candidates.request(i) for i in of_host]

    # -- other batches derived from this one; none of them changes it ----------------

    def whole(self) -> HostBatch:
        """Return all hosts of the table, as they were when this batch was read.

        Changes that this batch makes to amounts of its hosts are not included.
        """
        return HostBatch(
            self._view,
            np.arange(len(self._view.numbers["revision"]), dtype=np.intp),
            placed=self.placed,
            placed_nodes=self.placed_nodes,
            is_whole=True,
        )

    def take(self, index: Mask | Rows | Sequence[int]) -> HostBatch:
        """Return the batch of the rows that a mask or an array of indices picks."""
        picked = np.asarray(index)
        if not picked.size:
            picked = np.empty(0, np.intp)  # NumPy reads [] as floats
        arrays = [self.rows, *self._changed.values()]
        rejected = np.flatnonzero(~picked) if picked.dtype == bool else None
        if rejected is not None and len(rejected) <= _MAX_CHANGED:
            rows, *changed = [without(array, rejected) for array in arrays]
        else:
            rows, *changed = [array[picked] for array in arrays]
        return HostBatch(
            self._view,
            rows,
            changed=dict(zip(self._changed, changed, strict=True)),
            placed=self.placed,
            placed_nodes=self.placed_nodes,
            offered=self._offered,
            is_narrowed=self._is_narrowed,
        )

    def take_candidates(self, mask: Mask) -> HostBatch:
        """Return the hosts of the candidates in a mask, with only these candidates.

        Parameters
        ----------
        mask : ndarray of bool, shape (n_candidates,)
        """
        if mask.all():
            return self
        candidates = self.candidates.take(mask)
        narrowed = self.take(self.any_candidate(mask))
        if self._offered is not None:
            rows = self.rows[candidates.rows]  # of the table
            # No other code has a reference to this batch yet.
            narrowed._offered = dataclasses.replace(candidates, rows=rows)  # noqa: SLF001
            narrowed._is_narrowed = True  # noqa: SLF001
        return narrowed

    def with_numbers(self, numbers: Mapping[str, float]) -> HostBatch:
        """Return the same hosts, all with these values in columns of numbers."""
        changed = {
            name: np.full(len(self), value, self._view.numbers[name].dtype)
            for name, value in numbers.items()
        }
        return self._with_changed({**self._changed, **changed})

    def with_instance(
        self, index: int, instance_uuid: str, consumption: Consumption
    ) -> HostBatch:
        """Return the same hosts with an instance placed on one of them.

        The later instances of a request see the earlier ones this way; the table
        changes when they are claimed.
        """
        changed = dict(self._changed)
        for name, delta in consumption.deltas():
            changed[name] = getattr(self, name).copy()
            changed[name][index] += delta
        devices = self.value("numa_topology", index), self.value("pci_stats", index)
        usage = consumption.take(*devices)
        for name, value in usage.changes() if usage is not None else ():
            changed[name] = self.codes(name).copy()
            changed[name][index] = self._view.interners[name].code(value)
        launches = None
        if consumption.group is not None:
            launches = self.value("launches", index)
        if launches is not None and consumption.group is not None:
            launches = with_launch(launches, LAUNCHING, consumption.group)
            changed["launches"] = self.codes("launches").copy()
            changed["launches"][index] = self._view.interners["launches"].code(launches)
        placed = {instance_uuid: self.value("host", index)}
        nodes = {instance_uuid: self.value("uuid", index)}
        return self._with_changed(changed, placed, nodes)

    def _with_changed(
        self,
        changed: Mapping[str, npt.NDArray[Any]],
        placed: Mapping[str, str] | None = None,
        nodes: Mapping[str, str] | None = None,
    ) -> HostBatch:
        """Return the same hosts with other columns and more placed instances."""
        return HostBatch(
            self._view,
            self.rows,
            changed=changed,
            placed={**self.placed, **(placed or {})},
            placed_nodes={**self.placed_nodes, **(nodes or {})},
            is_whole=self._is_whole,
            offered=self._offered,
            is_narrowed=self._is_narrowed,
        )

    def with_instances(
        self, n_each: npt.NDArray[np.int64], consumption: Consumption
    ) -> HostBatch:
        """Return the same hosts with more instances, in columns of numbers only.

        NUMA cells, PCI devices and the hosts of instances do not change.

        Parameters
        ----------
        n_each : ndarray of int64, shape (n,)
        """
        changed = {
            name: getattr(self, name) + n_each * delta
            for name, delta in consumption.deltas()
        }
        return self._with_changed({**self._changed, **changed})

    def with_candidates_of(self, other: HostBatch) -> HostBatch:
        """Return the same hosts with the candidates of another batch of these rows."""
        hosts = self.take(np.arange(len(self)))
        # No other code has a reference to this batch yet.
        hosts._offered = other._offered  # noqa: SLF001
        hosts._is_narrowed = other._is_narrowed  # noqa: SLF001
        return hosts
