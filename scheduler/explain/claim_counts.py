# SPDX-License-Identifier: Apache-2.0
"""How many successive claims of equal instances each provider tree can grant."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..candidates import CandidatesQuery
from ..placement.providers import Matches, ProviderQuery, ProviderView
from ..placement.providers.query import ProviderGroup
from ..placement.providers.rules import Rules
from ..placement.providers.slots import Slot, find_slots
from ..placement.providers.state import ProviderState
from .query_checks import with_names_of, without_tree

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]

#: More claims than any host can get; stands for "no limit".
_MANY = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class SharedLimit:
    """How many claims several trees can get together from providers that they share.

    Attributes
    ----------
    slot : tuple
        The suffix and the amounts of the `Slot` that these providers fill.
    provider : int or None
        The only provider that can fill the slot for each of the trees; None: some trees
        have several such providers.
    roots : ndarray of int32
        The rows of the root providers of the trees.
    grants : mapping
        The number of claims that each provider can grant, by the row of the provider.
    """

    slot: Hashable
    provider: int | None
    roots: Rows
    grants: Mapping[int, int]

    @property
    def n_claims(self) -> int:
        """How many claims the providers grant in all."""
        return sum(self.grants.values())


@dataclass(frozen=True, slots=True, eq=False)
class ClaimCounts:
    """The numbers of claims by tree.

    Attributes
    ----------
    n_claims : ndarray of int64, shape (n_rows,)
        An upper bound, by the row of the root; 0 for other rows.
    is_exact : ndarray of bool, shape (n_rows,)
        Whether the bound is reached, in whatever order candidates are claimed.
    shared : sequence of SharedLimit
        The limits of sharing providers, which several trees use.
    """

    n_claims: Int64s
    is_exact: Mask
    shared: Sequence[SharedLimit] = ()


class ClaimCounter:
    """Counts the claims that providers can grant for each of many queries.

    Equal slots of several queries are counted once, for queries in which no slot
    depends on another slot.
    """

    def __init__(self, view: ProviderView) -> None:
        self._view = view
        self._slots: dict[Hashable, Int64s] = {}

    def count(self, queries: Sequence[CandidatesQuery]) -> ClaimCounts:
        """Return how many claims for any of the queries each tree can grant.

        Candidates of the first query are claimed before those of the second one.

        Raises
        ------
        QueryNotCovered
            Placement would refuse a query.
        """
        parsed = [ProviderQuery.parse(without_tree(query.params)) for query in queries]
        counts = self._count_alone(parsed)
        return _count_together(self._view, parsed) if counts is None else counts

    def _count_alone(self, queries: Sequence[ProviderQuery]) -> ClaimCounts | None:
        """Return the smallest count of each tree's slots, counted slot by slot.

        None: the slots cannot be counted separately.
        """
        state = self._view.state
        if len(state.trees.shared[0]) or not all(map(_is_plain, queries)):
            return None
        [first, *later] = (self._slots_of(query) for query in queries)
        n_first = n_claims = _minimum(first.values())
        for slots in later:
            # If both queries have a slot, claims of the first reduce what it can grant.
            if any(first.get(name, slot) is not slot for name, slot in slots.items()):
                return None
            remaining = [
                n_slot - (name in first) * n_first for name, n_slot in slots.items()
            ]
            n_claims = n_claims + np.maximum(_minimum(remaining), 0)
        return ClaimCounts(n_claims, np.ones(state.trees.n_rows, np.bool_))

    def _slots_of(self, query: ProviderQuery) -> dict[str, Int64s]:
        """Return how often each slot of a plain query can be claimed.

        The keys are the resource classes of the slots, the values have shape (n_rows,).
        Equal slots of several queries have the same array.
        """
        [group] = query.groups
        return {
            name: self._slot(query, group, name, amount)
            for name, amount in group.amounts.items()
        }

    def _slot(
        self, query: ProviderQuery, group: ProviderGroup, name: str, amount: int
    ) -> Int64s:
        key = (
            query.root_required,
            query.root_forbidden,
            group.forbidden,
            tuple(group.member_of),
            group.forbidden_aggregates,
            name,
            amount,
        )
        if key not in self._slots:
            group = replace(group, amounts={name: amount})
            query = replace(query, groups=(group,))
            self._slots[key] = _slot_claims(self._view.state, query)
        return self._slots[key]


def _slot_claims(state: ProviderState, query: ProviderQuery) -> Int64s:
    """Return how often a query of one slot can be claimed, by the root's row."""
    n_claims = np.zeros(state.trees.n_rows, np.int64)
    for slot in find_slots(state, query) or ():
        np.add.at(n_claims, slot.roots, _grants(state, slot))
    return n_claims


