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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from cachetools import Cache, TTLCache

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

#: If more candidates than this use a provider, such as shared storage, they are indexed
#: in advance, so that the first claim need not scan them: 8 ms for 10,000.
_INDEX_THRESHOLD: Final = 100


def amounts_of(requests: Iterable[AllocationRequest]) -> Counter[tuple[str, str]]:
    """Return the sums of allocation requests by provider and resource class."""
    amounts: Counter[tuple[str, str]] = Counter()
    for request in requests:
        for provider, resources in resources_of(request).items():
            for name, amount in resources.items():
                amounts[provider, name] += amount
    return amounts


class CachedAnswer:
    """One answer of Placement, and the claims and refusals that are counted against it.

    The cache holds a lock around changes.

    Parameters
    ----------
    received : int
        The sequence number after the answer had arrived.
    refresh_at : float
        When a lookup starts a refresh, seconds of the cache's clock; infinite once one
        was started, even if it failed.
    """

    def __init__(
        self, answer: CandidatesAnswer, received: int, refresh_at: float
    ) -> None:
        self.answer = answer
        self.refresh_at = refresh_at
        self._received = received
        self._candidates = candidates = answer.candidates
        #: {(provider UUID, resource class): amount} of the claims that are counted.
        self._claimed: dict[tuple[str, str], int] = {}
        #: Per candidate: its refusals plus its amounts that no longer fit.
        self._n_obstacles = np.zeros(candidates.n_requests, np.int32)
        self._demand = {
            root: _demand(candidates, root)
            for root, indices in candidates.by_host.items()
            if len(indices) > _INDEX_THRESHOLD
        }
        #: Counted claims that the answer may include, too.
        self._overlapping: list[CountedClaim] = []
        self._offer: CachedOffer | None = None

    def count_claim(self, claim: CountedClaim) -> None:
        """Subtract a claim that ended after the GET began.

        If the two overlapped, Placement's answer may already include it.
        """
        self._count(claim.amounts)
        if claim.began < self._received:
            self._overlapping.append(claim)
        self._offer = None

    def release(self, claim: CountedClaim) -> None:
        """Add a released claim's amounts back, if it was counted."""
        if claim.ended < self.answer.began:
            return  # the answer included the claim
        self._count(claim.amounts, sign=-1)
        if claim in self._overlapping:
            self._overlapping.remove(claim)
        self._offer = None

    def exclude(self, index: int) -> None:
        """Exclude a candidate that Placement refused."""
        self._n_obstacles[index] += 1
        self._offer = None

    def offer(self) -> CachedOffer:
        """Return what is available if all claims count that the answer may lack."""
        if self._offer is None:
            is_open: Mask = self._n_obstacles == 0
            is_open.flags.writeable = False
            self._offer = CachedOffer(
                self.answer,
                self.answer.query,
                is_open,
                dict(self._claimed),
                is_complete=not self._overlapping,
            )
        return self._offer

    def complete_offer(self) -> CachedOffer:
        """Return what may be available: only claims count that the answer must lack."""
        if not self._overlapping:
            return self.offer()
        duplicate = copy.copy(self)  # `_demand` stays shared: it only grows
        duplicate._claimed = dict(self._claimed)  # noqa: SLF001 - it is our copy
        duplicate._n_obstacles = self._n_obstacles.copy()  # noqa: SLF001
        duplicate._overlapping, duplicate._offer = [], None  # noqa: SLF001
        for claim in self._overlapping:
            duplicate._count(claim.amounts, sign=-1)  # noqa: SLF001
        return duplicate.offer()

    def _count(self, amounts: Amounts, *, sign: int = 1) -> None:
        """Subtract amounts from their providers, or with `sign` -1 add them back."""
        candidates = self._candidates
        for (provider, name), amount in amounts.items():
            if provider not in candidates.provider_summaries:
                continue
            claimed = self._claimed.get((provider, name), 0)
            free_before = candidates.free(provider, name) - claimed
            free_after = free_before - sign * amount
            self._claimed[provider, name] = claimed + sign * amount
            if provider not in self._demand:
                self._demand[provider] = _demand(candidates, provider)
            for requested, indices in self._demand[provider].get(name, ()):
                change = int(requested > free_after) - int(requested > free_before)
                if change:
                    self._n_obstacles[indices] += change


def _demand(candidates: AllocationCandidates, provider: str) -> _Demand:
    """Return which candidates request which amounts of a provider."""
    root = candidates.provider_summaries[provider]["root_provider_uuid"]
    by_class: dict[str, dict[int, list[int]]] = {}
    for index in candidates.by_host.get(root, ()):
        allocation = candidates.allocation_requests[index]["allocations"].get(provider)
        for name, amount in allocation["resources"].items() if allocation else ():
            by_class.setdefault(name, {}).setdefault(amount, []).append(index)
    return {
        name: [
            (amount, np.array(indices, np.intp))
            for amount, indices in by_amount.items()
        ]
        for name, by_amount in by_class.items()
    }


class CachedAnswers(TTLCache[CandidatesQuery, CachedAnswer]):
    """One answer per query; the size of each is its number of allocation requests."""

    def __init__(
        self,
        max_requests: int,
        max_age_s: float,
        clock: Callable[[], float],
        on_eviction: Callable[[], object],
    ) -> None:
        super().__init__(max_requests, max_age_s, timer=clock, getsizeof=_n_counted)
        self._on_eviction = on_eviction

    def popitem(self) -> tuple[CandidatesQuery, CachedAnswer]:
        """Evict the least recently used answer; cachetools calls it to make room."""
        self._on_eviction()
        return super().popitem()

    def unexpired(self) -> Iterator[CachedAnswer]:
        """Yield all answers; this does not count as a use of them."""
        for query in self:
            yield Cache.__getitem__(self, query)


