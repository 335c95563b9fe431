# SPDX-License-Identifier: Apache-2.0
"""The answer to a query: trees that match, and the candidates of some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .interned import Int64s, Mask, Rows
from .search import Search
from .slots import Slot
from .state import ProviderState


@dataclass(frozen=True, slots=True, eq=False)
class ProviderCandidates:
    """Some candidates, as rows of providers; the body of each is created when read.

    Attributes
    ----------
    roots : ndarray of int32, shape (n_candidates,)
        The root of the tree that each was found for, ascending.
    providers : ndarray of int32, shape (n_candidates, n_slots)
        The provider of each slot.
    slots : sequence of Slot
    """

    state: ProviderState
    slots: Sequence[Slot]
    roots: Rows
    providers: Rows

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.roots)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the bodies of all."""
        return map(self.body, range(len(self)))

    def body(self, index: int) -> dict[str, Any]:
        """Return one allocation request, in Placement's form since 1.34."""
        uuids = self.state.trees.uuids[self.providers[index]]
        allocations: dict[str, Any] = {}
        mappings: dict[str, dict[str, None]] = {}
        for slot, uuid in zip(self.slots, uuids, strict=True):
            mappings.setdefault(slot.suffix, {})[uuid] = None
            for name, amount in slot.amounts.items():
                part = allocations.setdefault(uuid, {"resources": {}})
                amounts = part["resources"]
                amounts[name] = amounts.get(name, 0) + amount
        return {
            "allocations": allocations,
            "mappings": {suffix: list(of) for suffix, of in mappings.items()},
        }

    def allocating_roots(self) -> Rows:
        """Return the roots of all trees that a candidate allocates from, ascending."""
        using = [i for i, slot in enumerate(self.slots) if slot.amounts]
        return np.unique(self.state.trees.roots[self.providers[:, using]])

    def distinct(self) -> ProviderCandidates:
        """Return them without those that only differ in the tree they were found for.

        A candidate of sharing providers is found for each tree that all its other
        providers are in or share with.
        """
        if not self._has_shared():
            return self
        _, first = np.unique(self.providers, axis=0, return_index=True)
        first.sort()
        return ProviderCandidates(
            self.state, self.slots, self.roots[first], self.providers[first]
        )

    def _has_shared(self) -> bool:
        of_trees = self.state.trees.roots[self.providers]
        return bool((of_trees != self.roots[:, None]).any())


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The trees that have a candidate for a query.

    Attributes
    ----------
    roots : ndarray of int32, shape (n_roots,), ascending
        Rows of the trees' root providers. A tree also matches if sharing providers
        could provide everything for it; `is_allocating` excludes these.
    n_options : ndarray of int64, shape (n_slots, n_roots)
        How many providers of each tree each slot may have.
    """

    state: ProviderState
    slots: Sequence[Slot]
    roots: Rows
    n_options: Int64s
    _search: Search | None

    @property
    def n_products(self) -> npt.NDArray[np.float64]:
        """How many candidates each tree has, or more if slots depend on each other.

        Shape (n_roots,).
        """
        products: npt.NDArray[np.float64] = self.n_options.astype(float).prod(axis=0)
        return products

    @property
    def uuids(self) -> npt.NDArray[np.object_]:
        """The root providers' UUIDs; shape (n_roots,)."""
        return self.state.trees.uuids[self.roots]

    def is_allocating(self) -> Mask:
        """Return which trees have a candidate that allocates from the tree itself.

        Shape (n_roots,). Where no provider shares, all have.
        """
        trees = self.state.trees
        if not len(trees.shared[0]):
            return np.ones(len(self.roots), np.bool_)
        is_sure, may_be = np.zeros((2, len(self.roots)), np.bool_)
        for slot, n_options in zip(self.slots, self.n_options, strict=True):
            is_own = trees.roots[slot.providers] == slot.roots
            is_own &= bool(slot.amounts)
            n_own = np.bincount(slot.roots[is_own], minlength=trees.n_rows)[self.roots]
            is_sure |= n_own == n_options
            may_be |= n_own > 0
        for i in np.flatnonzero(may_be & ~is_sure):
            root = self.roots[i : i + 1]
            is_sure[i] = root in self.expand_rows(root).allocating_roots()
        return is_sure

    def expand(
        self, uuids: str | Iterable[str], *, limit: int | None = None
    ) -> ProviderCandidates:
        """Return the candidates of one tree, or of several, by their roots' UUIDs.

        A tree that does not match has none. At most `limit` are returned, if given:
        eight groups that each of eight devices could serve have 16 million candidates.
        """
        names = [uuids] if isinstance(uuids, str) else uuids
        rows = {self.state.trees.find(uuid) for uuid in names}
        wanted = np.array(sorted(rows - {-1}), np.int32)
        return self.expand_rows(wanted, limit=limit)

    def expand_rows(
        self, rows: Rows, *, limit: int | None = None
    ) -> ProviderCandidates:
        """Return the candidates of trees by the rows of their roots, ascending."""
        found_roots = [np.empty(0, np.int32)]
        chosen = [np.empty((0, len(self.slots)), np.int32)]
        wanted, n_found = rows[self._has(rows)], 0
        for roots, providers in self._search.blocks(wanted) if self._search else ():
            found_roots.append(roots)
            chosen.append(providers)
            n_found += len(roots)
            if limit is not None and n_found >= limit:
                break
        return ProviderCandidates(
            self.state,
            self.slots,
            np.concatenate(found_roots)[:limit],
            np.concatenate(chosen)[:limit],
        )

    def sample_rows(self, rows: Rows, n_each: int) -> ProviderCandidates:
        """Return at most `n_each` candidates of each tree, evenly chosen of all.

        Parameters
        ----------
        rows : ndarray of int32, ascending
            Of the trees' roots.
        """
        wanted = rows[self._has(rows)]
        sampled = self._search.sample(wanted, n_each) if self._search else None
        if sampled is None:
            return self.expand_rows(wanted[:0])
        return ProviderCandidates(self.state, self.slots, *sampled)

    def _has(self, rows: Rows) -> Mask:
        at = np.searchsorted(self.roots, rows)
        has = at < len(self.roots)
        has[has] = self.roots[at[has]] == rows[has]
        return has

    def summaries(self, candidates: ProviderCandidates) -> dict[str, dict[str, Any]]:
        """Return Placement's ``provider_summaries`` for candidates.

        It has every provider of each tree that they allocate from.
        """
        trees = self.state.trees.members(candidates.allocating_roots())
        return self.state.summaries(trees)

    def answer(self) -> dict[str, Any]:
        """Return the whole answer to the GET: all candidates of all trees."""
        candidates = self.expand_rows(self.roots).distinct()
        return {
            "allocation_requests": list(candidates),
            "provider_summaries": self.summaries(candidates),
        }
