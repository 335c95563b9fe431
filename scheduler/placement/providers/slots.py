# SPDX-License-Identifier: Apache-2.0
"""The slots that make up a candidate, and the providers that may fill each.

The group without a suffix has a slot for each resource class, which different providers
of a tree may fill; every other group has one slot. A provider fills a slot in its own
tree and, if it shares, in the trees that it shares with. A root identifies its tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from .interned import Int64s, Mask, Rows
from .query import ProviderGroup, ProviderQuery
from .state import ProviderState
from .trees import ProviderTrees


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """One slot and its options: pairs of a tree and a provider that may fill it there.

    Attributes
    ----------
    suffix : str
        The suffix of the slot's group.
    amounts : mapping
        {resource class: amount} from the one provider.
    roots : ndarray of int32, shape (n_options,), ascending
    providers : ndarray of int32, shape (n_options,)
    """

    suffix: str
    amounts: Mapping[str, int]
    roots: Rows
    providers: Rows

    def n_options(self, n_rows: int) -> Int64s:
        """Return how many options each tree has, by the root's row; shape (n_rows,)."""
        return np.bincount(self.roots, minlength=n_rows)

    def within(self, is_wanted: Mask) -> Slot:
        """Return the slot with the options that a mask, shape (n_options,), selects."""
        roots, providers = self.roots[is_wanted], self.providers[is_wanted]
        return Slot(self.suffix, self.amounts, roots, providers)


def find_slots(state: ProviderState, query: ProviderQuery) -> list[Slot] | None:
    """Return the slots, those of the group "" first; None if one has no option."""
    is_root = _allowed_roots(state.trees, query)
    slots = []
    for group in sorted(query.groups, key=lambda group: bool(group.suffix)):
        tree = None
        if group.in_tree is not None:
            provider = state.trees.find(group.in_tree)
            if provider < 0:
                return None
            tree = int(state.trees.roots[provider])
        slots_of_group = _suffixed if group.suffix else _unsuffixed
        for slot in slots_of_group(state, group, tree):
            if is_root is not None:
                slot = slot.within(is_root[slot.roots])
            if not len(slot.roots):
                return None
            slots.append(slot)
    return slots


def _allowed_roots(trees: ProviderTrees, query: ProviderQuery) -> Mask | None:
    """Return which rows are roots with the query's root traits; None: it has none."""
    if not (query.root_required or query.root_forbidden):
        return None
    is_allowed = trees.parents < 0
    for name in query.root_required:
        is_allowed &= trees.has_trait([name])
    return is_allowed & ~trees.has_trait(query.root_forbidden)


def _suffixed(
    state: ProviderState, group: ProviderGroup, tree: int | None
) -> Iterator[Slot]:
    """Yield the one slot of a group with a suffix."""
    trees = state.trees
    is_fit = np.ones(trees.n_rows, np.bool_)
    if group.forbidden:
        is_fit &= ~trees.has_trait(group.forbidden)
    if group.forbidden_aggregates:
        is_fit &= ~trees.in_aggregate(group.forbidden_aggregates)
    for any_of in group.required:
        is_fit &= trees.has_trait(any_of)
    for aggregates in group.member_of:
        is_fit &= trees.in_aggregate(aggregates)
    for name, amount in group.amounts.items():
        has_room = np.zeros(trees.n_rows, np.bool_)
        has_room[state.column(name).fitting(amount)] = True
        is_fit &= has_room
    if not group.amounts:
        # As in Placement, an in_tree or forbidden names alone do not find a provider.
        is_fit &= bool(group.required or group.member_of)
        tree = None
    providers = _in_tree(trees, np.flatnonzero(is_fit).astype(np.int32), tree)
    pairs = _with_shared(trees, providers, _is_shared(trees, providers))
    yield Slot(group.suffix, group.amounts, *pairs)


def _unsuffixed(
    state: ProviderState, group: ProviderGroup, tree: int | None
) -> Iterator[Slot]:
    """Yield the slots of the group without a suffix, one for each resource class."""
    trees = state.trees
    is_member = is_excluded = is_forbidden = None
    if group.member_of:
        memberships = [trees.in_aggregate(uuids) for uuids in group.member_of]
        is_member = np.logical_and.reduce(memberships)
    if group.forbidden_aggregates:
        is_excluded = trees.in_aggregate(group.forbidden_aggregates)
    if group.forbidden:
        is_forbidden = trees.has_trait(group.forbidden)
    for name, amount in group.amounts.items():
        providers = _in_tree(trees, state.column(name).fitting(amount), tree)
        roots, providers = _shared_members(trees, providers, is_member, tree)
        # The root's aggregates are those of its whole tree.
        slot = Slot("", {name: amount}, roots, providers)
        if is_member is not None:
            slot = slot.within(is_member[slot.providers] | is_member[slot.roots])
        if is_excluded is not None:
            slot = slot.within(~(is_excluded[slot.providers] | is_excluded[slot.roots]))
        if is_forbidden is not None:
            slot = slot.within(~is_forbidden[slot.providers])
        yield slot


def _shared_members(
    trees: ProviderTrees, providers: Rows, is_member: Mask | None, tree: int | None
) -> tuple[Rows, Rows]:
    """Return pairs of roots and providers for the group "", sorted by root.

    Sharing providers are left out if they are not in the aggregates that the group
    requires, or if it names a tree.
    """
    is_shared = _is_shared(trees, providers) & (tree is None)
    if is_member is not None:
        is_shared &= is_member[trees.shared[1]]
    return _with_shared(trees, providers, is_shared)


def _in_tree(trees: ProviderTrees, providers: Rows, tree: int | None) -> Rows:
    """Return the providers that are in a tree; all of them if it is None."""
    return providers if tree is None else providers[trees.roots[providers] == tree]


def _is_shared(trees: ProviderTrees, providers: Rows) -> Mask:
    """Return which pairs of `ProviderTrees.shared` have one of the providers."""
    has_provider = np.zeros(trees.n_rows if len(trees.shared[1]) else 0, np.bool_)
    if len(has_provider):
        has_provider[providers] = True
    return has_provider[trees.shared[1]]


def _with_shared(
    trees: ProviderTrees, providers: Rows, is_shared: Mask
) -> tuple[Rows, Rows]:
    """Return pairs of roots and providers, sorted by root.

    They are the providers with their own roots, and the pairs of `ProviderTrees.shared`
    that `is_shared`, of shape (n_pairs,), selects.
    """
    roots = trees.roots[providers]
    if is_shared.any():
        roots = np.concatenate([roots, trees.shared[0][is_shared]])
        providers = np.concatenate([providers, trees.shared[1][is_shared]])
    if (roots[1:] < roots[:-1]).any():
        order = np.argsort(roots, kind="stable")
        roots, providers = roots[order], providers[order]
    return roots, providers
