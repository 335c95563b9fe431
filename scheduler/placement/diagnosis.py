# SPDX-License-Identifier: Apache-2.0
"""Why Placement has no allocation candidates: which constraint leaves no host.

The whole question is asked once more, then each of its constraints alone, one GET each.
What constraints leave together is reckoned here from the hosts that each one leaves:
exact where a host is one provider; where it has several below or beside it, more hosts
may be left so than Placement would give, never fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import os_traits

from ..errors import PlacementRejected, PlacementUnavailable
from .candidates import AllocationCandidates
from .client import MICROVERSION, PlacementClient
from .constraints import Constraint, constraints
from .findings import Cause, ConstraintFinding, Diagnosis
from .query import CandidatesQuery

#: Constraints that are asked at most; of 10,000 hosts, each one may take Placement 1 s.
MAX_CONSTRAINTS: Final = 24

_ALL = "/resource_providers"
_SHARING = f"{_ALL}?required={os_traits.MISC_SHARES_VIA_AGGREGATE}"


@dataclass(frozen=True, slots=True)
class _Matched:
    """What one constraint alone leaves.

    Attributes
    ----------
    roots : frozenset of str
        Root providers of the trees, those of sharing providers too.
    """

    constraint: Constraint
    roots: frozenset[str]
    is_truncated: bool = False


@dataclass(frozen=True, slots=True)
class _Counted:
    """The hosts of one constraint; `are_all` where there can be no others."""

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
    """Return why Placement has no allocation candidates for a question.

    It takes a GET for the question, one a constraint up to `MAX_CONSTRAINTS`, and at
    most one more, for sharing providers or for whether there are providers at all.

    Parameters
    ----------
    is_host : callable, optional
        Tells whether a root provider's UUID is a host's; None: each root is one that
        does not share.

    Raises
    ------
    PlacementError
        Placement could not be asked.
    """
    asker = _Asker(client, global_request_id)
    try:
        if asker.has_candidates(query):
            return Diagnosis(Cause.NONE)
    except PlacementRejected as e:
        return Diagnosis(Cause.REFUSED, refusal=e.detail or str(e))
    every = constraints(query.params)
    left = [asker.left(constraint) for constraint in every[:MAX_CONSTRAINTS]]
    sharing: set[str] = set()
    if any(each.roots for each in left):
        # Also where each root is a host: a host may share its disk.
        sharing = {uuid for uuid, _ in asker.listed(_SHARING)}
    elif not asker.listed(_ALL):
        return Diagnosis(Cause.EMPTY)
    counted = [_counted(each, sharing, is_host) for each in left]
    return _concluded(counted, n_not_asked=len(every) - len(left))


@dataclass(frozen=True, slots=True)
class _Asker:
    """Ask Placement, in the name of one request."""

    client: PlacementClient
    global_request_id: str | None

    def has_candidates(self, query: CandidatesQuery) -> bool:
        """Tell whether something fits: one candidate is enough to know."""
        params = [param for param in query.params if param[0] != "limit"]
        one = CandidatesQuery((("limit", "1"), *params), 1)
        return bool(self._candidates(one).n_requests)

    def left(self, constraint: Constraint) -> _Matched:
        """Return what a constraint leaves."""
        if constraint.is_of_groups:
            answer = self._candidates(constraint.query)
            return _Matched(constraint, frozenset(answer.by_host), answer.is_truncated)
        pairs = self.listed(constraint.path, constraint.query.microversion)
        is_of_root = constraint.is_of_root
        roots = {root for uuid, root in pairs if uuid == root or not is_of_root}
        return _Matched(constraint, frozenset(roots))

    def listed(
        self, url: str, microversion: str = MICROVERSION
    ) -> list[tuple[str, str]]:
        """Return the UUIDs of listed providers and of their roots."""
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
                f"GET {url} answered no resource providers: {type(e).__name__}: {e}"
            ) from e

    def _candidates(self, query: CandidatesQuery) -> AllocationCandidates:
        return self.client.allocation_candidates(
            query, global_request_id=self.global_request_id
        )


def _counted(
    left: _Matched, sharing: set[str], is_host: Callable[[str], bool] | None
) -> _Counted:
    """Tell hosts from sharing providers and from what is neither."""
    own = left.roots - sharing if is_host is None else left.roots
    hosts = frozenset(root for root in own if is_host is None or is_host(root))
    is_shared = left.constraint.is_shareable and bool(left.roots & sharing)
    finding = ConstraintFinding(
        left.constraint.kind,
        left.constraint.description,
        n_hosts=len(hosts),
        n_unknown=len(own - hosts - sharing),
        is_shared=is_shared,
        is_truncated=left.is_truncated,
    )
    return _Counted(finding, hosts, are_all=not is_shared and not left.is_truncated)


def _concluded(counted: Sequence[_Counted], *, n_not_asked: int) -> Diagnosis:
    known = [each for each in counted if each.are_all]
    n_met = Counter(host for each in known for host in each.hosts)
    cause, culprits = _blamed(known, n_met)
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
        n_not_asked=n_not_asked,
    )


def _blamed(
    known: Sequence[_Counted], n_met: Counter[str]
) -> tuple[Cause, Sequence[_Counted]]:
    """Return the cause and whose fault it is; `n_met`: constraints met by a host."""
    if alone := [each for each in known if not each.hosts]:
        return Cause.ALONE, alone
    if known and max(n_met.values()) < len(known):
        return Cause.TOGETHER, _conflict(known)
    return Cause.PROVIDERS, ()


def _n_without(
    left_out: _Counted, known: Sequence[_Counted], n_met: Counter[str]
) -> int | None:
    """Count the hosts that meet all others; None where there are no others."""
    mine = left_out.hosts if left_out.are_all else frozenset()
    n_others = len(known) - left_out.are_all
    if not n_others:
        return None
    return sum(n - (host in mine) == n_others for host, n in n_met.items())


def _conflict(known: Sequence[_Counted]) -> list[_Counted]:
    """Return constraints that no host meets together, none of them to be spared."""
    conflict = list(known)
    for each in sorted(known, key=lambda each: -len(each.hosts)):
        rest = [other for other in conflict if other is not each]
        if not frozenset.intersection(*(other.hosts for other in rest)):
            conflict = rest
    return conflict
