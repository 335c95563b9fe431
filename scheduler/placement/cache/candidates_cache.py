# SPDX-License-Identifier: Apache-2.0
"""A cache of Placement's answers: threads that send the same query share one GET.

    get ─┬─ cached and not expired ───────────────────▶ QueryOffer   (microseconds)
         │     └─ about to expire: refreshed in the background
         ├─ another thread's GET is in flight: wait for it ─▶ QueryOffer
         └─ GET /allocation_candidates ─────────────────────▶ QueryOffer

GETs and claims are ordered by sequence numbers of a logical clock: each event takes the
next one. A GET that began before a claim ended may not show the claim; one that began
after it does. Ages are seconds of a monotonic clock.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from cachetools import LRUCache, TTLCache

from ...candidates import (
    AllocationCandidates,
    AllocationRequest,
    CandidatesAnswer,
    CandidatesQuery,
    QueryOffer,
)
from ...errors import PlacementError
from ...waiting import Spawner, ThreadSpawner
from ..candidates_source import CacheStats, CandidatesSource, CountedClaim
from ..client import PlacementClient
from .cached_answer import CachedAnswer, CachedAnswers, CachedOffer, amounts_of
from .in_flight import BackgroundRefresh, InFlightGet, refresh_margin_s

LOG = logging.getLogger(__name__)

#: How long a query is sent without its limit once a truncated answer was useless:
#: Placement returns the same first rows every time unless its own ``[placement]
#: randomize_allocation_candidates`` is set, and a limit saves it no work.
UNLIMITED_FOR_S: Final = 60.0
#: How many such queries, and queries whose truncation was logged, are remembered.
_MAX_REMEMBERED: Final = 1000


class CandidatesCache(CandidatesSource):
    """Cache the answers to GET /allocation_candidates for decisions.

    Thread-safe. It starts threads only to refresh answers that were requested shortly
    before they expire: at most two at a time, one per query.

    Parameters
    ----------
    client : PlacementClient
    max_age_s : float
        Lifetime of an answer, from its arrival; 0 disables caching.
    max_requests : int
        Most allocation requests in the cache, over all answers. An empty answer counts
        as one.
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(
        self,
        client: PlacementClient,
        *,
        max_age_s: float,
        max_requests: int,
        clock: Callable[[], float],
        spawner: Spawner | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._spawner = spawner or ThreadSpawner()
        self._lock = self._spawner.lock()
        self._sequence = itertools.count(1)
        self._stats = CacheStats()
        self._answers = self._new_answers(max_age_s, max_requests)
        self._in_flight: dict[CandidatesQuery, InFlightGet] = {}
        self._refresher = BackgroundRefresh(self._send, self._lock, self._spawner)
        #: Queries, without their limit, whose truncated answers were useless, and
        #: queries whose truncation was logged.
        self._unlimited: TTLCache[CandidatesQuery, None]
        self._unlimited = TTLCache(_MAX_REMEMBERED, UNLIMITED_FOR_S, timer=clock)
        self._warned: LRUCache[CandidatesQuery, None] = LRUCache(_MAX_REMEMBERED)
        self._supply_revision = 0
        self._invalid_before = 0

    def _new_answers(self, max_age_s: float, max_requests: int) -> CachedAnswers:
        return CachedAnswers(max_requests, max_age_s, self._clock, self._count_evicted)

    def set_limits(self, max_age_s: float, max_requests: int) -> None:
        """Change the limits; see the parameters above. A change empties the cache."""
        with self._lock:
            if (max_age_s, max_requests) != (self._answers.ttl, self._answers.maxsize):
                self._answers = self._new_answers(max_age_s, max_requests)

    def load(self) -> None:
        """Read nothing: the cache starts empty."""

    def start(self) -> None:
        """Start nothing: refreshes start as they are needed."""

    def next_sequence(self) -> int:
        """Return the next sequence number."""
        return next(self._sequence)

    def invalidate_older_than(self, supply_revision: int) -> None:
        """Invalidate all answers if the hosts' supply has changed since then."""
        if supply_revision != self._supply_revision:
            with self._lock:
                self._supply_revision = supply_revision
                self._invalid_before = self.next_sequence()

    def get(
        self,
        query: CandidatesQuery,
        *,
        since: int | None = None,
        max_age_s: float = math.inf,
        rejected: QueryOffer | None = None,  # noqa: ARG002 - answers are Placement's own
        n_instances: int = 1,  # noqa: ARG002
        project_id: str | None = None,  # noqa: ARG002
        global_request_id: str | None = None,
    ) -> CachedOffer:
        """Return Placement's candidates for a query, from the cache where possible.

        Placement is sent the canonical query: see `CandidatesQuery.canonical`. An
        answer is as old as the start of its GET. The error of a GET is raised in all
        threads that wait for it.
        """
        canonical, suffixes = query.canonical()
        cached: CachedAnswer | None = None
        while cached is None:
            new_get = None
            with self._lock:
                if self._unlimited and canonical.unlimited() in self._unlimited:
                    canonical = canonical.unlimited()
                cached = self._find(canonical, since, max_age_s)
                pending = self._in_flight.get(canonical)
                if cached is not None:
                    self._stats.hits += 1
                elif pending is None:
                    self._stats.misses += 1
                    new_get = self._begin(canonical)
            if new_get is not None:
                cached = self._send(new_get, global_request_id)
            elif cached is None and pending is not None:
                cached = self._join(pending, since)
        with self._lock:
            offer = cached.offer() if since is None else cached.complete_offer()
        return replace(offer, query=query, suffixes=suffixes) if suffixes else offer

    def count_claim(
        self,
        requests: Iterable[AllocationRequest],
        *,
        began: int | None = None,
        age_s: float | None = None,
    ) -> CountedClaim:
        """Subtract a granted claim from every answer that may not include it.

        Answers whose GET began after another scheduler was granted it have the claim.
        """
        amounts = amounts_of(requests)
        with self._lock:
            claim = CountedClaim(amounts, began or 0, self.next_sequence())
            granted_at = math.inf if age_s is None else self._clock() - age_s
            for pending in self._in_flight.values():
                if pending.began_at < granted_at:
                    pending.claims.append(claim)
            for cached in self._answers.unexpired():
                if cached.answer.began_at < granted_at:
                    cached.count_claim(claim)
        return claim

    def release(self, claim: CountedClaim) -> None:
        """Add a released claim's amounts back. Idempotent."""
        with self._lock:
            if claim.is_released:
                return
            claim.is_released = True
            for pending in self._in_flight.values():
                if claim in pending.claims:
                    pending.claims.remove(claim)
            for cached in self._answers.unexpired():
                cached.release(claim)

    def exclude(self, offer: QueryOffer, number: int) -> None:
        """Exclude a candidate that Placement refused from its cached answer."""
        offer.request(number)  # IndexError: it was never offered
        if not isinstance(offer, CachedOffer):
            return
        with self._lock:
            cached = self._answers.get(offer.answer.query)
            if cached is not None and cached.answer is offer.answer:
                cached.exclude(number)

    def mark_changed(self, node_uuids: Collection[str]) -> None:
        """Leave answers as they are: Placement is queried before NoValidHost."""

    def age_s(self, offer: QueryOffer) -> float:
        """Return the seconds since the GET of an offer began."""
        return self._clock() - offer.began_at

    def lift_limit(self, offer: QueryOffer) -> bool:
        """Send the query of a useless offer without a limit for a while.

        Return whether it was truncated, so that sending it again finds more.
        """
        if not isinstance(offer, CachedOffer) or not offer.is_truncated:
            return False
        query = offer.answer.query
        with self._lock:
            self._unlimited[query.unlimited()] = None
            self._answers.pop(query, None)
        return True

    def stats(self) -> CacheStats:
        """Return the size of the cache and its counters."""
        with self._lock:
            return replace(
                self._stats,
                answers=len(self._answers),
                requests=int(self._answers.currsize),
            )

    def provider_view(self) -> None:
        """Return None: no providers are in memory."""

    def following_stats(self) -> None:
        """Return None: nothing is followed."""

    def query_counts(self) -> Mapping[str, int]:
        """Return how many queries were answered in which way, and were refreshed."""
        stats = self.stats()
        return {
            "cached": stats.hits,
            "shared": stats.shared,
            "sent": stats.misses,
            "refreshed": stats.refreshes,
        }

    def stop(self) -> None:
        """Start no more refreshes, and wait for those that run."""
        self._refresher.stop()

    def _find(
        self, query: CandidatesQuery, since: int | None, max_age_s: float
    ) -> CachedAnswer | None:
        """Return a usable cached answer, and refresh it if it is about to expire."""
        cached = self._answers.get(query)
        min_began = max(since or 0, self._invalid_before)
        if cached is None or cached.answer.began < min_began:
            return None
        now = self._clock()
        if now - cached.answer.began_at > max_age_s:
            return None
        if now >= cached.refresh_at:
            self._refresh(cached)
        return cached

    # -- GETs --------------------------------------------------------------------------

    def _begin(self, query: CandidatesQuery) -> InFlightGet:
        event = self._spawner.event()
        pending = InFlightGet(query, self.next_sequence(), self._clock(), event)
        if self._answers.ttl > 0:
            self._in_flight[query] = pending
        return pending

    def _send(
        self, pending: InFlightGet, global_request_id: str | None = None
    ) -> CachedAnswer:
        """Send a GET, cache its answer, and wake the threads that wait for it."""
        try:
            candidates = self._client.allocation_candidates(
                pending.query, global_request_id=global_request_id
            )
            return self._complete(pending, candidates)
        except BaseException as e:
            with self._lock:
                self._end(pending)
                pending.result = e if isinstance(e, PlacementError) else None
            raise
        finally:
            pending.done.set()

    def _complete(
        self, pending: InFlightGet, candidates: AllocationCandidates
    ) -> CachedAnswer:
        answer = CandidatesAnswer(
            pending.query, candidates, pending.began, pending.began_at
        )
        now_s, lifetime_s = self._clock(), float(self._answers.ttl)
        margin_s = refresh_margin_s(now_s - pending.began_at, lifetime_s)
        # Created without the lock, because this is slow.
        cached = CachedAnswer(
            answer, self.next_sequence(), now_s + lifetime_s - margin_s
        )
        with self._lock:
            for claim in pending.claims:
                cached.count_claim(claim)
            self._end(pending)
            self._answers.pop(pending.query, None)  # makes room for its successor
            try:
                self._answers[pending.query] = cached
            except ValueError:  # the answer alone is larger than the cache
                self._count_evicted()
            if answer.is_truncated:
                self._stats.truncated += 1
                self._warn_of_truncated(answer)
            pending.result = cached
        return cached

    def _end(self, pending: InFlightGet) -> None:
        if self._in_flight.get(pending.query) is pending:
            del self._in_flight[pending.query]

    def _join(self, pending: InFlightGet, since: int | None) -> CachedAnswer | None:
        """Wait for another thread's GET; None: its answer cannot be used, retry."""
        pending.done.wait()
        if pending.began < max(since or 0, self._invalid_before):
            return None  # one GET per query at a time; the next one may be ours
        answer = pending.answer()
        if answer is not None:
            with self._lock:
                self._stats.shared += 1
        return answer

    def _refresh(self, cached: CachedAnswer) -> None:
        query = cached.answer.query
        if not self._refresher.has_capacity or query in self._in_flight:
            return
        cached.refresh_at = (
            math.inf
        )  # once per answer: no retry while Placement is down
        pending = self._begin(query)
        if self._refresher.start(pending):
            self._stats.refreshes += 1
        else:
            self._end(pending)

    def _count_evicted(self) -> None:
        self._stats.evicted += 1

    def _warn_of_truncated(self, answer: CandidatesAnswer) -> None:
        """Warn of a truncated answer, once per query."""
        query = answer.query.unlimited()
        if query in self._warned:
            return
        self._warned[query] = None
        LOG.warning(
            "Placement's answer was truncated at %d candidates: %s. Hosts beyond "
            "them are considered only if none of these can be used. Raise "
            "[scheduler] max_placement_results, or set [placement] "
            "randomize_allocation_candidates in Placement's own configuration",
            answer.candidates.n_requests,
            query.path,
        )
