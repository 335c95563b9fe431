# SPDX-License-Identifier: Apache-2.0
"""One answer of Placement, less what was claimed and refused since it was asked.

    Answer ── offer() ──▶ Offer      what one decision reads; it never changes
      ▲
      └── claimed, given back, refused   (by whoever holds the lock)

An `Offer` shares the answer and all that was derived of it; of its own it has a mask.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from .candidates import AllocationCandidates, AllocationRequest
from .query import CandidatesQuery

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

#: {(provider UUID, resource class): amount}
Amounts = Mapping[tuple[str, str], int]

#: {resource class: [(amount, the candidates that ask one provider for it)]}
_Asking = Mapping[str, list[tuple[int, Indices]]]

#: Of a provider that more candidates use, such as shared storage, it is known from the
#: start which do, lest the first claim have to look: 8 ms for 10,000.
_MANY: Final = 100


@dataclass(slots=True, eq=False)
class Taken:
    """What one claim took of providers.

    Attributes
    ----------
    amounts : mapping
        {(provider UUID, resource class): amount}.
    began, ended : int
        Moments: before it was sent, and after Placement had granted it.
    is_given_back : bool
    """

    amounts: Amounts
    began: int
    ended: int
    is_given_back: bool = False


def amounts_of(requests: Iterable[AllocationRequest]) -> Counter[tuple[str, str]]:
    """Return what some allocation requests ask for together."""
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
    taken : dict
        {(provider UUID, resource class): amount} of the claims that are counted.
    """

    def __init__(self, candidates: AllocationCandidates) -> None:
        self.taken: dict[tuple[str, str], int] = {}
        self._candidates = candidates
        #: For each candidate: its refusals, and what it asks for and gets no more.
        self._obstacles = np.zeros(candidates.n_requests, np.int32)
        self._asking: dict[str, _Asking] = {}
        for root, indices in candidates.by_host.items():
            if len(indices) > _MANY:
                self._asking_of(root)

    def is_open(self) -> Mask:
        """Return which candidates still fit; bool, shape (n_requests,), read-only."""
        is_open: Mask = self._obstacles == 0
        is_open.flags.writeable = False
        return is_open

    def count(self, amounts: Amounts, *, sign: int = 1) -> None:
        """Take amounts of their providers, or with `sign` -1 give them back."""
        for (provider, name), amount in amounts.items():
            if provider in self._candidates.provider_summaries:
                self._move(provider, name, sign * amount)

    def refuse(self, index: int) -> None:
        """Leave one candidate out for good."""
        self._obstacles[index] += 1

    def without(self, claims: Iterable[Taken]) -> Account:
        """Return an account in which these claims are not counted."""
        other = copy.copy(self)  # `_asking` stays shared: it only grows
        other.taken = dict(self.taken)
        other._obstacles = self._obstacles.copy()  # noqa: SLF001 - it is our copy
        for taken in claims:
            other.count(taken.amounts, sign=-1)
        return other

    def _move(self, provider: str, name: str, amount: int) -> None:
        key = provider, name
        before = self._candidates.free(*key) - self.taken.get(key, 0)
        after = before - amount
        self.taken[key] = self.taken.get(key, 0) + amount
        for wanted, indices in self._asking_of(provider).get(name, ()):
            change = int(wanted > after) - int(wanted > before)
            if change:
                self._obstacles[indices] += change

    def _asking_of(self, provider: str) -> _Asking:
        if provider not in self._asking:
            self._asking[provider] = _asking(self._candidates, provider)
        return self._asking[provider]


