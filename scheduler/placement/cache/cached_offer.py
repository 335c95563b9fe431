# SPDX-License-Identifier: Apache-2.0
"""What one cached answer offers to a decision."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

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
