# SPDX-License-Identifier: Apache-2.0
"""A query for allocation candidates, and Placement's answer, indexed by host."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from cachetools import LRUCache

#: The microversion of nova 34. Since 1.38 a claim must name a consumer type.
MICROVERSION: Final = "1.36"
#: The first microversion with any-of traits; older ones refuse ``in:``.
ANY_OF_MICROVERSION: Final = "1.39"

#: A parameter of a port's or device's group, whose suffix has a UUID of the request.
_UNIQUE_PARAM: Final = re.compile(
    r"(resources|required|member_of|in_tree)"
    r"([\w-]*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[\w-]*)"
)
#: The same in a canonical query; its length is at least that of a UUID.
_CANONICAL_SUFFIX: Final = "00000000-0000-0000-0000-{:012d}"


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
        return _path(self.params)

    def canonical(self) -> tuple[CandidatesQuery, Mapping[str, str]]:
        """Return the same query with stable suffixes, and {suffix there: suffix here}.

        The suffix of a port or device is new in each request; without it, requests of
        one flavor share an answer. Numbered by content, equal groups by suffix.
        """
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, value in self.params:
            if match := _UNIQUE_PARAM.fullmatch(name):
                groups.setdefault(match[2], []).append((match[1], value))
        if not groups:
            return self, {}
        order = sorted(groups, key=lambda suffix: (groups[suffix], suffix))
        renamed = {s: _CANONICAL_SUFFIX.format(n) for n, s in enumerate(order)}
        params = [
            (kind + renamed[suffix], value)
            for suffix, group in groups.items()
            for kind, value in group
        ]
        for name, value in self.params:
            if name == "same_subtree":
                suffixes = [renamed.get(s, s) for s in value.split(",")]
                params.append((name, ",".join(sorted(suffixes))))
            elif not _UNIQUE_PARAM.fullmatch(name):
                params.append((name, value))
        query = CandidatesQuery(tuple(sorted(params)), self.limit)
        return query, {new: old for old, new in renamed.items()}

    def unlimited(self) -> CandidatesQuery:
        """Return the same query without a limit."""
        return CandidatesQuery(tuple(p for p in self.params if p[0] != "limit"))


# Encoding takes longer than all else that a cached answer needs.
@functools.lru_cache(maxsize=1024)
def _path(params: tuple[tuple[str, str], ...]) -> str:
    return f"/allocation_candidates?{urlencode(params)}"


_T = TypeVar("_T")

#: For the present state of the hosts and the previous one: rows, mappings, and codes.
_MAX_DERIVED: Final = 6


class DerivedData:
    """A small cache of data that readers derive."""

    def __init__(self) -> None:
        self._data: LRUCache[Hashable, Any] = LRUCache(_MAX_DERIVED)
        self._lock = threading.RLock()  # `make` may itself derive something

    def get(self, token: Hashable, make: Callable[[], _T]) -> _T:
        """Return the data for `token`; call `make` once if it is not cached."""
        with self._lock:
            if token not in self._data:
                self._data[token] = make()
            data: _T = self._data[token]
            return data


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
    is_truncated : bool
        Whether Placement may have more candidates than the query's limit.
    """

    query: CandidatesQuery
    candidates: AllocationCandidates
    began: int
    began_at: float
    is_truncated: bool = field(init=False)

    def __post_init__(self) -> None:
        limit = self.query.limit
        is_truncated = limit is not None and self.candidates.n_requests >= limit
        object.__setattr__(self, "is_truncated", is_truncated)