def _asking(candidates: AllocationCandidates, provider: str) -> _Asking:
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
    """What one decision may choose from: a snapshot.

    Attributes
    ----------
    candidates : AllocationCandidates
        What Placement answered, shared with other offers and never changed.
    is_open : ndarray of bool, shape (n_requests,), read-only
        False: claimed by somebody else since, or refused.
    asked : int
        The moment at which Placement was asked.
    is_cut : bool
        Whether the limit may have hidden candidates.
    is_whole : bool
        False: a claim that Placement may have counted is counted here, too, so that
        less may be open than there is.
    """

    candidates: AllocationCandidates
    is_open: Mask
    asked: int
    is_cut: bool
    _taken: Amounts
    _answers: tuple[Answer, ...]
    is_whole: bool = True

    @property
    def n_open(self) -> int:
        """Count the candidates that may be tried."""
        return int(np.count_nonzero(self.is_open))

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since; 0 where there is none."""
        free = self.candidates.free(provider_uuid, resource_class)
        return free - self._taken.get((provider_uuid, resource_class), 0)

    def is_news_to(self, earlier: Offer) -> bool:
        """Tell whether there is a candidate here that `earlier` did not offer."""
        if self._answers != earlier._answers:
            return self.n_open > 0
        return bool((self.is_open & ~earlier.is_open).any())

    def followed_by(self, other: Offer) -> Offer:
        """Return these candidates, then those of a second answer.

        A host that is in both has these first. What was joined once is kept.
        """
        joined = self.candidates.derived.get(
            ("followed by", other.candidates),
            lambda: self.candidates.followed_by(other.candidates),
        )
        is_open = np.concatenate([self.is_open, other.is_open])
        is_open.flags.writeable = False
        # Of a provider in both, the second answer tells what is used.
        theirs = other.candidates.provider_summaries
        mine = {key: n for key, n in self._taken.items() if key[0] not in theirs}
        return Offer(
            joined,
            is_open,
            min(self.asked, other.asked),
            self.is_cut or other.is_cut,
            {**mine, **other._taken},
            self._answers + other._answers,
            self.is_whole and other.is_whole,
        )

    def parts(self) -> tuple[Answer, ...]:
        """Return the answers that are joined here, in order."""
        return self._answers

    def part_of(self, index: int) -> tuple[Answer, int]:
        """Return the answer that a candidate is of, and its number there."""
        number = index
        for answer in self._answers if index >= 0 else ():
            if number < answer.candidates.n_requests:
                return answer, number
            number -= answer.candidates.n_requests
        raise IndexError(
            f"candidate {index} of an offer that has {len(self.is_open)} candidates"
        )


@dataclass(slots=True, eq=False)
class Answer:
    """One answer of Placement and its account. Its keeper holds a lock around changes.

    Attributes
    ----------
    query : CandidatesQuery
    candidates : AllocationCandidates
    account : Account
        A new one of these candidates.
    asked, came : int
        Moments: before Placement was asked, and when it had answered.
    came_at : float
        The same on the keeper's clock, seconds.
    took_s : float
        How long Placement took.
    is_renewed : bool
        Whether somebody asks for its successor, or did in vain.
    """

    query: CandidatesQuery
    candidates: AllocationCandidates
    account: Account
    asked: int
    came: int
    came_at: float
    took_s: float
    is_renewed: bool = False
    _unsure: list[Taken] = field(init=False, default_factory=list)
    _offer: Offer | None = field(init=False, default=None)

    @property
    def asked_at(self) -> float:
        """When Placement was asked, on the keeper's clock, seconds."""
        return self.came_at - self.took_s

    def claimed(self, taken: Taken) -> None:
        """Count a claim that ended after this was asked.

        Where the two overlapped, Placement may have counted it already.
        """
        self.account.count(taken.amounts)
        if taken.began < self.came:
            self._unsure.append(taken)
        self._offer = None

    def given_back(self, taken: Taken) -> None:
        """Count a claim no more, where it was counted."""
        if taken.ended < self.asked:
            return  # Placement had counted it
        self.account.count(taken.amounts, sign=-1)
        if taken in self._unsure:
            self._unsure.remove(taken)
        self._offer = None

    def refused(self, index: int) -> None:
        """Leave out what Placement refused."""
        self.account.refuse(index)
        self._offer = None

    def offer(self) -> Offer:
        """Return what is left where every claim counts that Placement may not know."""
        if self._offer is None:
            is_whole = not self._unsure
            self._offer = self._make_offer(self.account, is_whole=is_whole)
        return self._offer

    def whole_offer(self) -> Offer:
        """Return what may be left: less only the claims that Placement cannot know."""
        if not self._unsure:
            return self.offer()
        return self._make_offer(self.account.without(self._unsure), is_whole=True)

    def _make_offer(self, account: Account, *, is_whole: bool) -> Offer:
        return Offer(
            self.candidates,
            account.is_open(),
            self.asked,
            self.candidates.is_cut,
            dict(account.taken),
            (self,),
            is_whole,
        )
