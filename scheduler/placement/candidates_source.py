# SPDX-License-Identifier: Apache-2.0
"""The interface of sources of candidates: cached answers, or providers in memory.

`CandidatesCache` caches answers of Placement; `ProviderCandidatesSource` computes them
from the providers in memory. An offer may be stale: Placement checks each claim again,
atomically.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..candidates import AllocationRequest, Amounts, CandidatesQuery, QueryOffer
from .providers import ProviderView


@dataclass(slots=True, eq=False)
class CountedClaim:
    """What one claim allocated from providers.

    Attributes
    ----------
    amounts : mapping
        {(provider UUID, resource class): amount}.
    began, ended : int
        Sequence numbers: before the claim was sent, and after Placement had granted it.
    is_released : bool
    """

    amounts: Amounts
    began: int
    ended: int
    is_released: bool = False


@dataclass(slots=True)
class CacheStats:
    """The present size of the cache of answers, and its counters since the start.

    Attributes
    ----------
    answers, requests : int
        Cached answers, and the allocation requests in all of them.
    hits, shared, misses : int
        Lookups that were served from the cache, by another thread's GET in flight, and
        by a GET of their own.
    refreshes : int
        GETs in the background, in addition to those of `misses`.
    evicted : int
        Answers that were evicted, or not cached, because the cache was full.
    truncated : int
        Answers that the limit may have truncated.
    """

    answers: int = 0
    requests: int = 0
    hits: int = 0
    shared: int = 0
    misses: int = 0
    refreshes: int = 0
    evicted: int = 0
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class FollowingStats:
    """How the providers in memory follow Placement's database.

    Attributes
    ----------
    age_s : float
        Seconds since the last successful poll began; inf: there was none.
    n_read, n_failed : int
        Successful and failed readings since the start.
    read_s : float
        How long the successful readings took in all.
    trouble : str
        What the database lacks of what Placement has, and since when; "": nothing is
        known to be missing.
    """

    age_s: float
    n_read: int
    n_failed: int
    read_s: float
    trouble: str = ""


class CandidatesSource(Protocol):
    """Answers queries for allocation candidates; thread-safe."""

    def load(self) -> None:
        """Read what is needed before the first query; starts no thread.

        Raises
        ------
        ConfigurationError
            What is needed cannot be read.
        """

    def start(self) -> None:
        """Start the work in the background."""

    def next_sequence(self) -> int:
        """Return the next sequence number, for `get` and `count_claim`.

        It orders answers, claims and requests of this process, as a logical clock.
        """

    def invalidate_older_than(self, supply_revision: int) -> None:
        """Stop using answers from before a change of the hosts' supply.

        Parameters
        ----------
        supply_revision : int
            The revision of `HostTable`, read after the hosts were refreshed.
        """

    def get(
        self,
        query: CandidatesQuery,
        *,
        since: int | None = None,
        max_age_s: float = math.inf,
        rejected: QueryOffer | None = None,
        n_instances: int = 1,
        project_id: str | None = None,
        global_request_id: str | None = None,
    ) -> QueryOffer:
        """Return the candidates for a query.

        Parameters
        ----------
        since : int, optional
            A sequence number: the offer must not be older. Before a caller raises
            NoValidHost it must query with the sequence number at which the request
            arrived, and every candidate that may still be free is then offered.
        max_age_s : float, optional
            The offer must not be older.
        rejected : Offer, optional
            The earlier offer, which did not suffice: if the new offer has no more,
            Placement must have confirmed it.
        n_instances : int
            For how many instances `rejected` did not suffice.
        project_id : str, optional
            The request's project: each project has its own limit of confirmations.

        Raises
        ------
        PlacementError
            Placement had to be queried, and could not be.
        """

    def count_claim(
        self,
        requests: Iterable[AllocationRequest],
        *,
        began: int | None = None,
        age_s: float | None = None,
    ) -> CountedClaim:
        """Subtract a granted claim from every offer that may not include it.

        Parameters
        ----------
        requests : iterable of mapping
            The allocation requests that were claimed.
        began : int, optional
            The sequence number before the claim was sent; None: unknown, and the
            claim counts as old.
        age_s : float, optional
            Seconds since another scheduler was granted the claim.

        Returns
        -------
        CountedClaim
            To be passed to `release`.
        """

    def release(self, claim: CountedClaim) -> None:
        """Add a released claim's amounts back. Idempotent."""

    def exclude(self, offer: QueryOffer, number: int) -> None:
        """Exclude a candidate that Placement refused from later offers."""

    def mark_changed(self, node_uuids: Collection[str]) -> None:
        """Read these compute nodes again soon: instances have left them."""

    def age_s(self, offer: QueryOffer) -> float:
        """Return the age of what an offer was read from, seconds."""

    def lift_limit(self, offer: QueryOffer) -> bool:
        """Lift the limit of a query for a while if it made an offer useless.

        Return whether there was a limit, so that a repeated query finds more.
        """

    def set_limits(self, max_age_s: float, max_requests: int) -> None:
        """Change the limits of cached answers: their age, and their size in all."""

    def stats(self) -> CacheStats:
        """Return the size of the cache of answers and its counters."""

    def query_counts(self) -> Mapping[str, int]:
        """Return how many queries were answered in which way, since the start."""

    def provider_view(self) -> ProviderView | None:
        """Return the providers in memory; None: there are none, or they are too old."""

    def following_stats(self) -> FollowingStats | None:
        """Return how providers in memory are followed; None: there are none."""

    def stop(self) -> None:
        """Start no more background work, and wait for the work in progress."""
