# SPDX-License-Identifier: Apache-2.0
"""How an instance gets a host: reserved in the ledger, claimed, or held already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ...candidates import Offer
from ...hosts import HostBatch
from ..instances import PlacedInstance
from ..weighing import Ranking
from .contention import Contention

#: The candidate of an instance for which nothing is claimed.
NO_CANDIDATE: Final = -1

#: Returns the candidate that an instance gets on a host; None: not accepted.
Accept = Callable[[str, HostBatch, int], int | None]


class Claims(Protocol):
    """The claims of a decision: in Placement, or those of a record; `RequestClaims`."""

    @property
    def contention(self) -> Contention:
        """The share of refused claims, which the claims of the pass change."""

    @property
    def may_add(self) -> bool:
        """Whether an instance may keep what it holds, and be granted more."""

    @property
    def counts_others(self) -> bool:
        """Whether instances of other requests were read, so that filters run again."""

    def claim_host(
        self, uuid: str, hosts: HostBatch, index: int, ledger: Offer
    ) -> int | None:
        """Claim one of a host's candidates for an instance; None: none was granted."""

    def claim_together(
        self, placed: Sequence[PlacedInstance], ledger: Offer
    ) -> list[str]:
        """Claim for several instances at once; return those that got no host."""

    def held_candidate(self, uuid: str, ledger: Offer) -> int | None:
        """Return the candidate that an instance has held since an earlier request."""

    def take_over(self, placed: PlacedInstance, ledger: Offer) -> bool:
        """Rewrite what an earlier request claimed; return whether it may stay."""

    def may_try_again(self, n_rounds: int) -> bool:
        """Return whether to try all hosts again, after so many rounds."""


def first_accepted(
    ranking: Ranking, uuid: str, accept: Accept
) -> tuple[int, int] | None:
    """Return the index of the best host that accepts, and its candidate."""
    for index in ranking:
        candidate = accept(uuid, ranking.hosts, index)
        if candidate is not None:
            return index, candidate
    return None


def accept_any(_uuid: str, _hosts: HostBatch, _index: int) -> int | None:
    """Accept any host; nothing is claimed."""
    return NO_CANDIDATE


def reserve_in_ledger(ledger: Offer) -> Accept:
    """Accept a host that has a candidate left, and reserve it in the ledger."""

    def take(_uuid: str, hosts: HostBatch, index: int) -> int | None:
        left = hosts.candidates_of(index)
        candidate = ledger.next_candidate(hosts.value("uuid", index), left)
        if candidate is not None:
            ledger.reserve(candidate)
        return candidate

    return take


def accept_held(ledger: Offer, candidate: int) -> Accept:
    """Accept only the host of one candidate, which the instance holds already."""

    def accept(_uuid: str, hosts: HostBatch, index: int) -> int | None:
        is_its = candidate in ledger.numbers_of(hosts.value("uuid", index))
        return candidate if is_its else None

    return accept


def claim_in_placement(ledger: Offer, claims: Claims) -> Accept:
    """Accept a host on which Placement grants a claim."""

    def claim(uuid: str, hosts: HostBatch, index: int) -> int | None:
        return claims.claim_host(uuid, hosts, index, ledger)

    return claim
