# SPDX-License-Identifier: Apache-2.0
"""A cache of Placement's answers: threads that send the same query share one GET.

    get ─┬─ cached and not expired ─────────────────────────▶ Offer   (microseconds)
         │     └─ about to expire: refreshed in the background
         ├─ another thread's GET is in pending: wait for it ─▶ Offer
         └─ GET /allocation_candidates ─────────────────────▶ Offer

GETs and claims are ordered by the *ticks* of a logical clock: each event takes the next
integer. A GET that began before a claim ended may not show the claim; one that began
after it does. Ages are seconds of a monotonic clock.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from ...candidates import AllocationCandidates, AllocationRequest
from ...errors import PlacementError
from ..client import PlacementClient
from ..query import CandidatesQuery
from .answer_store import AnswerStore, CacheStats
from .in_flight import BackgroundRefresh, InFlightGet
from .offers import Account, CachedAnswer, CountedClaim, Offer, amounts_of
from .truncated import TruncatedAnswers

_COUNTED: Final = ("hits", "shared", "misses", "refreshes", "truncated")


class CandidatesCache:
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
    clock : callable, optional
        Returns monotonic seconds.
    """

    def __init__(
        self,
        client: PlacementClient,
        *,
        max_age_s: float,
        max_requests: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._is_enabled = max_age_s > 0
        self._clock = clock
        self._ticks = itertools.count(1)
        self._lock = threading.Lock()
        self._answers = AnswerStore(max_age_s=max_age_s, max_requests=max_requests)
        self._in_flight: dict[CandidatesQuery, InFlightGet] = {}
        self._refresher = BackgroundRefresh(self._send, self._lock)
        self._truncated = TruncatedAnswers()
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._supply_revision = 0
        self._invalid_before = 0

    def set_limits(self, max_age_s: float, max_requests: int) -> None:
        """Change the limits; see the parameters above."""
        with self._lock:
            self._is_enabled = max_age_s > 0
            self._answers.set_limits(max_age_s, max_requests)

    def tick(self) -> int:
        """Advance the logical clock and return it, for `get` and `count_claim`."""
        return next(self._ticks)

    def invalidate_older_than(self, supply_revision: int) -> None:
        """Invalidate all answers if the hosts' supply has changed since the last call.

        Parameters
        ----------
        supply_revision : int
            Of `HostTable`, read after the hosts were refreshed.
        """
        if supply_revision != self._supply_revision:
            with self._lock:
                self._supply_revision = supply_revision
                self._invalid_before = self.tick()

    def get(
        self,
        query: CandidatesQuery,
        *,
        since: int | None = None,
        max_age_s: float = math.inf,
        timeout_s: float | None = None,
        global_request_id: str | None = None,
    ) -> Offer:
        """Return Placement's candidates for a query, from the cache where possible.

        Parameters
        ----------
        since : int, optional
            A tick: return only an answer whose GET began after it, and offer every
            candidate in it that may still be free. Before a caller raises NoValidHost
            it must query with the tick at which the request arrived.
        max_age_s : float, optional
            Return only an answer whose GET began at most this long ago.
        timeout_s : float, optional
            How long to wait for another thread's GET; this thread's own GET is limited
            by ``[placement] timeout``.

        Raises
        ------
        PlacementError
            As `PlacementClient.allocation_candidates`, also for another thread's GET.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                now = self._clock()
                query = self._truncated.effective(query, now)
                if offer := self._hit(query, since, now, max_age_s):
                    return offer
                pending = self._in_flight.get(query)
                is_mine = pending is None
                if pending is None:
                    self._counts["misses"] += 1
                    pending = self._begin(query, now)
            if is_mine:
                return self._offer(self._send(pending, global_request_id), since)
            if offer := self._join(pending, since, deadline):
                return offer

    def count_claim(
        self,
        requests: Iterable[AllocationRequest],
        *,
        began: int | None = None,
        age_s: float | None = None,
    ) -> CountedClaim:
        """Subtract a granted claim from every answer that may not include it.

        Parameters
        ----------
        requests : iterable of mapping
            The allocation requests that were claimed.
        began : int, optional
            The tick before the claim was sent; None: unknown, long ago.
        age_s : float, optional
            Seconds since another scheduler was granted it: answers whose GET began
            later already include it.

        Returns
        -------
        CountedClaim
            To be passed to `release`.
        """
        amounts = amounts_of(requests)
        with self._lock:
            claim = CountedClaim(amounts, began or 0, self.tick())
            since = math.inf if age_s is None else self._clock() - age_s
            for pending in self._in_flight.values():
                if pending.began_at < since:
                    pending.claims.append(claim)
            for answer in self._answers:
                if answer.began_at < since:
                    answer.count_claim(claim)
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
            for answer in self._answers:
                answer.release(claim)

    def exclude(self, offer: Offer, index: int) -> None:
        """Exclude a candidate that Placement refused from its cached answer."""
        answer, number = offer.locate(index)
        with self._lock:
            answer.exclude(number)

    def age_s(self, answer: CachedAnswer) -> float:
        """Return the seconds since the GET of an answer began."""
        return self._clock() - answer.began_at

    def lift_limit(self, offer: Offer) -> bool:
        """Send the truncated queries of a useless offer without a limit for a while.

        Returns
        -------
        bool
            Whether any was truncated, so that sending it again finds more.
        """
        queries = [a.query for a in offer.answers() if a.candidates.is_truncated]
        with self._lock:
            for query in queries:
                self._truncated.lift_limit(query, self._clock())
                self._answers.drop(query)
        return bool(queries)

    def stats(self) -> CacheStats:
        """Return the size of the cache and its counters."""
        with self._lock:
            return CacheStats(
                answers=len(self._answers),
                requests=self._answers.n_requests,
                dropped=self._answers.n_dropped,
                **self._counts,
            )

    def stop(self) -> None:
        """Stop background refreshes and wait for those in flight."""
        self._refresher.stop()

    def _hit(
        self, query: CandidatesQuery, since: int | None, now: float, max_age_s: float
    ) -> Offer | None:
        answer = self._answers.find(query, now)
        if answer is not None and now - answer.began_at > max_age_s:
            return None
        if answer is None or answer.began < max(since or 0, self._invalid_before):
            return None
        self._counts["hits"] += 1
        if not answer.is_refreshing and self._answers.needs_refresh(answer, now):
            self._refresh(answer, now)
        return answer.offer() if since is None else answer.complete_offer()

    # -- GETs --------------------------------------------------------------------------

    def _begin(self, query: CandidatesQuery, now: float) -> InFlightGet:
        pending = InFlightGet(query, self.tick(), now)
        if self._is_enabled:
            self._in_flight[query] = pending
        return pending

    def _send(
        self, pending: InFlightGet, global_request_id: str | None = None
    ) -> CachedAnswer:
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
        account = Account(candidates)  # too slow to be done under the lock
        with self._lock:
            now = self._clock()
            answer = CachedAnswer(
                pending.query,
                candidates,
                account,
                began=pending.began,
                received=self.tick(),
                received_at=now,
                took_s=now - pending.began_at,
            )
            for claim in pending.claims:
                answer.count_claim(claim)
            self._end(pending)
            if self._is_enabled:
                self._answers.add(answer, now)
            self._counts["truncated"] += candidates.is_truncated
            self._truncated.warn_once(pending.query, candidates)
            pending.result = answer
        return answer

    def _end(self, pending: InFlightGet) -> None:
        if self._in_flight.get(pending.query) is pending:
            del self._in_flight[pending.query]

    def _join(
        self, pending: InFlightGet, since: int | None, deadline: float | None
    ) -> Offer | None:
        """Wait for another thread's GET; None: its answer cannot be used, retry."""
        pending.wait(deadline)
        if pending.began < max(since or 0, self._invalid_before):
            return None  # one GET per query at a time; the next one may be ours
        answer = pending.answer()
        if answer is None:
            return None
        with self._lock:
            self._counts["shared"] += 1
        return self._offer(answer, since)

    def _offer(self, answer: CachedAnswer, since: int | None) -> Offer:
        with self._lock:
            return answer.offer() if since is None else answer.complete_offer()

    def _refresh(self, answer: CachedAnswer, now: float) -> None:
        if not self._refresher.has_capacity or answer.query in self._in_flight:
            return
        answer.is_refreshing = True  # once per answer: do not retry while it is down
        pending = self._begin(answer.query, now)
        if self._refresher.start(pending):
            self._counts["refreshes"] += 1
        else:
            self._end(pending)
