# SPDX-License-Identifier: Apache-2.0
"""What Placement answered to "where would this fit?", indexed by host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ..errors import PlacementUnavailable

#: One allocation request as Placement wrote it. It is opaque: it goes back as it came.
AllocationRequest = Mapping[str, Any]

_T = TypeVar("_T")

#: One for the table's layout of now, one for that of a moment ago, and as many spare.
_MAX_DERIVED: Final = 4


class DerivedCache:
    """Keep what readers made of one answer, which never changes: a few things."""

    def __init__(self) -> None:
        self._made: dict[Hashable, object] = {}
        self._lock = threading.RLock()  # what is made may be made of something derived

    def get(self, token: Hashable, make: Callable[[], _T]) -> _T:
        """Return what was made for `token`, made now where it is not kept.

        It is made once; who asks meanwhile waits. The oldest goes where there are many.
        """
        try:
            return self._made[token]  # type: ignore[return-value] # made for this token
        except KeyError:
            pass
        with self._lock:
            if token not in self._made:
                made = make()
                while len(self._made) >= _MAX_DERIVED:
                    del self._made[next(iter(self._made))]
                self._made[token] = made
            return self._made[token]  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, eq=False)
class AllocationCandidates:
    """Hold the answer to one GET /allocation_candidates.

    Attributes
    ----------
    allocation_requests : sequence of mapping, length n_requests
        In Placement's order, the very objects that were parsed from the answer.
    provider_summaries : mapping
        Provider UUID to Placement's summary, for every provider of each tree involved.
    roots : tuple of tuple of str, length n_requests
        For each request, the roots of the trees that it allocates from. A sharing
        provider is a root too: only the caller knows which roots are hosts.
    by_host : mapping
        Root provider UUID to the indices of its requests, in Placement's order.
    limit : int or None
        How many requests were asked for at most.
    version : str
        The microversion that the requests were written in, and are claimed with.
    derived : DerivedCache
        What readers made of it, by a token of theirs: "the rows of table layout 7".
    """

    allocation_requests: Sequence[AllocationRequest]
    provider_summaries: Mapping[str, Mapping[str, Any]]
    roots: tuple[tuple[str, ...], ...]
    by_host: Mapping[str, tuple[int, ...]]
    limit: int | None
    version: str
    derived: DerivedCache = field(default_factory=DerivedCache, repr=False)

    @classmethod
    def parse(
        cls, body: object, *, limit: int | None, version: str
    ) -> AllocationCandidates:
        """Index an answer's decoded body; nothing of it is copied.

        Raises
        ------
        PlacementUnavailable
            The body has not the shape of an answer of Placement.
        """
        requests, summaries = _parts(body)
        roots = _roots(requests, summaries)
        return cls(requests, summaries, roots, _index(roots), limit, version)

    @property
    def n_requests(self) -> int:
        """Count the allocation requests."""
        return len(self.allocation_requests)

    @property
    def is_truncated(self) -> bool:
        """Tell whether Placement may have had more than the limit let through."""
        return self.limit is not None and self.n_requests >= self.limit

    def followed_by(self, other: AllocationCandidates) -> AllocationCandidates:
        """Return these candidates, then those of a second answer.

        A host that is in both has these first.
        """
        if not other.n_requests:
            return self  # nearly always: all hosts of today report PCPU
        roots = self.roots + other.roots
        return AllocationCandidates(
            allocation_requests=[*self.allocation_requests, *other.allocation_requests],
            provider_summaries={**self.provider_summaries, **other.provider_summaries},
            roots=roots,
            by_host=_index(roots),
            limit=None,
            version=self.version,
        )

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used, in the class's own unit; 0 where there is none."""
        summary = self.provider_summaries.get(provider_uuid, {})
        resource = summary.get("resources", {}).get(resource_class)
        return int(resource["capacity"] - resource["used"]) if resource else 0

    def resources_of(self, index: int) -> dict[str, Mapping[str, int]]:
        """Return {provider UUID: {resource class: amount}} of one request."""
        allocations = self.allocation_requests[index]["allocations"]
        return {uuid: part["resources"] for uuid, part in allocations.items()}


def _parts(body: object) -> tuple[list[AllocationRequest], dict[str, dict[str, Any]]]:
    match body:
        case {
            "allocation_requests": list() as requests,
            "provider_summaries": dict() as summaries,
        }:
            return requests, summaries
    raise _garbage("no allocation_requests and provider_summaries in it")


def _roots(
    requests: list[AllocationRequest], summaries: dict[str, dict[str, Any]]
) -> tuple[tuple[str, ...], ...]:
    try:
        root_of = {u: s["root_provider_uuid"] for u, s in summaries.items()}
        return tuple(_roots_of(request, root_of) for request in requests)
    except (KeyError, TypeError, AttributeError) as e:
        raise _garbage(f"{type(e).__name__}: {e}") from e


def _roots_of(request: AllocationRequest, root_of: dict[str, str]) -> tuple[str, ...]:
    allocations = request["allocations"]
    for part in allocations.values():
        part["resources"].keys()  # an AttributeError here is told as garbage
    if len(allocations) == 1:  # nearly every request
        return (root_of[next(iter(allocations))],)
    return tuple(dict.fromkeys(root_of[uuid] for uuid in allocations))


def _index(roots: tuple[tuple[str, ...], ...]) -> dict[str, tuple[int, ...]]:
    by_host: dict[str, list[int]] = {}
    for i, of_request in enumerate(roots):
        for root in of_request:
            by_host.setdefault(root, []).append(i)
    return {root: tuple(indices) for root, indices in by_host.items()}


def _garbage(why: str) -> PlacementUnavailable:
    return PlacementUnavailable(
        "The answer to GET /allocation_candidates is not Placement's: "
        f"{why}. Check that [placement] endpoint_override or the catalog's endpoint "
        "is Placement's own."
    )
