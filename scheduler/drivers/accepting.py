# SPDX-License-Identifier: Apache-2.0
"""How an instance gets a host: on paper, by a claim, or as it has it already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..hosts import HostBatch
from .claiming import Claims
from .ledger import Ledger
from .weighing import Ranking

#: Stands for a candidate where an instance needs none: nothing is claimed for it.
NO_CANDIDATE: Final = -1

#: Answer the candidate that an instance has on a host, or None if it may not have it.
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
    """Accept a host for which nothing is claimed."""
    return NO_CANDIDATE


def take_on_paper(ledger: Ledger) -> Accept:
    """Accept a host that has a candidate left, and take that on paper."""

    def take(_uuid: str, hosts: HostBatch, index: int) -> int | None:
        left = hosts.candidates_of(index)
        candidate = ledger.next_candidate(hosts.value("uuid", index), left)
        if candidate is not None:
            ledger.reserve(candidate)
        return candidate

    return take


def only(ledger: Ledger, candidate: int) -> Accept:
    """Accept the host of one candidate, which is claimed already."""

    def accept(_uuid: str, hosts: HostBatch, index: int) -> int | None:
        is_its = candidate in ledger.all_of(hosts.value("uuid", index))
        return candidate if is_its else None

    return accept


def claim_it(ledger: Ledger, claims: Claims) -> Accept:
    """Accept a host on which Placement grants a claim."""

    def claim(uuid: str, hosts: HostBatch, index: int) -> int | None:
        return claims.claim_host(uuid, hosts, index, ledger)

    return claim
