# SPDX-License-Identifier: Apache-2.0
"""An answer of Placement to a query, indexed by host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .derived import DerivedData
from .query import CandidatesQuery

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
