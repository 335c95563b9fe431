# SPDX-License-Identifier: Apache-2.0
"""The inventories and usages of one resource class: a column that few rows may have."""

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
        """Return a column that no provider has; see `InternedInventories`."""
        distinct, nothing = (
            InternedInventories(is_mysql=is_mysql),
            np.empty(0, np.int32),
        )
        return cls(distinct, nothing, nothing, np.empty(0, np.int64))

    def compacted(self) -> InventoryColumn:
        """Return a column that has forgotten the inventories that no provider has."""
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

        Steps and min_unit are not considered: Placement does not for a sum of amounts
        either. Each row must have an inventory.
        """
        at = np.searchsorted(self.rows, rows)
        kinds = self.kinds[at]
        fits = self.used[at] + amount <= self.distinct.capacity[kinds]
        return fits & (amount <= self.distinct.values["max_unit"][kinds])

    def free(self, rows: Rows) -> Int64s:
        """Return capacity - used of rows that have an inventory."""
        at = np.searchsorted(self.rows, rows)
        return self.distinct.capacity[self.kinds[at]] - self.used[at]

    def positions(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return where rows are in this column, and which of `rows` are in it.

        Returns
        -------
        positions : ndarray of int, shape (n_found,)
            Indices into this column's arrays.
        indices : ndarray of int, shape (n_found,)
            Indices into `rows`.
        """
        at = np.searchsorted(self.rows, rows)
        indices = np.flatnonzero(at < len(self.rows))
        indices = indices[self.rows[at[indices]] == rows[indices]]
        return at[indices].astype(np.int32), indices.astype(np.int32)

    def with_used(self, rows: Rows, used: Int64s) -> InventoryColumn:
        """Return a column with other usages; rows without an inventory are ignored."""
        positions, indices = self.positions(rows)
        changed = self.used.copy()
        changed[positions] = used[indices]
        return replace(self, used=changed)

    def without(self, rows: Rows) -> InventoryColumn:
        """Return a column that these rows do not have."""
        keep = ~np.isin(self.rows, rows)
        return replace(
            self, rows=self.rows[keep], kinds=self.kinds[keep], used=self.used[keep]
        )

    def with_rows(self, rows: Rows, kinds: Rows, used: Int64s) -> InventoryColumn:
        """Return a column that further rows have, too."""
        joined = np.concatenate([self.rows, rows])
        order = np.argsort(joined, kind="stable")
        return replace(
            self,
            rows=joined[order],
            kinds=np.concatenate([self.kinds, kinds])[order],
            used=np.concatenate([self.used, used])[order],
        )
