# SPDX-License-Identifier: Apache-2.0
"""The inventories and usages of one resource class, of the providers that have it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .interned import Int64s, InternedInventories, Mask, Rows


@dataclass(frozen=True, slots=True, eq=False)
class InventoryColumn:
    """The providers that have inventory of one class. Its arrays are not written to.

    Attributes
    ----------
    distinct : InternedInventories
        The inventories that the providers share.
    rows : ndarray of int32, shape (n_providers,), ascending
        The providers' rows in `ProviderTrees`.
    kinds : ndarray of int32, shape (n_providers,)
        Each provider's index in `distinct`.
    used : ndarray of int64, shape (n_providers,)
    """

    distinct: InternedInventories
    rows: Rows
    kinds: Rows
    used: Int64s

    @classmethod
    def empty(cls, *, is_mysql: bool = False) -> InventoryColumn:
        """Return a column without providers; `is_mysql` as in `InternedInventories`."""
        distinct, no_rows = (
            InternedInventories(is_mysql=is_mysql),
            np.empty(0, np.int32),
        )
        return cls(distinct, no_rows, no_rows, np.empty(0, np.int64))

    def compacted(self) -> InventoryColumn:
        """Return the column with a new table, which has only the inventories in use."""
        distinct = self.distinct.emptied()
        return replace(
            self,
            distinct=distinct,
            kinds=distinct.intern(self.distinct.values[self.kinds]),
        )

    def fitting(self, amount: int) -> Rows:
        """Return the rows whose provider can allocate `amount` at once, ascending."""
        return self.rows[self.used <= self.distinct.max_used(amount)[self.kinds]]

    def has_room(self, rows: Rows, amount: int | Int64s) -> Mask:
        """Return whether each row has capacity for `amount`, and max_unit allows it.

        step_size and min_unit are not checked, as Placement does not check them for a
        sum of amounts. Each row must have an inventory.
        """
        positions = np.searchsorted(self.rows, rows)
        kinds = self.kinds[positions]
        fits = self.used[positions] + amount <= self.distinct.capacity[kinds]
        return fits & (amount <= self.distinct.values["max_unit"][kinds])

    def free(self, rows: Rows) -> Int64s:
        """Return capacity - used of rows that have an inventory."""
        positions = np.searchsorted(self.rows, rows)
        return self.distinct.capacity[self.kinds[positions]] - self.used[positions]

    def positions(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return the positions of rows in this column, and which of `rows` it has.

        Returns
        -------
        positions : ndarray of int, shape (n_found,)
            Indices into this column's arrays.
        indices : ndarray of int, shape (n_found,)
            Indices into `rows`.
        """
        insertion_points = np.searchsorted(self.rows, rows)
        indices = np.flatnonzero(insertion_points < len(self.rows))
        indices = indices[self.rows[insertion_points[indices]] == rows[indices]]
        return insertion_points[indices].astype(np.int32), indices.astype(np.int32)

    def with_used(self, rows: Rows, used: Int64s) -> InventoryColumn:
        """Return the column with new usages; rows without an inventory are ignored."""
        positions, indices = self.positions(rows)
        new_used = self.used.copy()
        new_used[positions] = used[indices]
        return replace(self, used=new_used)

    def without(self, rows: Rows) -> InventoryColumn:
        """Return the column without these rows."""
        keep = ~np.isin(self.rows, rows)
        return replace(
            self, rows=self.rows[keep], kinds=self.kinds[keep], used=self.used[keep]
        )

    def with_rows(self, rows: Rows, kinds: Rows, used: Int64s) -> InventoryColumn:
        """Return the column with further rows."""
        all_rows = np.concatenate([self.rows, rows])
        order = np.argsort(all_rows, kind="stable")
        return replace(
            self,
            rows=all_rows[order],
            kinds=np.concatenate([self.kinds, kinds])[order],
            used=np.concatenate([self.used, used])[order],
        )
