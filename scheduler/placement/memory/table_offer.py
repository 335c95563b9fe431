# SPDX-License-Identifier: Apache-2.0
"""What the provider table offers for a query: trees, and candidates on demand.

A tree with one option for each part of the query has one candidate, numbered as the
tree is. Otherwise the candidates of a tree are computed and numbered once a filter or a
claim reads them. The body of an allocation request is created for one candidate only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from ...candidates import (
    AllocationCandidates,
    AllocationRequest,
    CandidateRows,
    CandidatesQuery,
    Codes,
    DerivedData,
    HostCandidates,
    HostLayout,
    ProviderCoder,
    QueryOffer,
    Rows,
    indices_within,
    resources_of,
)
from ..allocations.limits import MAX_EXPANDED, MAX_EXPANDED_OF_HOST
from ..providers import Matches, ProviderCandidates
from ..providers.state import ProviderState
from ..providers.trees import ProviderTrees

#: Rows of the table of providers.
_Providers = npt.NDArray[np.int32]


class TableOffer(QueryOffer):
    """The candidates of one query, computed from one view of the providers.

    It is used by one thread at a time.

    Parameters
    ----------
    derived : DerivedData
        Data derived from the trees, which offers share.
    is_complete : bool
        False: Placement may have more, and has not been queried.
    """

    def __init__(
        self,
        query: CandidatesQuery,
        matches: Matches,
        derived: DerivedData,
        *,
        began: int,
        began_at: float,
        is_complete: bool = True,
    ) -> None:
        self.is_complete = is_complete
        self.query = query
        self.began = began
        self.began_at = began_at
        self._matches = matches
        self._state = matches.state
        self._derived = derived
        is_own = matches.is_allocating()
        self._roots = matches.roots[is_own]
        self._n_products = matches.n_products[is_own]
        self._suffixes = [slot.suffix for slot in matches.slots]
        self._candidates = (
            _OneEach(matches, self._roots)
            if (self._n_products == 1).all()
            else _Several(matches, self._roots, self._n_products)
        )

    @property
    def state(self) -> ProviderState:
        """The providers that the candidates were computed from."""
        return self._state

    @property
    def is_truncated(self) -> bool:
        """False: no limit applies."""
        return False

    @property
    def n_open(self) -> int:
        """The number of candidates, or more if groups exclude each other's options."""
        return int(self._n_products.sum())

    @property
    def roots(self) -> Collection[str]:
        """The UUIDs of the trees' root providers."""
        uuids: list[str] = self._state.trees.uuids[self._roots].tolist()
        return uuids

    @property
    def n_roots(self) -> int:
        """The number of trees."""
        return len(self._roots)

    def on_hosts(self, layout: HostLayout) -> HostCandidates:
        """Return the candidates of the hosts that have a row."""
        trees = self._state.trees
        rows = self._derived.get(
            ("rows", trees, layout.token),
            lambda: _rows_of_roots(trees, layout),
        )
        return _HostsOfTable(self, rows[self._roots])

    def candidates_of(self, indices: Rows) -> tuple[Rows, Rows]:
        """Return the candidates of trees by the trees' indices.

        Returns
        -------
        which : ndarray of intp, shape (n_candidates,)
            The index in `indices` of each candidate's tree.
        numbers : ndarray of intp, shape (n_candidates,)
        """
        return self._candidates.numbers(indices)

    def numbers_of(self, root: str) -> Sequence[int]:
        """Return all candidates of a host, at most `MAX_EXPANDED_OF_HOST`."""
        row = self._state.trees.find(root)
        position = int(np.searchsorted(self._roots, row))
        if row < 0 or position == len(self._roots) or self._roots[position] != row:
            return ()
        _, numbers = self._candidates.numbers(np.array([position]))
        host_numbers: list[int] = numbers.tolist()
        return host_numbers

    def may_claim(self, number: int) -> bool:
        """Return whether there is a candidate of this number; none is excluded."""
        return 0 <= number < len(self._candidates)

    def request(self, number: int) -> AllocationRequest:
        """Return one candidate as Placement returns it."""
        if not self.may_claim(number):
            raise IndexError(f"candidate {number} was not offered")
        return self._candidates.body(number)

    def groups(self) -> Collection[str]:
        """Return the request groups of the query."""
        return dict.fromkeys(self._suffixes)

    def provider_codes(self, group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        """Return the code of each candidate's provider for a request group."""
        if group not in self._suffixes:
            return coder.provider_codes([None] * len(numbers))
        trees = self._state.trees
        codes = self._derived.get(
            ("codes", trees, coder, coder.n_known),
            lambda: coder.provider_codes(trees.uuids.tolist()),
        )
        slot = self._suffixes.index(group)
        candidate_codes: Codes = codes[self._candidates.providers[numbers, slot]]
        return candidate_codes

    def root_of(self, provider_uuid: str) -> str | None:
        """Return a provider's root; None: the table does not have it."""
        trees = self._state.trees
        row = trees.find(provider_uuid)
        return None if row < 0 else str(trees.uuids[trees.roots[row]])

    def traits_of(self, provider_uuid: str) -> Collection[str]:
        """Return a provider's traits; none for an unknown one."""
        trees = self._state.trees
        row = trees.find(provider_uuid)
        return trees.traits[int(trees.trait_sets[row])] if row >= 0 else ()

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used; 0 where there is no inventory."""
        return self._state.free(provider_uuid, resource_class)

    def confirmed(self) -> TableOffer:
        """Return the same offer, once Placement has confirmed that it has no more."""
        return TableOffer(
            self.query,
            self._matches,
            self._derived,
            began=self.began,
            began_at=self.began_at,
        )

    def lacking(self, answer: AllocationCandidates) -> AllocationRequest | None:
        """Return a candidate of Placement's that is not offered; None: all are offered.

        It is not offered if the offer has no candidate of its tree, or fewer than
        Placement, or if its providers have too little room in memory.
        """
        trees, offered_numbers = self._state.trees, set[int]()
        for root, numbers in answer.by_host.items():  # by_host has shared pools, too
            row = trees.find(root)
            position = int(np.searchsorted(self._roots, row))
            if (
                row >= 0
                and position < len(self._roots)
                and self._roots[position] == row
            ):
                offered_numbers.update(numbers[: int(self._n_products[position])])
        for number, request in enumerate(answer.allocation_requests):
            if number not in offered_numbers or not self._state.has_room(
                resources_of(request)
            ):
                return request
        return None

    def has_less_room_than(self, answer: AllocationCandidates) -> bool:
        """Return whether a provider has less room here than in Placement's answer."""
        return any(
            self.free(uuid, name) < answer.free(uuid, name)
            for request in answer.allocation_requests
            for uuid, resources in resources_of(request).items()
            for name in resources
        )

    def has_more_than(self, earlier: QueryOffer) -> bool:
        """Return whether a tree has candidates that `earlier` may not have offered."""
        if not self.n_open:
            return False
        if not isinstance(earlier, TableOffer):
            return True
        if self._state.trees is not earlier._state.trees:  # noqa: SLF001 - the same class
            return True
        return self._has_more_options(earlier) or self._has_more_room(earlier)

    def _has_more_options(self, earlier: TableOffer) -> bool:
        n_before = np.zeros(self._state.trees.n_rows)
        n_before[earlier._roots] = earlier._n_products
        return bool((self._n_products > n_before[self._roots]).any())

    def _has_more_room(self, earlier: TableOffer) -> bool:
        """Return whether a provider has more room, which several instances may need."""
        return any(
            self._has_more_of(name, slot.providers, earlier)
            for slot in self._matches.slots
            for name in slot.amounts
        )

    def _has_more_of(self, name: str, rows: _Providers, earlier: TableOffer) -> bool:
        earlier_column, column = earlier._state.column(name), self._state.column(name)
        _, indices = earlier_column.positions(rows)
        if len(indices) < len(rows):
            return True
        return bool((column.free(rows) > earlier_column.free(rows)).any())


class _HostsOfTable:
    """The candidates of an offer on rows of a host table; -1: the host has no row."""

    def __init__(self, offer: TableOffer, rows: Rows) -> None:
        self._offer = offer
        self._rows = rows

    @property
    def rows(self) -> Rows:
        return self._rows[self._rows >= 0]

    def groups(self) -> Collection[str]:
        return self._offer.groups()

    def within(self, rows: Rows) -> CandidateRows:
        in_rows = indices_within(rows, self._rows)
        indices = np.flatnonzero(in_rows >= 0)
        which, numbers = self._offer.candidates_of(indices)
        return CandidateRows(in_rows[indices][which], numbers, self._offer)


class _OneEach:
    """The only candidate of each tree; its number is the tree's index."""

    def __init__(self, matches: Matches, roots: _Providers) -> None:
        self._matches = matches
        self._roots = roots
        self._providers: _Providers | None = None
        self._bodies: dict[int, AllocationRequest] = {}

    def __len__(self) -> int:
        return len(self._roots)

    def numbers(self, indices: Rows) -> tuple[Rows, Rows]:
        return np.arange(len(indices)), indices

    @property
    def providers(self) -> _Providers:
        """The provider of each slot; shape (n_candidates, n_slots)."""
        if self._providers is None:
            self._providers = self._matches.expand_rows(self._roots).providers
        return self._providers

    def body(self, number: int) -> AllocationRequest:
        if number not in self._bodies:
            [body] = self._matches.expand_rows(self._roots[number : number + 1])
            self._bodies[number] = body
        return self._bodies[number]


class _Several:
    """The candidates of trees that may have several, computed once they are read."""

    def __init__(
        self,
        matches: Matches,
        roots: _Providers,
        n_products: npt.NDArray[np.float64],
    ) -> None:
        self._matches = matches
        self._roots = roots
        self._n_products = n_products
        # By tree: the number of its first candidate, -1 until its candidates are
        # computed; and how many it has.
        self._first = np.full(len(roots), -1, np.intp)
        self._n_of = np.zeros(len(roots), np.intp)
        no_rows = np.empty(0, np.int32)
        self.providers = np.empty((0, len(matches.slots)), np.int32)
        self._roots_of = no_rows
        self._bodies: dict[int, AllocationRequest] = {}

    def __len__(self) -> int:
        return len(self.providers)

    def numbers(self, indices: Rows) -> tuple[Rows, Rows]:
        self._expand(indices[self._first[indices] < 0])
        n_candidates = self._n_of[indices]
        which = np.repeat(np.arange(len(indices)), n_candidates)
        starts = np.cumsum(n_candidates) - n_candidates
        numbers = np.arange(len(which)) + (self._first[indices] - starts)[which]
        return which, numbers

    def _expand(self, indices: Rows) -> None:
        """Compute the candidates of trees; where there are too many, an even sample."""
        if not len(indices):
            return
        roots = self._roots[indices]
        max_per_tree = max(1, min(MAX_EXPANDED_OF_HOST, MAX_EXPANDED // len(roots)))
        expanded = (
            self._matches.expand_rows(roots)
            if (self._n_products[indices] <= max_per_tree).all()
            else self._matches.sample_rows(roots, max_per_tree)
        )
        first_candidate = np.searchsorted(expanded.roots, roots, "left")
        self._first[indices] = first_candidate + len(self.providers)
        self._n_of[indices] = (
            np.searchsorted(expanded.roots, roots, "right") - first_candidate
        )
        self.providers = np.concatenate([self.providers, expanded.providers])
        self._roots_of = np.concatenate([self._roots_of, expanded.roots])

    def body(self, number: int) -> AllocationRequest:
        if number not in self._bodies:
            candidate_slice = slice(number, number + 1)
            matches = self._matches
            [self._bodies[number]] = ProviderCandidates(
                matches.state,
                matches.slots,
                self._roots_of[candidate_slice],
                self.providers[candidate_slice],
            )
        return self._bodies[number]


def _rows_of_roots(trees: ProviderTrees, layout: HostLayout) -> Rows:
    """Return each root provider's row in the host table; -1: none, or not a root."""
    rows = np.full(trees.n_rows, -1, np.intp)
    roots = np.flatnonzero(trees.parents < 0)
    rows[roots] = layout.rows_of(trees.uuids[roots].tolist())
    return rows
