# SPDX-License-Identifier: Apache-2.0
"""One answer of Placement, less the claims and refusals since its GET began.

    CachedAnswer ── offer() ──▶ CachedOffer   an immutable snapshot for one decision
      ▲
      └── count_claim, release, exclude   (under the cache's lock)

A `CachedOffer` shares the answer and what is derived from it; its mask is its own.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ...candidates import (
    AllocationCandidates,
    AllocationRequest,
    Amounts,
    CandidateRows,
    CandidatesAnswer,
    CandidatesQuery,
    Codes,
    HostCandidates,
    HostLayout,
    Mask,
    ProviderCoder,
    QueryOffer,
    Rows,
    resources_of,
)
from ..candidates_source import CountedClaim

#: {resource class: [(amount, the candidates that request it from one provider)]}
_Demand = Mapping[str, list[tuple[int, npt.NDArray[np.intp]]]]

#: For a provider that more candidates use, such as shared storage, the candidates are
#: indexed in advance, so that the first claim need not scan them: 8 ms for 10,000.
_INDEX_THRESHOLD: Final = 100


def amounts_of(requests: Iterable[AllocationRequest]) -> Counter[tuple[str, str]]:
    """Return the sums of what allocation requests contain."""
    amounts: Counter[tuple[str, str]] = Counter()
    for request in requests:
        for provider, resources in resources_of(request).items():
            for name, amount in resources.items():
                amounts[provider, name] += amount
    return amounts


class Account:
    """Count claims and refusals against one answer.

    Attributes
    ----------
    claimed : dict
        {(provider UUID, resource class): amount} of the claims that are counted.
    """

    def __init__(self, candidates: AllocationCandidates) -> None:
        self.claimed: dict[tuple[str, str], int] = {}
        self._candidates = candidates
        #: Per candidate: its refusals plus its amounts that no longer fit.
        self._n_obstacles = np.zeros(candidates.n_requests, np.int32)
        self._demand: dict[str, _Demand] = {}
        for root, indices in candidates.by_host.items():
            if len(indices) > _INDEX_THRESHOLD:
                self._demand_on(root)

    def is_open(self) -> Mask:
        """Return which candidates still fit; bool, shape (n_requests,), read-only."""
        is_open: Mask = self._n_obstacles == 0
        is_open.flags.writeable = False
        return is_open

    def count(self, amounts: Amounts, *, sign: int = 1) -> None:
        """Subtract amounts from their providers, or with `sign` -1 add them back."""
        for (provider, name), amount in amounts.items():
            if provider in self._candidates.provider_summaries:
                self._adjust(provider, name, sign * amount)

    def exclude(self, index: int) -> None:
        """Exclude one candidate permanently."""
        self._n_obstacles[index] += 1

    def without(self, claims: Iterable[CountedClaim]) -> Account:
        """Return a copy that does not count these claims."""
        other = copy.copy(self)  # `_demand` stays shared: it only grows
        other.claimed = dict(self.claimed)
        other._n_obstacles = self._n_obstacles.copy()  # noqa: SLF001 - it is our copy
        for claim in claims:
            other.count(claim.amounts, sign=-1)
        return other

    def _adjust(self, provider: str, name: str, amount: int) -> None:
        key = provider, name
        before = self._candidates.free(*key) - self.claimed.get(key, 0)
        after = before - amount
        self.claimed[key] = self.claimed.get(key, 0) + amount
        for wanted, indices in self._demand_on(provider).get(name, ()):
            change = int(wanted > after) - int(wanted > before)
            if change:
                self._n_obstacles[indices] += change

    def _demand_on(self, provider: str) -> _Demand:
        if provider not in self._demand:
            self._demand[provider] = _demand(self._candidates, provider)
        return self._demand[provider]


def _demand(candidates: AllocationCandidates, provider: str) -> _Demand:
    root = candidates.provider_summaries[provider]["root_provider_uuid"]
    found: dict[str, dict[int, list[int]]] = {}
    for index in candidates.by_host.get(root, ()):
        part = candidates.allocation_requests[index]["allocations"].get(provider)
        for name, amount in part["resources"].items() if part else ():
            found.setdefault(name, {}).setdefault(amount, []).append(index)
    return {
        name: [(amount, np.array(i, np.intp)) for amount, i in by_amount.items()]
        for name, by_amount in found.items()
    }


@dataclass(slots=True, eq=False)
class CachedAnswer:
    """One answer of Placement and its account. The cache holds a lock around changes.

    Attributes
    ----------
    account : Account
        A new one for the answer's candidates.
    received : int
        The tick after the answer had arrived.
    refresh_at : float
        When a lookup starts a refresh, seconds of the cache's clock; infinite once one
        was started, even if it failed.
    """

    answer: CandidatesAnswer
    account: Account
    received: int
    refresh_at: float
    _overlapping: list[CountedClaim] = field(init=False, default_factory=list)
    _offer: CachedOffer | None = field(init=False, default=None)

    def count_claim(self, claim: CountedClaim) -> None:
        """Subtract a claim that ended after the GET began.

        If the two overlapped, Placement's answer may already include it.
        """
        self.account.count(claim.amounts)
        if claim.began < self.received:
            self._overlapping.append(claim)
        self._offer = None

    def release(self, claim: CountedClaim) -> None:
        """Add a released claim's amounts back, if it was counted."""
        if claim.ended < self.answer.began:
            return  # the answer included it
        self.account.count(claim.amounts, sign=-1)
        if claim in self._overlapping:
            self._overlapping.remove(claim)
        self._offer = None

    def exclude(self, index: int) -> None:
        """Exclude a candidate that Placement refused."""
        self.account.exclude(index)
        self._offer = None

    def offer(self) -> CachedOffer:
        """Return what is left if every claim counts that the answer may lack."""
        if self._offer is None:
            is_complete = not self._overlapping
            self._offer = self._make_offer(self.account, is_complete=is_complete)
        return self._offer

    def complete_offer(self) -> CachedOffer:
        """Return what may be left: less only the claims that the answer must lack."""
        if not self._overlapping:
            return self.offer()
        return self._make_offer(
            self.account.without(self._overlapping), is_complete=True
        )

    def _make_offer(self, account: Account, *, is_complete: bool) -> CachedOffer:
        return CachedOffer(
            self.answer,
            self.answer.query,
            account.is_open(),
            dict(account.claimed),
            is_complete,
        )