def _is_plain(query: ProviderQuery) -> bool:
    """Return whether no rule relates the slots of a query; see `Rules`."""
    return all(not group.suffix and not group.required for group in query.groups)


def _minimum(counts: Iterable[Int64s]) -> Int64s:
    minimum: Int64s = np.minimum.reduce(list(counts))
    return minimum


def _count_together(
    view: ProviderView, queries: Sequence[ProviderQuery]
) -> ClaimCounts:
    first_matches, *later = (_match(view, query) for query in queries)
    counts = first_matches.counts()
    for later_matches in later:
        counts = _count_after(first_matches, counts, later_matches)
    return counts


@dataclass(frozen=True, slots=True, eq=False)
class _QueryMatches:
    """The matches of one query.

    Attributes
    ----------
    is_own : ndarray of bool
        Which roots of the matches have a candidate that allocates from the tree itself
        (`Matches.is_allocating`).
    roots : ndarray of int32
        The rows of these roots.
    """

    matches: Matches
    query: ProviderQuery
    is_own: Mask
    roots: Rows

    @property
    def _state(self) -> ProviderState:
        return self.matches.state

    def counts(self) -> ClaimCounts:
        n_rows = self._state.trees.n_rows
        n_claims = np.zeros(n_rows, np.int64)
        is_exact = np.ones(n_rows, np.bool_)
        if not len(self.roots):
            return ClaimCounts(n_claims, is_exact)
        n_claims[self.roots] = _MANY
        for slot in self.matches.slots:
            n_of_slot = np.zeros(n_rows, np.int64)
            np.add.at(n_of_slot, slot.roots, _grants(self._state, slot))
            np.minimum(n_claims, n_of_slot, out=n_claims)
        is_exact[self.roots] = self._is_exact()
        return ClaimCounts(n_claims, is_exact, self._shared_limits())

    def _is_exact(self) -> Mask:
        """Return for which roots the count does not depend on the providers chosen."""
        slots = self.matches.slots
        rules = Rules(self._state, self.query, slots)
        if rules.classes:  # one provider may fill several slots of the same class
            return np.zeros(len(self.roots), np.bool_)
        trees = self._state.trees
        is_related = bool(rules.suffixed or rules.subtrees or rules.required)
        # Without such rules, the provider that fills one slot does not affect others.
        is_exact = np.ones(len(self.roots), np.bool_)
        if not is_related and not len(trees.shared[0]):
            return is_exact
        n_options = self.matches.n_options[:, self.is_own]
        if is_related:
            is_exact = (n_options == 1).all(axis=0)
        if len(trees.shared[0]):
            for slot, of_slot in zip(slots, n_options, strict=True):
                has_shared = np.zeros(trees.n_rows, np.bool_)
                has_shared[slot.roots[trees.roots[slot.providers] != slot.roots]] = True
                is_exact &= ~has_shared[self.roots] | (of_slot == 1)
        return is_exact

    def _shared_limits(self) -> list[SharedLimit]:
        trees, limits = self._state.trees, []
        if not len(trees.shared[0]):
            return []
        for any_slot in self.matches.slots:
            if not any_slot.amounts:
                continue
            slot = any_slot.within(np.isin(any_slot.roots, self.roots))
            is_shared = trees.roots[slot.providers] != slot.roots
            sharing = slot.roots[is_shared]
            slot = slot.within(np.isin(slot.roots, sharing))
            is_single = slot.n_options(trees.n_rows)[slot.roots] == 1
            single = slot.within(is_single)
            for provider in np.unique(single.providers):
                of_provider = single.within(single.providers == provider)
                limits.append(self._limit(of_provider, int(provider)))
            if not is_single.all():
                limits.append(self._limit(slot, None))
        return limits

    def _limit(self, slot: Slot, provider: int | None) -> SharedLimit:
        grants = _grants(self._state, slot).tolist()
        grant_of = dict(zip(slot.providers.tolist(), grants, strict=True))
        key = slot.suffix, tuple(sorted(slot.amounts.items()))
        return SharedLimit(key, provider, np.unique(slot.roots), grant_of)

    def has(self, slot: Slot) -> bool:
        """Return whether another query's slot has the same options here."""
        return any(
            (own.suffix, own.amounts) == (slot.suffix, slot.amounts)
            and np.array_equal(own.roots, slot.roots)
            and np.array_equal(own.providers, slot.providers)
            for own in self.matches.slots
        )

    def taking(self, name: str) -> int:
        """Return how much of a resource class one claim takes."""
        return sum(slot.amounts.get(name, 0) for slot in self.matches.slots)


