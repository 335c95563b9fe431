# SPDX-License-Identifier: Apache-2.0
"""Find which trees have a candidate for a query, and all candidates of some trees.

    slots ─▶ trees with an option for each slot ─┬─ certain ───────────▶ trees
                                                 └─ else a short search ─▶ trees
    trees that are judged ─▶ options joined slot by slot, less what a rule forbids

Whether a tree has a candidate is mostly certain without creating one: no rule can
exclude all, because each slot has more options than the other slots can take away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from .interned import Int64s, Mask, Rows
from .rules import Rules
from .slots import Slot
from .state import ProviderState

#: Partial candidates that are extended at once: some megabytes.
_BLOCK: Final = 1 << 15
#: Partial candidates of one tree that the search over many trees pursues.
_WIDTH: Final = 4

#: The roots of partial candidates, and the providers of their first slots.
_Partial = tuple[Rows, list[Rows]]


class Search:
    """Find the candidates of one query."""

    def __init__(
        self, state: ProviderState, slots: Sequence[Slot], rules: Rules
    ) -> None:
        self._state = state
        self._slots = slots
        self._rules = rules

    def roots(self) -> tuple[Rows, Int64s]:
        """Return the trees that have a candidate, and the options of their slots.

        Returns
        -------
        roots : ndarray of int32, shape (n_roots,), ascending
        n_options : ndarray of int64, shape (n_slots, n_roots)
        """
        n_rows = self._state.trees.n_rows
        n_options_by_slot = [slot.n_options(n_rows) for slot in self._slots]
        has_all = np.logical_and.reduce([options > 0 for options in n_options_by_slot])
        roots = np.flatnonzero(has_all).astype(np.int32)
        n_options = np.stack([options[roots] for options in n_options_by_slot])
        has_any = self._is_certain(n_options, roots)
        undecided = np.flatnonzero(~has_any)
        if len(undecided):
            has_any[undecided] = self._has_candidate(roots[undecided])
        return roots[has_any], n_options[:, has_any]

    def blocks(self, roots: Rows) -> Iterator[tuple[Rows, Rows]]:
        """Yield all candidates of trees, block by block.

        Yields
        ------
        roots : ndarray of int32, shape (n,)
        providers : ndarray of int32, shape (n, n_slots)
        """
        for found_roots, chosen in self._extended(roots, []):
            yield found_roots, np.stack(chosen, axis=1)

    def sample(self, roots: Rows, n_each: int) -> tuple[Rows, Rows]:
        """Return at most `n_each` candidates of each tree, as `blocks` yields them.

        If a tree has more partial candidates, evenly chosen ones are extended: the
        devices of one NUMA node must not fill the sample. If none of them can be
        completed, the tree is searched in order.
        """
        samples = [(roots[:0], np.empty((0, len(self._slots)), np.int32))]
        n_trees = max(1, _BLOCK // n_each)
        samples += [
            self._sampled(roots[start : start + n_trees], n_each)
            for start in range(0, len(roots), n_trees)
        ]
        return (
            np.concatenate([sampled_roots for sampled_roots, _ in samples]),
            np.concatenate([providers for _, providers in samples]),
        )

    def _sampled(self, roots: Rows, n_each: int) -> tuple[Rows, Rows]:
        partial: _Partial = roots, []
        for _ in self._slots:
            partial = _spread(*self._extend(*partial), n_each)
        found_roots, providers = partial[0], np.stack(partial[1], axis=1)
        for root in np.setdiff1d(roots, found_roots):
            first_block = next(self.blocks(np.array([root], np.int32)), None)
            if first_block is not None:
                found_roots = np.concatenate([found_roots, first_block[0][:n_each]])
                providers = np.concatenate([providers, first_block[1][:n_each]])
        order = np.argsort(found_roots, kind="stable")
        return found_roots[order], providers[order]

    def _extended(self, roots: Rows, chosen: list[Rows]) -> Iterator[_Partial]:
        """Yield all candidates that begin with partial ones, block by block."""
        if len(chosen) == len(self._slots):
            yield roots, chosen
            return
        for start in range(0, len(roots), _BLOCK):
            block = slice(start, start + _BLOCK)
            extended = self._extend(
                roots[block], [providers[block] for providers in chosen]
            )
            if len(extended[0]):
                yield from self._extended(*extended)

    def _extend(self, roots: Rows, chosen: list[Rows]) -> _Partial:
        """Extend partial candidates by the next slot's options that the rules allow."""
        slot = self._slots[len(chosen)]
        first_option = np.searchsorted(slot.roots, roots, "left")
        n_each = np.searchsorted(slot.roots, roots, "right") - first_option
        partial_indices = np.repeat(np.arange(len(roots)), n_each)
        starts = np.cumsum(n_each) - n_each
        options = (
            np.arange(len(partial_indices)) + (first_option - starts)[partial_indices]
        )
        joined = [providers[partial_indices] for providers in chosen] + [
            slot.providers[options]
        ]
        keep = self._rules.allow(joined)
        return roots[partial_indices][keep], [providers[keep] for providers in joined]

    # -- which trees have a candidate ----------------------------------------------

    def _is_certain(self, n_options: Int64s, roots: Rows) -> Mask:
        """Return which trees certainly have a candidate; shape (n_roots,)."""
        if self._rules.subtrees:
            return np.zeros(len(roots), np.bool_)
        is_certain = self._has_enough(n_options)
        if not is_certain.all() and not self._rules.suffixed:
            is_certain |= self._has_room_for_all(roots)
        if self._rules.required:
            is_certain &= self._has_all_traits(roots)
        return is_certain

    def _has_enough(self, n_options: Int64s) -> Mask:
        """Return where each slot has more options than related slots can take away."""
        has_enough = np.ones(n_options.shape[1], np.bool_)
        sets = [self._rules.suffixed, *self._rules.classes.values()]
        for i in range(len(self._slots)):
            related = {j for slots in sets if i in slots for j in slots} - {i}
            if related:
                has_enough &= n_options[i] > len(related)
        return has_enough

    def _has_room_for_all(self, roots: Rows) -> Mask:
        """Return where each option has room for all slots that request its classes."""
        lacks_room = np.zeros(self._state.trees.n_rows, np.bool_)
        for name, slots in self._rules.classes.items():
            total = sum(self._slots[i].amounts[name] for i in slots)
            for i in slots:
                slot = self._slots[i]
                has_room = self._state.column(name).has_room(slot.providers, total)
                lacks_room[slot.roots[~has_room]] = True
        return ~lacks_room[roots]

    def _has_all_traits(self, roots: Rows) -> Mask:
        """Return where one provider of the group "" has all traits that it requires."""
        return self._is_provided(np.logical_and.reduce(self._rules.required))[roots]

    def _is_provided(self, has_trait: Mask) -> Mask:
        """Return the trees in which the group "" may use one of the providers."""
        is_provided = np.zeros(self._state.trees.n_rows, np.bool_)
        for slot in self._slots[: self._rules.n_unsuffixed]:
            is_provided[slot.roots[has_trait[slot.providers]]] = True
        return is_provided

    def _has_candidate(self, roots: Rows) -> Mask:
        """Return which trees have a candidate, by searching; shape (n_roots,)."""
        is_wanted = np.zeros(self._state.trees.n_rows, np.bool_)
        is_wanted[roots] = True
        slots = [slot.within(is_wanted[slot.roots]) for slot in self._slots]
        search = Search(self._state, slots, self._rules)
        found, unsure = search.search_together(roots[search.may_have(roots)])
        has_candidate = np.isin(roots, found)
        for i in np.flatnonzero(np.isin(roots, unsure)):
            has_candidate[i] = next(search.blocks(roots[i : i + 1]), None) is not None
        return has_candidate

    def may_have(self, roots: Rows) -> Mask:
        """Return which trees have enough providers, capacity and traits in all."""
        is_possible = np.ones(len(roots), np.bool_)
        n_rows = self._state.trees.n_rows
        if self._rules.suffixed:
            option_roots, _ = self._distinct_options(self._rules.suffixed)
            is_possible &= np.bincount(option_roots, minlength=n_rows)[roots] >= len(
                self._rules.suffixed
            )
        for name, slots in self._rules.classes.items():
            option_roots, providers = self._distinct_options(slots)
            free = self._state.column(name).free(providers)
            total = sum(self._slots[i].amounts[name] for i in slots)
            is_possible &= (
                np.bincount(option_roots, free, minlength=n_rows)[roots] >= total
            )
        for has_trait in self._rules.required:
            is_possible &= self._is_provided(has_trait)[roots]
        return is_possible

    def _distinct_options(self, slots: Sequence[int]) -> tuple[Rows, Rows]:
        """Return the distinct pairs of roots and providers of some slots."""
        n_rows = self._state.trees.n_rows
        pairs = [
            self._slots[i].roots.astype(np.int64) * n_rows + self._slots[i].providers
            for i in slots
        ]
        sorted_pairs = np.sort(
            np.concatenate(pairs)
        )  # np.unique would hash: 10 times slower
        is_new = np.append(True, sorted_pairs[1:] != sorted_pairs[:-1])
        roots, providers = np.divmod(sorted_pairs[is_new], n_rows)
        return roots.astype(np.int32), providers.astype(np.int32)

    def search_together(self, roots: Rows) -> tuple[Rows, Rows]:
        """Search all trees at once, keeping a few partial candidates of each.

        Returns
        -------
        found : ndarray of int32
            Roots of trees that have a candidate.
        unsure : ndarray of int32
            Roots of trees whose search was cut short.
        """
        cut_roots = [roots[:0]]
        partial: _Partial = roots, []
        for _ in self._slots:
            if len(partial[0]):
                partial, dropped = _narrowed(*self._extend(*partial))
                cut_roots.append(dropped)
        complete = np.unique(partial[0])
        return complete, np.setdiff1d(np.concatenate(cut_roots), complete)


