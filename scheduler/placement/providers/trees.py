# SPDX-License-Identifier: Apache-2.0
"""What providers are, apart from inventories: trees, traits and aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import os_traits

from .interned import InternedSets, Mask, Rows

#: Steps to find all roots; each step doubles the number of ancestors passed.
_MAX_DOUBLINGS: Final = 32
_SHARES: Final = os_traits.MISC_SHARES_VIA_AGGREGATE


@dataclass(frozen=True, eq=False)
class ProviderTrees:
    """A row for each provider; the arrays are not written to.

    A removed provider leaves an empty row behind until another one takes it.

    Attributes
    ----------
    uuids : ndarray of object (str), shape (n_rows,)
        "": the row is empty.
    parents : ndarray of int32, shape (n_rows,)
        The parent's row; -1 for a root.
    trait_sets, aggregate_sets : ndarray of int32, shape (n_rows,)
        Indices into `traits` and `aggregates`.
    row_of : mapping
        {UUID: row}; shared with the table, which may be newer. `find` considers that.
    """

    uuids: npt.NDArray[np.object_]
    parents: Rows
    trait_sets: Rows
    aggregate_sets: Rows
    traits: InternedSets
    aggregates: InternedSets
    row_of: Mapping[str, int]

    @property
    def n_rows(self) -> int:
        """The number of rows, empty ones included."""
        return len(self.parents)

    @cached_property
    def roots(self) -> Rows:
        """The row of each provider's root; int32, shape (n_rows,)."""
        roots = self._above
        for _ in range(_MAX_DOUBLINGS):
            if (self.parents[roots] < 0).all():
                return roots
            roots = roots[roots]
        raise ValueError("Some resource providers are their own ancestors.")

    @cached_property
    def shared(self) -> tuple[Rows, Rows]:
        """The pairs (root, provider) of providers that share with other trees.

        A provider with the trait MISC_SHARES_VIA_AGGREGATE shares with the trees of all
        members of its aggregates. Sorted by root; two arrays of shape (n_pairs,).
        """
        sharing = np.flatnonzero(self.has_trait([_SHARES])).astype(np.int32)
        if not len(sharing):
            return sharing, sharing
        by_set = np.argsort(self.aggregate_sets, kind="stable").astype(np.int32)
        sorted_sets = self.aggregate_sets[by_set]
        roots = [self._shared_with(int(row), by_set, sorted_sets) for row in sharing]
        providers = np.repeat(
            sharing, [len(provider_roots) for provider_roots in roots]
        )
        shared_roots = np.concatenate(roots)
        order = np.argsort(shared_roots, kind="stable")
        return shared_roots[order], providers[order]

    def _shared_with(self, row: int, by_set: Rows, sorted_sets: Rows) -> Rows:
        """Return the roots that one provider shares with.

        `by_set` has all rows, sorted by their sets of aggregates; `sorted_sets` has
        these sets.
        """
        names = self.aggregates[int(self.aggregate_sets[row])]
        sets = np.flatnonzero(self.aggregates.intersecting(names)).astype(np.int32)
        starts = np.searchsorted(sorted_sets, sets, "left")
        ends = np.searchsorted(sorted_sets, sets, "right")
        members = [by_set[start:end] for start, end in zip(starts, ends, strict=True)]
        roots = np.unique(self.roots[np.concatenate([by_set[:0], *members])])
        other_roots: Rows = roots[roots != self.roots[row]]
        return other_roots

    def find(self, uuid: str) -> int:
        """Return a provider's row, or -1."""
        row = self.row_of.get(uuid, -1)
        return row if 0 <= row < self.n_rows and self.uuids[row] == uuid else -1

    def has_trait(self, names: Iterable[str]) -> Mask:
        """Return which providers have one of the traits; shape (n_rows,)."""
        return self.traits.intersecting(names)[self.trait_sets]

    def in_aggregate(self, uuids: Iterable[str]) -> Mask:
        """Return which providers are in one of the aggregates; shape (n_rows,)."""
        return self.aggregates.intersecting(uuids)[self.aggregate_sets]

    def is_within(self, rows: Rows, ancestors: Rows) -> Mask:
        """Return which of `rows` are below their entry in `ancestors`, or the same."""
        is_within: Mask = rows == ancestors
        above = rows
        for _ in range(self.depth):
            # `_above` of a root is the root itself, which changes nothing.
            above = self._above[above]
            is_within |= above == ancestors
        return is_within

    @cached_property
    def _above(self) -> Rows:
        """The row of each provider's parent, or of a root itself; shape (n_rows,)."""
        own_rows = np.arange(self.n_rows, dtype=np.int32)
        return np.where(self.parents < 0, own_rows, self.parents)

    @cached_property
    def depth(self) -> int:
        """The highest number of ancestors that any provider has."""
        above, depth = self._above, 0
        while not np.array_equal(above, self.roots):
            above, depth = self._above[above], depth + 1
        return depth + bool((self.parents >= 0).any())

    def members(self, roots: Rows) -> Rows:
        """Return the rows of all providers in the trees of these roots, ascending."""
        is_wanted = np.zeros(self.n_rows, np.bool_)
        is_wanted[roots] = True
        return np.flatnonzero(is_wanted[self.roots]).astype(np.int32)
