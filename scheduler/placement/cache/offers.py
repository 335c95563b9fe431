# SPDX-License-Identifier: Apache-2.0
"""One answer of Placement, less the claims and refusals since its GET began.

    CachedAnswer ── offer() ──▶ Offer      an immutable snapshot for one decision
      ▲
      └── count_claim, release, exclude   (under the cache's lock)

An `Offer` shares the answer and the data derived from it; only its mask is its own.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ...candidates import AllocationCandidates, AllocationRequest
from ..query import CandidatesQuery

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

#: {(provider UUID, resource class): amount}
Amounts = Mapping[tuple[str, str], int]

#: {resource class: [(amount, the candidates that request it from one provider)]}
_Demand = Mapping[str, list[tuple[int, Indices]]]

#: For a provider that more candidates use, such as shared storage, the candidates are
#: indexed in advance, so that the first claim need not scan them: 8 ms for 10,000.
_INDEX_THRESHOLD: Final = 100


@dataclass(slots=True, eq=False)
class CountedClaim:
    """What one claim allocated from providers.

    Attributes
    ----------
    amounts : mapping
        {(provider UUID, resource class): amount}.
    began, ended : int
        Ticks: before it was sent, and after Placement had granted it.
    is_released : bool
    """

    amounts: Amounts
    began: int
    ended: int
    is_released: bool = False


def amounts_of(requests: Iterable[AllocationRequest]) -> Counter[tuple[str, str]]:
    """Return the sums of what allocation requests contain."""
    amounts: Counter[tuple[str, str]] = Counter()
    for request in requests:
        for provider, part in request["allocations"].items():
            for name, amount in part["resources"].items():
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
        """Exclude one candidate for good."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """The candidates that one decision may choose from: a snapshot.

    Attributes
    ----------
    candidates : AllocationCandidates
        Placement's answer, shared with other offers and never changed.
    is_open : ndarray of bool, shape (n_requests,), read-only
        False: claimed by another request since, or refused.
    began : int
        The tick at which the GET began.
    is_truncated : bool
        Whether the limit may have hidden candidates.
    is_complete : bool
        False: a claim that Placement may already include is counted here as well, so
        that fewer candidates may be open than fit.
    """

    candidates: AllocationCandidates
    is_open: Mask
    began: int
    is_truncated: bool
    _claimed: Amounts
    _answers: tuple[CachedAnswer, ...]
    is_complete: bool = True

    @property
    def n_open(self) -> int:
        """The number of candidates that may be claimed."""
        return int(np.count_nonzero(self.is_open))

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since; 0 where there is no inventory."""
        free = self.candidates.free(provider_uuid, resource_class)
        return free - self._claimed.get((provider_uuid, resource_class), 0)

    def has_more_than(self, earlier: Offer) -> bool:
        """Return whether it has a candidate that `earlier` did not offer."""
        if self._answers != earlier._answers:
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
        mine = {key: n for key, n in self._claimed.items() if key[0] not in theirs}
        return Offer(
            joined,
            is_open,
            min(self.began, other.began),
            self.is_truncated or other.is_truncated,
            {**mine, **other._claimed},
            self._answers + other._answers,
            self.is_complete and other.is_complete,
        )

    def answers(self) -> tuple[CachedAnswer, ...]:
        """Return the answers that are joined here, in order."""
        return self._answers

    def locate(self, index: int) -> tuple[CachedAnswer, int]:
        """Return the answer that a candidate belongs to, and its index there."""
        number = index
        for answer in self._answers if index >= 0 else ():
            if number < answer.candidates.n_requests:
                return answer, number
            number -= answer.candidates.n_requests
        raise IndexError(
            f"candidate {index} of an offer that has {len(self.is_open)} candidates"
        )


@dataclass(slots=True, eq=False)
class CachedAnswer:
    """One answer of Placement and its account. The cache holds a lock around changes.

    Attributes
    ----------
    query : CandidatesQuery
    candidates : AllocationCandidates
    account : Account
        A new one for these candidates.
    began, received : int
        Ticks: before the GET was sent, and after its answer had arrived.
    received_at : float
        The arrival on the cache's clock, seconds.
    took_s : float
        How long Placement took.
    is_refreshing : bool
        Whether a refresh was started, even if it failed.
    """

    query: CandidatesQuery
    candidates: AllocationCandidates
    account: Account
    began: int
    received: int
    received_at: float
    took_s: float
    is_refreshing: bool = False
    _overlapping: list[CountedClaim] = field(init=False, default_factory=list)
    _offer: Offer | None = field(init=False, default=None)

    @property
    def began_at(self) -> float:
        """When the GET began, on the cache's clock, seconds."""
        return self.received_at - self.took_s

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
        if claim.ended < self.began:
            return  # the answer included it
        self.account.count(claim.amounts, sign=-1)
        if claim in self._overlapping:
            self._overlapping.remove(claim)
        self._offer = None

    def exclude(self, index: int) -> None:
        """Exclude a candidate that Placement refused."""
        self.account.exclude(index)
        self._offer = None

    def offer(self) -> Offer:
        """Return what is left if every claim counts that the answer may lack."""
        if self._offer is None:
            is_complete = not self._overlapping
            self._offer = self._make_offer(self.account, is_complete=is_complete)
        return self._offer

    def complete_offer(self) -> Offer:
        """Return what may be left: less only the claims that the answer must lack."""
        if not self._overlapping:
            return self.offer()
        return self._make_offer(
            self.account.without(self._overlapping), is_complete=True
        )

    def _make_offer(self, account: Account, *, is_complete: bool) -> Offer:
        return Offer(
            self.candidates,
            account.is_open(),
            self.began,
            self.candidates.is_truncated,
            dict(account.claimed),
            (self,),
            is_complete,
        )