def _spread(roots: Rows, chosen: list[Rows], n_each: int) -> _Partial:
    """Return at most `n_each` partial candidates of each tree, evenly chosen."""
    rank, n_in_tree = _ranks(roots)
    keep = (n_in_tree <= n_each) | (
        rank * n_each // n_in_tree != (rank - 1) * n_each // n_in_tree
    )
    return roots[keep], [providers[keep] for providers in chosen]


def _ranks(roots: Rows) -> tuple[Int64s, Int64s]:
    """Return each partial candidate's rank in its tree, and how many the tree has."""
    is_first = np.ones(len(roots), np.bool_)
    is_first[1:] = roots[1:] != roots[:-1]
    starts = np.flatnonzero(is_first)
    n_in_tree = np.diff(starts, append=len(roots))
    rank = np.arange(len(roots)) - np.repeat(starts, n_in_tree)
    return rank, np.repeat(n_in_tree, n_in_tree)


def _narrowed(roots: Rows, chosen: list[Rows]) -> tuple[_Partial, Rows]:
    """Return at most `_WIDTH` of each tree, and the roots of trees that have more."""
    keep = _ranks(roots)[0] < _WIDTH
    return (roots[keep], [providers[keep] for providers in chosen]), np.unique(
        roots[~keep]
    )