def _n_counted(cached: CachedAnswer) -> int:
    return max(1, cached.answer.candidates.n_requests)


@dataclass(frozen=True, slots=True, eq=False)
class CachedOffer(QueryOffer):
    """The candidates of one answer, less what was claimed or refused since.

    Attributes
    ----------
    answer : CandidatesAnswer
        Placement's answer to the canonical query; shared with other offers.
    query : CandidatesQuery
        The request's own query.
    is_open : ndarray of bool, shape (n_requests,), read-only
        False: the candidate was claimed by another request since, or refused.
    claimed : mapping
        {(provider UUID, resource class): amount} claimed since the answer.
    suffixes : mapping
        {suffix in the answer: suffix in `query`}, where they differ.
    """

    answer: CandidatesAnswer
    query: CandidatesQuery
    is_open: Mask
    claimed: Amounts
    is_complete: bool = True
    suffixes: Mapping[str, str] = field(default_factory=dict)
    candidates: AllocationCandidates = field(init=False)
    began: int = field(init=False)
    began_at: float = field(init=False)
    is_truncated: bool = field(init=False)
    n_open: int = field(init=False)
    roots: Collection[str] = field(init=False)
    n_roots: int = field(init=False)

    def __post_init__(self) -> None:
        """Set what follows from the answer and `is_open`."""
        answer, candidates = self.answer, self.answer.candidates
        for name, value in (
            ("candidates", candidates),
            ("began", answer.began),
            ("began_at", answer.began_at),
            ("is_truncated", answer.is_truncated),
            ("n_open", int(np.count_nonzero(self.is_open))),
            ("roots", candidates.by_host),
            ("n_roots", len(candidates.by_host)),
        ):
            object.__setattr__(self, name, value)

    def on_hosts(self, layout: HostLayout) -> HostCandidates:
        """Return the open candidates of the hosts that have a row.

        The rows of all candidates are cached with the answer.
        """
        candidates = self.candidates
        rows, numbers = candidates.derived.get(
            ("rows", layout.token), lambda: _rows_and_numbers(candidates, layout)
        )
        all_candidates = CandidateRows(rows, numbers, self)
        return (
            all_candidates
            if self.is_open.all()
            else all_candidates.take(self.is_open[numbers])
        )

    def numbers_of(self, root: str) -> Sequence[int]:
        """Return all candidates of a host, including those no longer available."""
        return self.candidates.by_host.get(root, ())

    def may_claim(self, number: int) -> bool:
        """Return whether a candidate is open."""
        return 0 <= number < len(self.is_open) and bool(self.is_open[number])

    def request(self, number: int) -> AllocationRequest:
        """Return one candidate, with the suffixes of the request's own query."""
        if not 0 <= number < len(self.is_open):
            raise IndexError(
                f"candidate {number} of an offer that has {len(self.is_open)} "
                "candidates"
            )
        request = self.candidates.allocation_requests[number]
        if not self.suffixes:
            return request
        mappings = {
            self.suffixes.get(suffix, suffix): providers
            for suffix, providers in request["mappings"].items()
        }
        return {**request, "mappings": mappings}

    def groups(self) -> Collection[str]:
        """Return the request groups for which candidates have providers."""
        return [
            self.suffixes.get(suffix, suffix) for suffix in self._mapped().providers
        ]

    def provider_codes(self, group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        """Return the code of each candidate's provider for a request group."""
        mapped = self._mapped()
        answer_suffixes = {
            request_suffix: answer_suffix
            for answer_suffix, request_suffix in self.suffixes.items()
        }
        providers = mapped.providers.get(answer_suffixes.get(group, group))
        if providers is None:  # only another answer has this group
            return coder.provider_codes([None] * len(numbers))
        codes = self.candidates.derived.get(
            ("codes", coder, coder.n_known),
            lambda: coder.provider_codes([*mapped.uuids, None]),
        )
        # Index -1, of no provider, selects the last code, which is that of None.
        provider_codes: Codes = codes[providers[numbers]]
        return provider_codes

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
        """Return whether this offer has a candidate that `earlier` did not have."""
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
        By request group: the index in `uuids` of each candidate's first provider, or
        -1; ndarrays of int32, shape (n_requests,).
    """

    uuids: Sequence[str]
    providers: Mapping[str, Codes]


def _mapped(requests: Sequence[AllocationRequest]) -> _MappedProviders:
    """Return the providers that allocation requests map to their groups."""
    index_of: dict[str | None, int] = {}
    mappings = [request["mappings"] for request in requests]
    groups = dict.fromkeys(itertools.chain.from_iterable(mappings))
    providers = {}
    for group in groups:
        uuids = [(mapping.get(group) or (None,))[0] for mapping in mappings]
        indices = [
            -1 if uuid is None else index_of.setdefault(uuid, len(index_of))
            for uuid in uuids
        ]
        providers[group] = np.array(indices, np.int32)
    return _MappedProviders([str(uuid) for uuid in index_of], providers)


def _rows_and_numbers(
    candidates: AllocationCandidates, layout: HostLayout
) -> tuple[Rows, Rows]:
    """Return the row and the number of each candidate whose host has a row."""
    rows, indices_by_root = (
        layout.rows_of(candidates.by_host),
        candidates.by_host.values(),
    )
    counts = np.fromiter(map(len, indices_by_root), np.intp, count=len(indices_by_root))
    numbers = np.fromiter(
        itertools.chain.from_iterable(indices_by_root), np.intp, count=int(counts.sum())
    )
    candidate_rows = np.repeat(rows, counts)
    return candidate_rows[candidate_rows >= 0], numbers[candidate_rows >= 0]
