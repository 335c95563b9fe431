# SPDX-License-Identifier: Apache-2.0
"""Placement's allocation candidates for one query, indexed by host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from .errors import PlacementUnavailable

#: One allocation request as Placement wrote it. It is opaque and sent back unchanged.
AllocationRequest = Mapping[str, Any]

_T = TypeVar("_T")

#: One for the host table's present layout, one for the previous one, and two to spare.
_MAX_DERIVED: Final = 4


class DerivedData:
    """A small cache of data that readers derive from one immutable answer."""

    def __init__(self) -> None:
        self._made: dict[Hashable, object] = {}
        self._lock = threading.RLock()  # `make` may itself derive something

    def get(self, token: Hashable, make: Callable[[], _T]) -> _T:
        """Return the data for `token`; call `make` if it is not cached.

        `make` is called once; other threads wait for it. The oldest entry is evicted.
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
    """The answer to one GET /allocation_candidates.

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
        The query's limit on the number of requests.
    version : str
        The microversion that the requests were written in, and are claimed with.
    derived : DerivedData
        What readers derived from it, by tokens such as "the rows of table layout 7".
    """

    allocation_requests: Sequence[AllocationRequest]
    provider_summaries: Mapping[str, Mapping[str, Any]]
    roots: tuple[tuple[str, ...], ...]
    by_host: Mapping[str, tuple[int, ...]]
    limit: int | None
    version: str
    derived: DerivedData = field(default_factory=DerivedData, repr=False)

    @classmethod
    def parse(
        cls, body: object, *, limit: int | None, version: str
    ) -> AllocationCandidates:
        """Index an answer's decoded body; nothing of it is copied.

        Raises
        ------
        PlacementUnavailable
            The body does not have the shape of Placement's answers.
        """
        requests, summaries = _parts(body)
        roots = _roots(requests, summaries)
        return cls(requests, summaries, roots, _index(roots), limit, version)

    @property
    def n_requests(self) -> int:
        """The number of allocation requests."""
        return len(self.allocation_requests)

    @property
    def is_truncated(self) -> bool:
        """Whether Placement may have more candidates than the limit."""
        return self.limit is not None and self.n_requests >= self.limit

    def followed_by(self, other: AllocationCandidates) -> AllocationCandidates:
        """Return these candidates, then those of a second answer.

        For a host that is in both, these come first.
        """
        if not other.n_requests:
            return self  # nearly always: all current hosts report PCPU
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
        """Return capacity - used in the class's unit; 0 where there is no inventory."""
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
    raise _malformed_answer("it has no allocation_requests and provider_summaries")


def _roots(
    requests: list[AllocationRequest], summaries: dict[str, dict[str, Any]]
) -> tuple[tuple[str, ...], ...]:
    try:
        root_of = {u: s["root_provider_uuid"] for u, s in summaries.items()}
        return tuple(_roots_of(request, root_of) for request in requests)
    except (KeyError, TypeError, AttributeError) as e:
        raise _malformed_answer(f"{type(e).__name__}: {e}") from e


def _roots_of(request: AllocationRequest, root_of: dict[str, str]) -> tuple[str, ...]:
    allocations = request["allocations"]
    for part in allocations.values():
        part["resources"].keys()  # an AttributeError here means a malformed answer
    if len(allocations) == 1:  # nearly every request
        return (root_of[next(iter(allocations))],)
    return tuple(dict.fromkeys(root_of[uuid] for uuid in allocations))


def _index(roots: tuple[tuple[str, ...], ...]) -> dict[str, tuple[int, ...]]:
    by_host: dict[str, list[int]] = {}
    for i, of_request in enumerate(roots):
        for root in of_request:
            by_host.setdefault(root, []).append(i)
    return {root: tuple(indices) for root, indices in by_host.items()}


def _malformed_answer(why: str) -> PlacementUnavailable:
    return PlacementUnavailable(
        "The answer to GET /allocation_candidates is not Placement's: "
        f"{why}. Check that [placement] endpoint_override or the catalog's endpoint "
        "is Placement's own."
    )