def _match(view: ProviderView, query: ProviderQuery) -> _QueryMatches:
    matches = with_names_of(view, query).match(query)
    is_own = matches.is_allocating()
    return _QueryMatches(matches, query, is_own, matches.roots[is_own])


def _grants(
    state: ProviderState, slot: Slot, taken: Sequence[tuple[str, Int64s]] = ()
) -> Int64s:
    """Return how often each option of a slot can be claimed; (n_options,).

    Parameters
    ----------
    taken : sequence of (str, ndarray of int64, shape (n_options,))
        By resource class: what earlier claims take from the provider of each option.
    """
    grants = np.full(len(slot.providers), _MANY, np.int64)
    taken_of_class = dict(taken)
    for name, amount in slot.amounts.items():
        column = state.column(name)
        # An array by row is faster than a search if most providers have the class.
        room_of_row = np.empty(state.trees.n_rows, np.int64)
        # The usage up to which one more claim is granted.
        max_used = column.distinct.max_used(amount)
        room_of_row[column.rows] = max_used[column.kinds] - column.used
        room = room_of_row[slot.providers]
        if name in taken_of_class:
            room -= taken_of_class[name]
        np.minimum(grants, room // amount + 1, out=grants)
    return np.maximum(grants, 0)


def _count_after(
    first_matches: _QueryMatches, counts: ClaimCounts, later_matches: _QueryMatches
) -> ClaimCounts:
    """Return the counts if later matches are claimed after the first matches."""
    state, n_rows = later_matches.matches.state, len(counts.n_claims)
    n_later = np.zeros(n_rows, np.int64)
    n_later[later_matches.roots] = _MANY
    for slot in later_matches.matches.slots:
        # Where the slot has one provider, the first claims took their amounts from it.
        # Where it has several, it is unknown which of them a claim used: no provider's
        # room is reduced, but the grants of all of them are, by one for each claim.
        is_single = slot.n_options(n_rows) == 1
        n_before = counts.n_claims * is_single
        taken = [
            (name, n_before[slot.roots] * first_matches.taking(name))
            for name in slot.amounts
        ]
        n_of_slot = np.zeros(n_rows, np.int64)
        np.add.at(n_of_slot, slot.roots, _grants(state, slot, taken))
        if first_matches.has(slot):
            n_of_slot -= counts.n_claims * ~is_single
        np.minimum(n_later, np.maximum(n_of_slot, 0), out=n_later)
    later_counts = later_matches.counts()
    is_in_both = (counts.n_claims > 0) & (later_counts.n_claims > 0)
    # True for a tree if each slot has a single provider: claims of the first query took
    # their amounts from that provider.
    has_single_providers = np.ones(n_rows, np.bool_)
    for matched in (first_matches, later_matches):
        has_single_providers[matched.roots] &= (
            matched.matches.n_options[:, matched.is_own] == 1
        ).all(axis=0)
    return ClaimCounts(
        counts.n_claims + n_later,
        counts.is_exact & later_counts.is_exact & (~is_in_both | has_single_providers),
        _merge_limits([*counts.shared, *later_counts.shared]),
    )


def _merge_limits(limits: Iterable[SharedLimit]) -> list[SharedLimit]:
    """Join the limits of equal slots of several queries at the same provider."""
    merged: dict[Hashable, SharedLimit] = {}
    for limit in limits:
        key = limit.slot, limit.provider
        if (same_limit := merged.get(key)) is not None:
            limit = SharedLimit(
                limit.slot,
                limit.provider,
                np.union1d(same_limit.roots, limit.roots),
                {**same_limit.grants, **limit.grants},
            )
        merged[key] = limit
    return list(merged.values())
