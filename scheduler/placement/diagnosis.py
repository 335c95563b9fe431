# SPDX-License-Identifier: Apache-2.0
"""Why Placement has no allocation candidates: which constraint leaves no host.

The whole query is sent once more, then each of its constraints alone, one GET each.
The hosts that constraints leave together are computed from those that each one leaves.
This is exact for a host that is one provider; for a host with nested or sharing
providers the result may contain more hosts than Placement would return, never fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import os_traits

from ..candidates import MICROVERSION, AllocationCandidates, CandidatesQuery
from ..errors import PlacementRejected, PlacementUnavailable
from .client import PlacementClient
from .constraints import MAX_CANDIDATES, Constraint, constraints
from .findings import Cause, ConstraintFinding, Diagnosis

#: Most constraints that are queried; with 10,000 hosts each may take Placement 1 s.
MAX_CONSTRAINTS: Final = 24

_ALL = "/resource_providers"
_SHARING = f"{_ALL}?required={os_traits.MISC_SHARES_VIA_AGGREGATE}"


@dataclass(frozen=True, slots=True)
class _Matched:
    """The trees that one constraint alone leaves.

    Attributes
    ----------
    roots : frozenset of str
        Root providers of the trees, including sharing providers.
    """

    constraint: Constraint
    roots: frozenset[str]
    is_truncated: bool = False


@dataclass(frozen=True, slots=True)
class _HostCount:
    """The hosts that one constraint leaves; `are_all` if there can be no others."""

    finding: ConstraintFinding
    hosts: frozenset[str]
    are_all: bool


def diagnose(
    client: PlacementClient,
    query: CandidatesQuery,
    *,
    is_host: Callable[[str], bool] | None = None,
    global_request_id: str | None = None,
) -> Diagnosis:
    """Return why Placement has no allocation candidates for a query.

    It takes a GET for the query, one per constraint up to `MAX_CONSTRAINTS`, and at
    most one more, for sharing providers or for whether there are providers at all.

    Parameters
    ----------
    is_host : callable, optional
        Returns whether a root provider's UUID is a host's; None: each root that does
        not share is one.

    Raises
    ------
    PlacementError
        Placement could not be queried.
    """
    queries = _Queries(client, global_request_id)
    try:
        if queries.has_candidates(query):
            return Diagnosis(Cause.NONE)
    except PlacementRejected as e:
        return Diagnosis(Cause.REFUSED, refusal=e.detail or str(e))
    all_constraints = constraints(query.params)
    matched = [
        queries.match(constraint) for constraint in all_constraints[:MAX_CONSTRAINTS]
    ]
    sharing: set[str] = set()
    if any(each.roots for each in matched):
        # Even if each root is a host: a host may share its disk.
        sharing = {uuid for uuid, _ in queries.list_providers(_SHARING)}
    elif not queries.list_providers(_ALL):
        return Diagnosis(Cause.EMPTY)
    counted = [_count_hosts(each, sharing, is_host) for each in matched]
    return _conclude(counted, n_not_queried=len(all_constraints) - len(matched))


@dataclass(frozen=True, slots=True)
class _Queries:
    """Placement queries on behalf of one request."""

    client: PlacementClient
    global_request_id: str | None

    def has_candidates(self, query: CandidatesQuery) -> bool:
        """Return whether the query has candidates; one is enough to know."""
        params = [param for param in query.params if param[0] != "limit"]
        one = CandidatesQuery((("limit", "1"), *params), 1)
        return bool(self._candidates(one).n_requests)

    def match(self, constraint: Constraint) -> _Matched:
        """Return the trees that a constraint leaves."""
        if constraint.needs_candidates:
            answer = self._candidates(constraint.query)
            is_truncated = answer.n_requests >= MAX_CANDIDATES
            return _Matched(constraint, frozenset(answer.by_host), is_truncated)
        pairs = self.list_providers(constraint.path, constraint.query.microversion)
        must_match_root = constraint.must_match_root
        roots = {root for uuid, root in pairs if uuid == root or not must_match_root}
        return _Matched(constraint, frozenset(roots))

    def list_providers(
        self, url: str, microversion: str = MICROVERSION
    ) -> list[tuple[str, str]]:
        """Return the UUIDs of the providers at a URL and of their roots."""
        body: Any = self.client.read(
            url,
            microversion=microversion,
            global_request_id=self.global_request_id,
        )
        try:
            providers = body["resource_providers"]
            return [(p["uuid"], p["root_provider_uuid"]) for p in providers]
        except (KeyError, TypeError) as e:
            raise PlacementUnavailable(
                f"GET {url} returned no resource providers: {type(e).__name__}: {e}"
            ) from e

    def _candidates(self, query: CandidatesQuery) -> AllocationCandidates:
        return self.client.allocation_candidates(
            query, global_request_id=self.global_request_id
        )


def _count_hosts(
    matched: _Matched, sharing: set[str], is_host: Callable[[str], bool] | None
) -> _HostCount:
    """Separate hosts from sharing providers and from unknown roots, and count them."""
    own = matched.roots - sharing if is_host is None else matched.roots
    hosts = frozenset(root for root in own if is_host is None or is_host(root))
    is_shared = matched.constraint.is_shareable and bool(matched.roots & sharing)
    finding = ConstraintFinding(
        matched.constraint.kind,
        matched.constraint.description,
        n_hosts=len(hosts),
        n_unknown=len(own - hosts - sharing),
        is_shared=is_shared,
        is_truncated=matched.is_truncated,
    )
    return _HostCount(
        finding, hosts, are_all=not is_shared and not matched.is_truncated
    )


def _conclude(counted: Sequence[_HostCount], *, n_not_queried: int) -> Diagnosis:
    known = [each for each in counted if each.are_all]
    n_met = Counter(host for each in known for host in each.hosts)
    cause, culprits = _find_cause(known, n_met)
    n_others = {id(each): _n_without(each, known, n_met) for each in counted}
    findings = {
        id(each): replace(each.finding, n_hosts_without=n_others[id(each)])
        for each in counted
    }
    n_together = sum(n == len(known) for n in n_met.values()) if known else None
    return Diagnosis(
        cause,
        tuple(findings.values()),
        tuple(findings[id(each)] for each in culprits),
        n_together=n_together if cause is Cause.PROVIDERS else None,
        n_not_queried=n_not_queried,
    )


def _find_cause(
    known: Sequence[_HostCount], n_met: Counter[str]
) -> tuple[Cause, Sequence[_HostCount]]:
    """Return the cause and the culprits; `n_met`: constraints met by each host."""
    if alone := [each for each in known if not each.hosts]:
        return Cause.ALONE, alone
    if known and max(n_met.values()) < len(known):
        return Cause.TOGETHER, _conflict(known)
    return Cause.PROVIDERS, ()


def _n_without(
    left_out: _HostCount, known: Sequence[_HostCount], n_met: Counter[str]
) -> int | None:
    """Return how many hosts meet all others; None if there are no others."""
    mine = left_out.hosts if left_out.are_all else frozenset()
    n_others = len(known) - left_out.are_all
    if not n_others:
        return None
    return sum(n - (host in mine) == n_others for host, n in n_met.items())


def _conflict(known: Sequence[_HostCount]) -> list[_HostCount]:
    """Return a minimal set of constraints that no host meets together."""
    conflict = list(known)
    for each in sorted(known, key=lambda each: -len(each.hosts)):
        rest = [other for other in conflict if other is not each]
        if not frozenset.intersection(*(other.hosts for other in rest)):
            conflict = rest
    return conflict
