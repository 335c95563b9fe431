# SPDX-License-Identifier: Apache-2.0
"""An answer of Placement to a query, indexed by host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from cachetools import LRUCache

from .query import CandidatesQuery

_T = TypeVar("_T")

#: For the present state of the hosts and the previous one: rows, mappings, and codes.
_MAX_DERIVED: Final = 6


class DerivedData:
    """A small cache of data that readers derive."""

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


#: One allocation request as Placement wrote it. It is opaque and sent back unchanged.
AllocationRequest = Mapping[str, Any]
#: {(provider UUID, resource class): amount}
Amounts = Mapping[tuple[str, str], int]


def resources_of(request: AllocationRequest) -> dict[str, Mapping[str, int]]:
    """Return {provider UUID: {resource class: amount}} of an allocation request."""
    allocations = request["allocations"]
    return {uuid: part["resources"] for uuid, part in allocations.items()}


@dataclass(frozen=True, slots=True, eq=False)
class AllocationCandidates:
    """The candidates of one answer of Placement.

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

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used in the class's unit; 0 where there is no inventory."""
        summary = self.provider_summaries.get(provider_uuid, {})
        resource = summary.get("resources", {}).get(resource_class)
        return int(resource["capacity"] - resource["used"]) if resource else 0


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
