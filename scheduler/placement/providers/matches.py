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
    """Candidates as rows of providers; a candidate's body is created when it is read.

    Attributes
    ----------
    roots : ndarray of int32, shape (n_candidates,)
        The root of the tree that each candidate was found for, ascending.
    providers : ndarray of int32, shape (n_candidates, n_slots)
        The provider that fills each slot.
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
        """Yield the body of each candidate."""
        return map(self.body, range(len(self)))

    def body(self, index: int) -> dict[str, Any]:
        """Return one allocation request, in Placement's form since 1.34."""
        uuids = self.state.trees.uuids[self.providers[index]]
        allocations: dict[str, Any] = {}
        mappings: dict[str, dict[str, None]] = {}
        for slot, uuid in zip(self.slots, uuids, strict=True):
            mappings.setdefault(slot.suffix, {})[uuid] = None
            for name, amount in slot.amounts.items():
                allocation = allocations.setdefault(uuid, {"resources": {}})
                amounts = allocation["resources"]
                amounts[name] = amounts.get(name, 0) + amount
        return {
            "allocations": allocations,
            "mappings": {
                suffix: list(mapped_uuids) for suffix, mapped_uuids in mappings.items()
            },
        }

    def allocating_roots(self) -> Rows:
        """Return the roots of all trees that a candidate allocates from, ascending."""
        allocating_slots = [i for i, slot in enumerate(self.slots) if slot.amounts]
        return np.unique(self.state.trees.roots[self.providers[:, allocating_slots]])

    def distinct(self) -> ProviderCandidates:
        """Return the candidates without duplicates that were found for different trees.

        A candidate of sharing providers is found for each tree that all its other
        providers are in or share with.
        """
        if not self._has_shared():
            return self
        _, first_indices = np.unique(self.providers, axis=0, return_index=True)
        first_indices.sort()
        return ProviderCandidates(
            self.state,
            self.slots,
            self.roots[first_indices],
            self.providers[first_indices],
        )

    def _has_shared(self) -> bool:
        provider_roots = self.state.trees.roots[self.providers]
        return bool((provider_roots != self.roots[:, None]).any())


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The trees that have a candidate for a query.

    Attributes
    ----------
    roots : ndarray of int32, shape (n_roots,), ascending
        Rows of the trees' root providers. A tree also matches if sharing providers
        could provide everything for it; `is_allocating` excludes such trees.
    n_options : ndarray of int64, shape (n_slots, n_roots)
        How many providers may fill each slot in each tree.
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
        products = np.ones(len(self.roots))
        for options in self.n_options:
            products *= options
        return products

    @property
    def uuids(self) -> npt.NDArray[np.object_]:
        """The root providers' UUIDs; shape (n_roots,)."""
        return self.state.trees.uuids[self.roots]

    def is_allocating(self) -> Mask:
        """Return which trees have a candidate that allocates from the tree itself.

        Shape (n_roots,). If no provider shares its resources, all trees have one.
        """
        trees = self.state.trees
        if not len(trees.shared[0]):
            return np.ones(len(self.roots), np.bool_)
        is_certain, is_possible = np.zeros((2, len(self.roots)), np.bool_)
        for slot, n_options in zip(self.slots, self.n_options, strict=True):
            is_in_tree = trees.roots[slot.providers] == slot.roots
            is_in_tree &= bool(slot.amounts)
            n_in_tree = np.bincount(slot.roots[is_in_tree], minlength=trees.n_rows)[
                self.roots
            ]
            is_certain |= n_in_tree == n_options
            is_possible |= n_in_tree > 0
        for i in np.flatnonzero(is_possible & ~is_certain):
            root = self.roots[i : i + 1]
            is_certain[i] = root in self.expand_rows(root).allocating_roots()
        return is_certain

    def expand(
        self, uuids: str | Iterable[str], *, limit: int | None = None
    ) -> ProviderCandidates:
        """Return the candidates of one tree, or of several, by their roots' UUIDs.

        A tree that does not match has no candidates. At most `limit` candidates are
        returned: if each of eight devices can serve eight groups, there are 16 million.
        """
        root_uuids = [uuids] if isinstance(uuids, str) else uuids
        rows = {self.state.trees.find(uuid) for uuid in root_uuids}
        root_rows = np.array(sorted(rows - {-1}), np.int32)
        return self.expand_rows(root_rows, limit=limit)

    def expand_rows(
        self, rows: Rows, *, limit: int | None = None
    ) -> ProviderCandidates:
        """Return the candidates of trees by the rows of their roots, ascending."""
        found_roots = [np.empty(0, np.int32)]
        found_providers = [np.empty((0, len(self.slots)), np.int32)]
        matching_rows, n_found = rows[self._has(rows)], 0
        for roots, providers in (
            self._search.blocks(matching_rows) if self._search else ()
        ):
            found_roots.append(roots)
            found_providers.append(providers)
            n_found += len(roots)
            if limit is not None and n_found >= limit:
                break
        return ProviderCandidates(
            self.state,
            self.slots,
            np.concatenate(found_roots)[:limit],
            np.concatenate(found_providers)[:limit],
        )

    def sample_rows(self, rows: Rows, n_each: int) -> ProviderCandidates:
        """Return at most `n_each` candidates of each tree, evenly chosen of all.

        Parameters
        ----------
        rows : ndarray of int32, ascending
            The rows of the trees' roots.
        """
        matching_rows = rows[self._has(rows)]
        sampled = self._search.sample(matching_rows, n_each) if self._search else None
        if sampled is None:
            return self.expand_rows(matching_rows[:0])
        return ProviderCandidates(self.state, self.slots, *sampled)

    def _has(self, rows: Rows) -> Mask:
        """Return which of the rows are the roots of trees that match."""
        positions = np.searchsorted(self.roots, rows)
        has = positions < len(self.roots)
        has[has] = self.roots[positions[has]] == rows[has]
        return has

    def summaries(self, candidates: ProviderCandidates) -> dict[str, dict[str, Any]]:
        """Return Placement's ``provider_summaries`` for candidates.

        They have every provider of each tree that the candidates allocate from.
        """
        rows = self.state.trees.members(candidates.allocating_roots())
        return self.state.summaries(rows)

    def answer(self) -> dict[str, Any]:
        """Return the whole answer to the GET: all candidates of all trees."""
        candidates = self.expand_rows(self.roots).distinct()
        return {
            "allocation_requests": list(candidates),
            "provider_summaries": self.summaries(candidates),
        }
