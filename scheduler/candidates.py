# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates: the query, Placement's answer, and what of it is on offer.

CandidatesQuery ─▶ AllocationCandidates ─▶ Offer (a mask over the candidates)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

#: The microversion of nova 34. Since 1.38 a claim must name a consumer type.
MICROVERSION: Final = "1.36"
#: The first microversion with any-of traits; older ones refuse ``in:``.
ANY_OF_MICROVERSION: Final = "1.39"

#: One allocation request as Placement wrote it. It is opaque and sent back unchanged.
AllocationRequest = Mapping[str, Any]
#: {(provider UUID, resource class): amount}
Amounts = Mapping[tuple[str, str], int]
Mask = npt.NDArray[np.bool_]

_T = TypeVar("_T")

#: One for the host table's present layout, one for the previous one, and two to spare.
_MAX_DERIVED: Final = 4


@dataclass(frozen=True, slots=True)
class CandidatesQuery:
    """One GET /allocation_candidates; equal queries share a cached answer.

    Attributes
    ----------
    params : tuple of (name, value)
        Sorted; a name can occur more than once.
    limit : int or None
        Most candidates in the answer, also among `params`; None: all.
    """

    params: tuple[tuple[str, str], ...]
    limit: int | None = None

    @property
    def microversion(self) -> str:
        """The query's own; its candidates are claimed with `MICROVERSION`."""
        is_newer = any(
            name.startswith("required") and value.startswith("in:")
            for name, value in self.params
        )
        return ANY_OF_MICROVERSION if is_newer else MICROVERSION

    @property
    def path(self) -> str:
        """The path and query to GET, below Placement's endpoint."""
        return f"/allocation_candidates?{urlencode(self.params)}"

    def unlimited(self) -> CandidatesQuery:
        """Return the same query without a limit."""
        return CandidatesQuery(tuple(p for p in self.params if p[0] != "limit"))


class DerivedData:
    """A small cache of data that readers derive from one immutable answer."""

    def __init__(self) -> None:
        self._made: LRUCache[Hashable, Any] = LRUCache(_MAX_DERIVED)
        self._lock = threading.RLock()  # `make` may itself derive something

    def get(self, token: Hashable, make: Callable[[], _T]) -> _T:
        """Return the data for `token`; call `make` once if it is not cached."""
        with self._lock:
            if token not in self._made:
                self._made[token] = make()
            made: _T = self._made[token]
            return made


@dataclass(frozen=True, slots=True, eq=False)
class AllocationCandidates:
    """The candidates of one answer, or of two that were joined.

    Attributes
    ----------
    allocation_requests : sequence of mapping, length n_requests
        In Placement's order, as they were parsed from the answer.
    provider_summaries : mapping
        Provider UUID to Placement's summary, for every provider of each tree involved.
    by_host : mapping
        Root provider UUID to the indices of its requests, in Placement's order. A
        sharing provider is a root too: only the caller knows which roots are hosts.
    derived : DerivedData
        What readers derived from it, by tokens such as "the rows of table layout 7".
    """

    allocation_requests: Sequence[AllocationRequest]
    provider_summaries: Mapping[str, Mapping[str, Any]]
    by_host: Mapping[str, Sequence[int]]
    derived: DerivedData = field(default_factory=DerivedData, repr=False)

    @property
    def n_requests(self) -> int:
        """The number of allocation requests."""
        return len(self.allocation_requests)

    def followed_by(self, other: AllocationCandidates) -> AllocationCandidates:
        """Return these candidates, then those of a second answer.

        For a host that is in both, these come first.
        """
        if not other.n_requests:
            return self  # nearly always: all current hosts report PCPU
        by_host = dict(self.by_host)
        for root, indices in other.by_host.items():
            moved = [index + self.n_requests for index in indices]
            by_host[root] = [*by_host.get(root, ()), *moved]
        return AllocationCandidates(
            allocation_requests=[*self.allocation_requests, *other.allocation_requests],
            provider_summaries={**self.provider_summaries, **other.provider_summaries},
            by_host=by_host,
        )

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used in the class's unit; 0 where there is no inventory."""
        summary = self.provider_summaries.get(provider_uuid, {})
        resource = summary.get("resources", {}).get(resource_class)
        return int(resource["capacity"] - resource["used"]) if resource else 0

    def resources_of(self, index: int) -> dict[str, Mapping[str, int]]:
        """Return {provider UUID: {resource class: amount}} of one request."""
        allocations = self.allocation_requests[index]["allocations"]
        return {uuid: part["resources"] for uuid, part in allocations.items()}


