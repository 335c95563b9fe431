# SPDX-License-Identifier: Apache-2.0
"""How an instance gets a host: reserved in the ledger, claimed, or held already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...hosts import HostBatch
from ..weighing import Ranking
from .ledger import Ledger
from .request_claims import RequestClaims

#: The candidate of an instance for which nothing is claimed.
NO_CANDIDATE: Final = -1

#: Returns the candidate that an instance gets on a host; None: not accepted.
Accept = Callable[[str, HostBatch, int], int | None]


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


def reserve_in_ledger(ledger: Ledger) -> Accept:
    """Accept a host that has a candidate left, and reserve it in the ledger."""

    def take(_uuid: str, hosts: HostBatch, index: int) -> int | None:
        left = hosts.candidates_of(index)
        candidate = ledger.next_candidate(hosts.value("uuid", index), left)
        if candidate is not None:
            ledger.reserve(candidate)
        return candidate

    return take


def accept_held(ledger: Ledger, candidate: int) -> Accept:
    """Accept only the host of one candidate, which the instance holds already."""

    def accept(_uuid: str, hosts: HostBatch, index: int) -> int | None:
        is_its = candidate in ledger.candidates_of(hosts.value("uuid", index))
        return candidate if is_its else None

    return accept


def claim_in_placement(ledger: Ledger, claims: RequestClaims) -> Accept:
    """Accept a host on which Placement grants a claim."""

    def claim(uuid: str, hosts: HostBatch, index: int) -> int | None:
        return claims.claim_host(uuid, hosts, index, ledger)

    return claim
