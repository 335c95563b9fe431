# SPDX-License-Identifier: Apache-2.0
"""The host table's arrays: written in place, but copied while a view reads them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..candidates import Rows
from .aggregates import HostAggregate
from .instances import ImageProperties, InstanceMap
from .interning import Codes, Interner, compacted
from .record import Columns


@dataclasses.dataclass(frozen=True, slots=True)
class UnreportedClaim:
    """A claim that no report of its compute node includes yet.

    Attributes
    ----------
    host : str
        The service host.
    claimed_at : float
        Seconds since the epoch, by the clock of the scheduler that claimed.
    is_reserved : bool
        Whether the claim is not granted yet, so that Placement may hold nothing.
    since : float
        When the claim was reserved or granted in this process, by the monotonic clock.
    """

    node_uuid: str
    host: str
    instance_uuid: str
    claimed_at: float
    is_reserved: bool = False
    since: float = dataclasses.field(default=0.0, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """The table's columns as they were at one revision."""

    numbers: Mapping[str, npt.NDArray[Any]]
    codes: Mapping[str, Codes]
    interners: Mapping[str, Interner]
    instances: InstanceMap
    revision: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TableImage:
    """All that a host table holds at one revision; it does not change.

    Attributes
    ----------
    hosts_of : mapping
        The service hosts of each instance.
    properties : mapping
        The image properties of instances that have any.
    """

    view: View
    aggregates: tuple[HostAggregate, ...]
    hosts_of: Mapping[str, tuple[str, ...]]
    properties: Mapping[str, ImageProperties]
    claims: tuple[UnreportedClaim, ...]
    cell_names: Mapping[str, str]

    @property
    def revision(self) -> int:
        """The revision of the table."""
        return self.view.revision


_FIRST_CAPACITY = 64
_LARGE = 4096

#: Unused values that an interned column may have before it is compacted.
_SLACK = 1024

#: Columns that the table derives, as no report of a host has them.
DERIVED = ("aggregates", "placement_places")

Array = npt.NDArray[Any]


def _grown(capacity: int) -> int:
    """Return the next capacity of an array.

    Large arrays grow by a quarter only, because unused capacity costs memory.
    """
    return 2 * capacity if capacity < _LARGE else capacity + capacity // 4