@dataclass(frozen=True, slots=True, eq=False)
class CachedOffer(QueryOffer):
    """The candidates of one answer, less what was claimed or refused since.

    Attributes
    ----------
    answer : CandidatesAnswer
        Placement's answer to the canonical query; shared with other offers.
    query : CandidatesQuery
        The request's own.
    is_open : ndarray of bool, shape (n_requests,), read-only
        False: claimed by another request since, or refused.
    claimed : mapping
        What was claimed since the answer.
    suffixes : mapping
        {suffix in the answer: suffix in `query`}, where they differ.
    """

    answer: CandidatesAnswer
    query: CandidatesQuery
    is_open: Mask
    claimed: Amounts
    is_complete: bool = True
    suffixes: Mapping[str, str] = field(default_factory=dict)

    @property
    def candidates(self) -> AllocationCandidates:
        """The candidates of the answer, whose mappings have its own suffixes."""
        return self.answer.candidates

    @property
    def began(self) -> int:  # type: ignore[override]
        """The tick at which the GET began."""
        return self.answer.began

    @property
    def began_at(self) -> float:  # type: ignore[override]
        """The same in seconds."""
        return self.answer.began_at

    @property
    def is_truncated(self) -> bool:
        """Whether the limit may have hidden candidates."""
        return self.answer.is_truncated

    @property
    def n_open(self) -> int:
        """The number of candidates that may be claimed."""
        return int(np.count_nonzero(self.is_open))

    @property
    def roots(self) -> Collection[str]:
        """The root providers of all candidates."""
        return self.candidates.by_host

    @property
    def n_roots(self) -> int:
        """The number of `roots`."""
        return len(self.candidates.by_host)

    def on_hosts(self, layout: HostLayout) -> HostCandidates:
        """Return the open candidates of the hosts that have a row.

        The rows of all candidates are cached with the answer.
        """
        candidates = self.candidates
        rows, numbers = candidates.derived.get(
            ("rows", layout.token), lambda: _rows_and_numbers(candidates, layout)
        )
        every = CandidateRows(rows, numbers, self)
        return every if self.is_open.all() else every.take(self.is_open[numbers])

    def numbers_of(self, root: str) -> Sequence[int]:
        """Return all candidates of a host, including those no longer available."""
        return self.candidates.by_host.get(root, ())

    def may_claim(self, number: int) -> bool:
        """Return whether a candidate is open."""
        return 0 <= number < len(self.is_open) and bool(self.is_open[number])

    def request(self, number: int) -> AllocationRequest:
        """Return one candidate, with the suffixes of the request's own query."""
        self._check(number)
        request = self.candidates.allocation_requests[number]
        if not self.suffixes:
            return request
        mappings = {self.suffixes.get(s, s): p for s, p in request["mappings"].items()}
        return {**request, "mappings": mappings}

    def _check(self, number: int) -> None:
        if not 0 <= number < len(self.is_open):
            raise IndexError(
                f"candidate {number} of an offer that has {len(self.is_open)} "
                "candidates"
            )

    def groups(self) -> Collection[str]:
        """Return the request groups for which candidates have providers."""
        return [self.suffixes.get(s, s) for s in self._mapped().providers]

    def provider_codes(self, group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        """Return the code of the provider that each assigns to a request group."""
        mapped = self._mapped()
        names = {own: name for name, own in self.suffixes.items()}
        providers = mapped.providers.get(names.get(group, group))
        if providers is None:  # of another answer's candidates
            return coder.provider_codes([None] * len(numbers))
        codes = self.candidates.derived.get(
            ("codes", coder, coder.n_known),
            lambda: coder.provider_codes([*mapped.uuids, None]),
        )
        # -1, no provider, finds the last code, that of None.
        found: Codes = codes[providers[numbers]]
        return found

    def _mapped(self) -> _MappedProviders:
        requests = self.candidates.allocation_requests
        return self.candidates.derived.get("mapped", lambda: _mapped(requests))

    def root_of(self, provider_uuid: str) -> str | None:
        """Return a provider's root; None: it has no part in these candidates."""
        summary = self.candidates.provider_summaries.get(provider_uuid)
        return None if summary is None else str(summary["root_provider_uuid"])

    def traits_of(self, provider_uuid: str) -> Collection[str]:
        """Return a provider's traits as Placement answered."""
        traits: Collection[str]
        traits = self.candidates.provider_summaries.get(provider_uuid, {}).get(
            "traits", ()
        )
        return traits

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since; 0 where there is no inventory."""
        free = self.candidates.free(provider_uuid, resource_class)
        return free - self.claimed.get((provider_uuid, resource_class), 0)

    def has_more_than(self, earlier: QueryOffer) -> bool:
        """Return whether it has a candidate that `earlier` did not offer."""
        if not isinstance(earlier, CachedOffer) or self.answer is not earlier.answer:
            return self.n_open > 0
        return bool((self.is_open & ~earlier.is_open).any())


@dataclass(frozen=True, slots=True, eq=False)
class _MappedProviders:
    """The providers that the candidates of one answer map.

    Attributes
    ----------
    uuids : list of str
        Each provider once.
    providers : mapping
        By request group: the first one's index of each candidate, -1 without;
        ndarrays of int32, shape (n_requests,).
    """

    uuids: Sequence[str]
    providers: Mapping[str, Codes]


def _mapped(requests: Sequence[AllocationRequest]) -> _MappedProviders:
    of_uuid: dict[str | None, int] = {}
    mappings = [request["mappings"] for request in requests]
    groups = dict.fromkeys(itertools.chain.from_iterable(mappings))
    providers = {}
    for group in groups:
        found = [(mapping.get(group) or (None,))[0] for mapping in mappings]
        places = [
            -1 if uuid is None else of_uuid.setdefault(uuid, len(of_uuid))
            for uuid in found
        ]
        providers[group] = np.array(places, np.int32)
    return _MappedProviders([str(uuid) for uuid in of_uuid], providers)


def _rows_and_numbers(
    candidates: AllocationCandidates, layout: HostLayout
) -> tuple[Rows, Rows]:
    """Return the row and the number of each candidate whose host has a row."""
    rows, of_roots = layout.rows_of(candidates.by_host), candidates.by_host.values()
    counts = np.fromiter(map(len, of_roots), np.intp, count=len(of_roots))
    numbers = np.fromiter(
        itertools.chain.from_iterable(of_roots), np.intp, count=int(counts.sum())
    )
    at = np.repeat(rows, counts)
    return at[at >= 0], numbers[at >= 0]