@dataclass(frozen=True, slots=True, eq=False)
class CandidatesAnswer:
    """The answer to one query, and when its GET began.

    Attributes
    ----------
    began : int
        A tick of the cache's logical clock.
    began_at : float
        Seconds, on the cache's clock.
    """

    query: CandidatesQuery
    candidates: AllocationCandidates
    began: int
    began_at: float

    @property
    def is_truncated(self) -> bool:
        """Whether Placement may have more candidates than the query's limit."""
        limit = self.query.limit
        return limit is not None and self.candidates.n_requests >= limit


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """The candidates that one decision may choose from: a snapshot.

    Attributes
    ----------
    answers : tuple of CandidatesAnswer
        Placement's answers, in order; shared with other offers and never changed.
    candidates : AllocationCandidates
        Those of all `answers`.
    is_open : ndarray of bool, shape (n_requests,), read-only
        False: claimed by another request since, or refused.
    claimed : mapping
        What was claimed since the answers, {(provider UUID, resource class): amount}.
    is_complete : bool
        False: a claim that Placement may already include is counted here as well, so
        that fewer candidates may be open than fit.
    """

    answers: tuple[CandidatesAnswer, ...]
    candidates: AllocationCandidates
    is_open: Mask
    claimed: Amounts
    is_complete: bool = True

    @property
    def began(self) -> int:
        """The tick at which the first of the GETs began."""
        return min(answer.began for answer in self.answers)

    @property
    def is_truncated(self) -> bool:
        """Whether a limit may have hidden candidates."""
        return any(answer.is_truncated for answer in self.answers)

    @property
    def n_open(self) -> int:
        """The number of candidates that may be claimed."""
        return int(np.count_nonzero(self.is_open))

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since; 0 where there is no inventory."""
        free = self.candidates.free(provider_uuid, resource_class)
        return free - self.claimed.get((provider_uuid, resource_class), 0)

    def has_more_than(self, earlier: Offer) -> bool:
        """Return whether it has a candidate that `earlier` did not offer."""
        if self.answers != earlier.answers:
            return self.n_open > 0
        return bool((self.is_open & ~earlier.is_open).any())

    def followed_by(self, other: Offer) -> Offer:
        """Return these candidates, then those of a second answer.

        For a host that is in both, these come first. The joined answer is cached.
        """
        joined = self.candidates.derived.get(
            ("followed by", other.candidates),
            lambda: self.candidates.followed_by(other.candidates),
        )
        is_open = np.concatenate([self.is_open, other.is_open])
        is_open.flags.writeable = False
        # For a provider in both, usage is the second answer's.
        theirs = other.candidates.provider_summaries
        mine = {key: n for key, n in self.claimed.items() if key[0] not in theirs}
        return Offer(
            self.answers + other.answers,
            joined,
            is_open,
            {**mine, **other.claimed},
            self.is_complete and other.is_complete,
        )

    def locate(self, index: int) -> tuple[CandidatesAnswer, int]:
        """Return the answer that a candidate belongs to, and its index there."""
        number = index
        for answer in self.answers if index >= 0 else ():
            if number < answer.candidates.n_requests:
                return answer, number
            number -= answer.candidates.n_requests
        raise IndexError(
            f"candidate {index} of an offer that has {len(self.is_open)} candidates"
        )