class ColumnArrays:
    """One array per column, one row per compute node; not thread-safe.

    A column that a view may still read is copied before the next write to it, so that
    a view never changes.

    Attributes
    ----------
    revision : int
        The number of the last change; every caller increases it before a change.
    layout_revision : int
        Changes whenever a row is added or removed.
    supply_revision : int
        Changes whenever a row is added or removed, or a host's total supply changes.
    n_rows : int
    row_of : dict of str to int
        The row of each compute node, by UUID; only this class changes it.

    Parameters
    ----------
    columns : mapping
    instances : InstanceMap
        The instances of all hosts, which a view has in addition to the columns.
    """

    def __init__(self, columns: Columns, instances: InstanceMap) -> None:
        self.revision = 0
        self.layout_revision = 0
        self.supply_revision = 0
        self.n_rows = 0
        self.row_of: dict[str, int] = {}
        self._instances = instances
        self._numbers: dict[str, Array] = {
            name: np.zeros(_FIRST_CAPACITY, column.kind.dtype)
            for name, column in columns.items()
            if not column.is_interned
        }
        self._numbers["revision"] = np.zeros(_FIRST_CAPACITY, np.int64)
        self._codes: dict[str, Codes] = {
            name: np.zeros(_FIRST_CAPACITY, np.int32)
            for name in (*DERIVED, *columns)
            if name not in self._numbers
        }
        self._interners = {name: Interner() for name in self._codes}
        self._supply = {
            "aggregates",
            *(name for name, column in columns.items() if column.is_supply),
        }
        self._viewed: set[str] = set()

    def copied(self, instances: InstanceMap) -> ColumnArrays:
        """Return a copy with other instances; each column is copied by its next write.

        Values that are new in one of both get a code in the other, too.
        """
        copied = ColumnArrays({}, instances)
        copied.revision = self.revision
        copied.layout_revision = self.layout_revision
        copied.supply_revision = self.supply_revision
        copied.n_rows, copied.row_of = self.n_rows, self.row_of.copy()
        copied._numbers, copied._codes = self._numbers.copy(), self._codes.copy()
        copied._interners, copied._supply = self._interners.copy(), self._supply
        self._viewed = {*self._numbers, *self._codes}
        copied._viewed = self._viewed.copy()
        return copied

    # -- reading -----------------------------------------------------------------

    def rows_of(self, node_uuids: Iterable[str]) -> Rows:
        """Return the row of each UUID; -1: it has none."""
        return np.fromiter(
            map(self.row_of.get, node_uuids, itertools.repeat(-1)), np.intp
        )

    def view(self) -> View:
        """Return the columns as they are now; later writes do not change them."""
        n_rows = self.n_rows
        for name, interner in self._interners.items():
            # A decision can add values to an interner even if it claims nothing.
            if len(interner.values) > 2 * n_rows + _SLACK:
                self._compact(name)
        self._viewed = {*self._numbers, *self._codes}
        return View(
            numbers={name: array[:n_rows] for name, array in self._numbers.items()},
            codes={name: array[:n_rows] for name, array in self._codes.items()},
            interners=dict(self._interners),
            instances=self._instances,
            revision=self.revision,
        )

    def numbers(self, name: str) -> Array:
        """Return a column of numbers, for immediate reading."""
        return self._numbers[name][: self.n_rows]

    def read(self, name: str, row: int) -> Any:
        """Return a row's value of any column; a number has a type of Python's."""
        if name in self._numbers:
            return self._numbers[name][row].item()
        return self._interners[name].values[self._codes[name][row]]

    def where(self, **wanted: Iterable[Any]) -> list[int]:
        """Return the rows that have, in each of these columns, one of the values."""
        mask = np.ones(self.n_rows, bool)
        for name, values in wanted.items():
            codes = [
                code
                for value in values
                if (code := self._interners[name].find(value)) is not None
            ]
            column = self._codes[name][: self.n_rows]
            # One comparison costs a tenth of a lookup in a set.
            mask &= column == codes[0] if len(codes) == 1 else np.isin(column, codes)
        rows: list[int] = np.flatnonzero(mask).tolist()
        return rows

    # -- writing -----------------------------------------------------------------

    def rows_for(self, node_uuids: Sequence[str]) -> Rows:
        """Return the row of each UUID, a new one for those that have none.

        The caller must write all values of a new row.
        """
        rows = self.rows_of(node_uuids)
        if (rows >= 0).all():
            return rows
        new_uuids = [
            uuid for uuid in dict.fromkeys(node_uuids) if uuid not in self.row_of
        ]
        n_rows = self.n_rows + len(new_uuids)
        while len(self._numbers["revision"]) < n_rows:
            self._grow()
        self.row_of.update(zip(new_uuids, range(self.n_rows, n_rows), strict=True))
        self.n_rows = n_rows
        self.layout_revision += 1
        self.supply_revision += 1
        return self.rows_of(node_uuids)

    def _grow(self) -> None:
        for arrays in (self._numbers, self._codes):
            for name, array in arrays.items():
                arrays[name] = np.resize(array, _grown(len(array)))
        self._viewed.clear()

    def remove(self, node_uuid: str) -> bool:
        """Remove a compute node's row; return whether it had one.

        The last row moves to the removed row's index.
        """
        row = self.row_of.pop(node_uuid, None)
        if row is None:
            return False
        self.layout_revision += 1
        self.supply_revision += 1
        last = self.n_rows - 1
        if row != last:
            for name in (*self._numbers, *self._codes):
                array = self._writable(name)
                array[row] = array[last]
            self.row_of[self.read("uuid", row)] = row
        self.n_rows = last
        return True

    def add(self, row: int, deltas: Iterable[tuple[str, int]]) -> None:
        """Add to numbers of a row, and record that the row changed."""
        for name, delta in deltas:
            self._writable(name)[row] += delta
        self._writable("revision")[row] = self.revision

    def write(self, name: str, rows: Sequence[int] | Rows, values: Any) -> None:
        """Write one value, or one for each row, into any column."""
        if name not in self._numbers:
            if len(self._interners[name].values) > 2 * self.n_rows + _SLACK:
                self._compact(name)
            values = self._interners[name].codes(values)
        column = self._writable(name)
        previous = column[rows] if name in self._supply else None
        column[rows] = values
        if previous is not None and (previous != column[rows]).any():
            self.supply_revision += 1

    def touch(self, rows: Sequence[int] | Rows) -> None:
        """Record that these rows changed at the present revision."""
        self._writable("revision")[rows] = self.revision

    def _writable(self, name: str) -> Array:
        arrays: dict[str, Any] = self._numbers if name in self._numbers else self._codes
        if name in self._viewed:
            arrays[name] = arrays[name].copy()
            self._viewed.discard(name)
        return arrays[name]  # type: ignore[no-any-return]

    def _compact(self, name: str) -> None:
        """Remove the values that no row has any more."""
        # Rows beyond the last are excluded: their values must not be kept.
        codes = np.zeros_like(self._codes[name])
        codes[: self.n_rows], self._interners[name] = compacted(
            self._codes[name][: self.n_rows], self._interners[name].values
        )
        self._codes[name] = codes
        self._viewed.discard(name)
