# SPDX-License-Identifier: Apache-2.0
"""One answer of Placement, less the claims and refusals since its GET began.

    CachedAnswer ── offer() ──▶ CachedOffer   an immutable snapshot for one decision
      ▲
      └── count_claim, release, exclude   (under the cache's lock)

A `CachedOffer` shares the answer and what is derived from it; its mask is its own.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ...candidates import (
    AllocationCandidates,
    AllocationRequest,
    Amounts,
    CandidatesAnswer,
    Mask,
    resources_of,
)
from ..candidates_source import CountedClaim
from .cached_offer import CachedOffer

#: {resource class: [(amount, the candidates that request it from one provider)]}
_Demand = Mapping[str, list[tuple[int, npt.NDArray[np.intp]]]]

#: For a provider that more candidates use, such as shared storage, the candidates are
#: indexed in advance, so that the first claim need not scan them: 8 ms for 10,000.
_INDEX_THRESHOLD: Final = 100


def amounts_of(requests: Iterable[AllocationRequest]) -> Counter[tuple[str, str]]:
    """Return the sums of what allocation requests contain."""
    amounts: Counter[tuple[str, str]] = Counter()
    for request in requests:
        for provider, resources in resources_of(request).items():
            for name, amount in resources.items():
                amounts[provider, name] += amount
    return amounts


class Account:
    """Count claims and refusals against one answer.

    Attributes
    ----------
    claimed : dict
        {(provider UUID, resource class): amount} of the claims that are counted.
    """

    def __init__(self, candidates: AllocationCandidates) -> None:
        self.claimed: dict[tuple[str, str], int] = {}
        self._candidates = candidates
        #: Per candidate: its refusals plus its amounts that no longer fit.
        self._n_obstacles = np.zeros(candidates.n_requests, np.int32)
        self._demand: dict[str, _Demand] = {}
        for root, indices in candidates.by_host.items():
            if len(indices) > _INDEX_THRESHOLD:
                self._demand_on(root)

    def is_open(self) -> Mask:
        """Return which candidates still fit; bool, shape (n_requests,), read-only."""
        is_open: Mask = self._n_obstacles == 0
        is_open.flags.writeable = False
        return is_open

    def count(self, amounts: Amounts, *, sign: int = 1) -> None:
        """Subtract amounts from their providers, or with `sign` -1 add them back."""
        for (provider, name), amount in amounts.items():
            if provider in self._candidates.provider_summaries:
                self._adjust(provider, name, sign * amount)

    def exclude(self, index: int) -> None:
        """Exclude one candidate permanently."""
        self._n_obstacles[index] += 1

    def without(self, claims: Iterable[CountedClaim]) -> Account:
        """Return a copy that does not count these claims."""
        other = copy.copy(self)  # `_demand` stays shared: it only grows
        other.claimed = dict(self.claimed)
        other._n_obstacles = self._n_obstacles.copy()  # noqa: SLF001 - it is our copy
        for claim in claims:
            other.count(claim.amounts, sign=-1)
        return other

    def _adjust(self, provider: str, name: str, amount: int) -> None:
        key = provider, name
        before = self._candidates.free(*key) - self.claimed.get(key, 0)
        after = before - amount
        self.claimed[key] = self.claimed.get(key, 0) + amount
        for wanted, indices in self._demand_on(provider).get(name, ()):
            change = int(wanted > after) - int(wanted > before)
            if change:
                self._n_obstacles[indices] += change

    def _demand_on(self, provider: str) -> _Demand:
        if provider not in self._demand:
            self._demand[provider] = _demand(self._candidates, provider)
        return self._demand[provider]


def _demand(candidates: AllocationCandidates, provider: str) -> _Demand:
    root = candidates.provider_summaries[provider]["root_provider_uuid"]
    found: dict[str, dict[int, list[int]]] = {}
    for index in candidates.by_host.get(root, ()):
        part = candidates.allocation_requests[index]["allocations"].get(provider)
        for name, amount in part["resources"].items() if part else ():
            found.setdefault(name, {}).setdefault(amount, []).append(index)
    return {
        name: [(amount, np.array(i, np.intp)) for amount, i in by_amount.items()]
        for name, by_amount in found.items()
    }


@dataclass(slots=True, eq=False)
class CachedAnswer:
    """One answer of Placement and its account. The cache holds a lock around changes.

    Attributes
    ----------
    account : Account
        A new one for the answer's candidates.
    received : int
        The tick after the answer had arrived.
    refresh_at : float
        When a lookup starts a refresh, seconds of the cache's clock; infinite once one
        was started, even if it failed.
    """

    answer: CandidatesAnswer
    account: Account
    received: int
    refresh_at: float
    _overlapping: list[CountedClaim] = field(init=False, default_factory=list)
    _offer: CachedOffer | None = field(init=False, default=None)

    def count_claim(self, claim: CountedClaim) -> None:
        """Subtract a claim that ended after the GET began.

        If the two overlapped, Placement's answer may already include it.
        """
        self.account.count(claim.amounts)
        if claim.began < self.received:
            self._overlapping.append(claim)
        self._offer = None

    def release(self, claim: CountedClaim) -> None:
        """Add a released claim's amounts back, if it was counted."""
        if claim.ended < self.answer.began:
            return  # the answer included it
        self.account.count(claim.amounts, sign=-1)
        if claim in self._overlapping:
            self._overlapping.remove(claim)
        self._offer = None

    def exclude(self, index: int) -> None:
        """Exclude a candidate that Placement refused."""
        self.account.exclude(index)
        self._offer = None

    def offer(self) -> CachedOffer:
        """Return what is left if every claim counts that the answer may lack."""
        if self._offer is None:
            is_complete = not self._overlapping
            self._offer = self._make_offer(self.account, is_complete=is_complete)
        return self._offer

    def complete_offer(self) -> CachedOffer:
        """Return what may be left: less only the claims that the answer must lack."""
        if not self._overlapping:
            return self.offer()
        return self._make_offer(
            self.account.without(self._overlapping), is_complete=True
        )

    def _make_offer(self, account: Account, *, is_complete: bool) -> CachedOffer:
        return CachedOffer(
            self.answer,
            self.answer.query,
            account.is_open(),
            dict(account.claimed),
            is_complete,
        )
