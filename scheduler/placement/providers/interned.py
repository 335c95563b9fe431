# SPDX-License-Identifier: Apache-2.0
"""Values that many providers share, stored once: sets of names, and inventories.

Both kinds of table only grow: an index that was returned keeps its meaning, so that
readers can use an older view while a newer one is written. A column of inventories gets
a new table once most inventories in its table are not in use.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
#: Rows of providers, or positions in another array.
Rows = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

#: One inventory of one provider, without its usage.
INVENTORY: Final = np.dtype(
    [
        ("total", np.int64),
        ("reserved", np.int64),
        ("min_unit", np.int64),
        ("max_unit", np.int64),
        ("step_size", np.int64),
        ("allocation_ratio", np.float64),
    ]
)
_UNBOUNDED: Final = 2.0**62  # adding an amount to it does not exceed int64


class InternedSets:
    """Sets of names, each stored once; index 0 is the empty set."""

    def __init__(self) -> None:
        self._sets: list[frozenset[str]] = []
        self._index: dict[frozenset[str], int] = {}
        self._containing: dict[str, array[int]] = {}
        self.intern(frozenset())

    def __getitem__(self, index: int) -> frozenset[str]:
        """Return the set at an index."""
        return self._sets[index]

    def intern(self, names: frozenset[str]) -> int:
        """Return the index of a set of names; add the set if it is new."""
        index = self._index.get(names)
        if index is None:
            index = len(self._sets)
            self._sets.append(names)
            for name in names:
                self._containing.setdefault(name, array("i")).append(index)
            self._index[names] = index
        return index

    def intersecting(self, names: Iterable[str]) -> Mask:
        """Return which sets contain one of `names`; shape (n_sets,)."""
        mask = np.zeros(len(self._sets), np.bool_)
        for name in names:
            if name in self._containing:
                # Copied: another thread may append indices, which no view has yet.
                indices = np.frombuffer(self._containing[name][:], np.int32)
                mask[indices[indices < len(mask)]] = True
        return mask


class InternedInventories:
    """The distinct inventories of one resource class.

    Attributes
    ----------
    values : ndarray of `INVENTORY`, shape (n_distinct,)
    capacity : ndarray of int64, shape (n_distinct,)
        What may be used of each inventory, rounded down as Placement rounds it.
    is_mysql : bool

    Parameters
    ----------
    is_mysql : bool
        Whether Placement's database keeps an allocation ratio in 32 bits. To find the
        providers that fit, the database multiplies by this ratio: 10 x 0.7 is less than
        7. To check a sum of amounts, Placement reads the ratio with six digits: 0.7.
    """

    def __init__(self, *, is_mysql: bool = False) -> None:
        self.values = np.empty(0, INVENTORY)
        self.capacity = np.empty(0, np.int64)
        self.is_mysql = is_mysql
        self._fitting_capacity = self.capacity
        self._index: dict[bytes, int] = {}

    def emptied(self) -> InternedInventories:
        """Return a new, empty table of inventories for the same database."""
        return InternedInventories(is_mysql=self.is_mysql)

    def intern(self, values: npt.NDArray[np.void]) -> Rows:
        """Return the indices of inventories of dtype `INVENTORY`; add the new ones."""
        data, size = values.tobytes(), INVENTORY.itemsize
        keys = [data[i : i + size] for i in range(0, len(data), size)]
        n_known = len(self._index)
        indices = [self._index.setdefault(key, len(self._index)) for key in keys]
        if len(self._index) > n_known:
            added = itertools.islice(self._index, n_known, None)
            self._append(np.frombuffer(b"".join(added), INVENTORY))
        return np.array(indices, np.int32)

    def _append(self, new: npt.NDArray[np.void]) -> None:
        ratios = new["allocation_ratio"]
        capacity = fitting_capacity = _capacity(new, ratios)
        if self.is_mysql:
            capacity = _capacity(new, _with_six_digits(ratios))
            stored_ratios = ratios.astype(np.float32).astype(np.float64)
            fitting_capacity = np.minimum(capacity, _capacity(new, stored_ratios))
        self.capacity = np.concatenate([self.capacity, capacity])
        self._fitting_capacity = np.concatenate(
            [self._fitting_capacity, fitting_capacity]
        )
        self.values = np.concatenate([self.values, new])

    def max_used(self, amount: int) -> Int64s:
        """Return each inventory's highest usage beside which `amount` can be allocated.

        Shape (n_distinct,); -1 where an allocation from it may not have that amount.
        """
        values, capacity = self.values, self._fitting_capacity[: len(self.values)]
        is_allowed = values["min_unit"] <= amount
        is_allowed &= values["max_unit"] >= amount
        is_allowed &= amount % values["step_size"] == 0
        return np.where(is_allowed, capacity - amount, -1)


def _capacity(values: npt.NDArray[np.void], ratios: npt.NDArray[np.float64]) -> Int64s:
    product = (values["total"] - values["reserved"]) * ratios
    capacity: Int64s = np.minimum(product, _UNBOUNDED).astype(np.int64)
    return capacity


def _with_six_digits(ratios: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    distinct, indices = np.unique(ratios, return_inverse=True)
    return np.array([float(f"{ratio:.6g}") for ratio in distinct])[indices]
