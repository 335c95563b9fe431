# SPDX-License-Identifier: Apache-2.0
"""Answers of Placement, kept for a while and shared: one GET for all who ask the same.

    ask ─┬─ kept, young enough ─────────────────────────────▶ Offer   (microseconds)
         │     └─ and soon too old: asked again in the background
         ├─ somebody is asking it just now: wait for that ──▶ Offer
         └─ GET /allocation_candidates ─────────────────────▶ Offer

What orders GETs and claims is no clock but a *moment*: a number that is greater at each
of them. A GET that began before a claim ended may not show it; one that began after it
does. Ages are the clock's.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from ..errors import PlacementError
from .answer_store import AnswerStore, KeptStats
from .candidates import AllocationCandidates, AllocationRequest
from .client import PlacementClient
from .cut_answers import CutAnswers
from .flights import Flight, Renewals
from .offers import Account, Answer, Offer, Taken, amounts_of
from .query import CandidatesQuery

_COUNTED: Final = ("hits", "shared", "misses", "refreshes", "cut")


class KeptCandidates:
    """Stand between decisions and Placement's GET /allocation_candidates.

    It is safe for threads. It starts one only to renew an answer that was asked for in
    the last part of its life, at most two at a time, one a question.

    Parameters
    ----------
    client : PlacementClient
    max_age_s : float
        How long an answer serves once it has come; 0: no answer serves twice.
    max_requests : int
        Most allocation requests that are kept, all answers together. An empty answer
        counts as one.
    clock : callable, optional
        Returns seconds that only grow.
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
        self._is_keeping = max_age_s > 0
        self._clock = clock
        self._moments = itertools.count(1)
        self._lock = threading.Lock()
        self._kept = AnswerStore(max_age_s=max_age_s, max_requests=max_requests)
        self._flights: dict[CandidatesQuery, Flight] = {}
        self._renewals = Renewals(self._fly, self._lock)
        self._cut = CutAnswers()
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._supply = 0
        self._outdated = 0

    def bound(self, max_age_s: float, max_requests: int) -> None:
        """Keep answers by other limits from now on; see the parameters above."""
        with self._lock:
            self._is_keeping = max_age_s > 0
            self._kept.bound(max_age_s, max_requests)

    def moment(self) -> int:
        """Return now, as `ask` and `claimed` want it: later than all before."""
        return next(self._moments)

    def suit(self, supply: int) -> None:
        """Answer no more as Placement did while hosts had another supply.

        Parameters
        ----------
        supply : int
            As of `HostTable`, read after the hosts were looked at.
        """
        if supply != self._supply:
            with self._lock:
                self._supply, self._outdated = supply, self.moment()

    def ask(
        self,
        query: CandidatesQuery,
        *,
        since: int | None = None,
        max_age_s: float = math.inf,
        timeout_s: float | None = None,
        global_request_id: str | None = None,
    ) -> Offer:
        """Return what Placement has for a question.

        Parameters
        ----------
        since : int, optional
            A moment: only an answer will do that Placement was asked for after it, and
            everything in it that may still be free is offered. Before NoValidHost
            is said, it has to be asked so with the moment at which the request came.
        max_age_s : float, optional
            Only an answer will do that Placement was asked for at most so long ago.
        timeout_s : float, optional
            How long to wait for a GET that somebody else has sent; one's own is bound
            by ``[placement] timeout``.

        Raises
        ------
        PlacementError
            As `PlacementClient.allocation_candidates`; also where it was not our GET.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                now = self._clock()
                query = self._cut.effective(query, now)
                if offer := self._hit(query, since, now, max_age_s):
                    return offer
                flight = self._flights.get(query)
                is_mine = flight is None
                if flight is None:
                    self._counts["misses"] += 1
                    flight = self._begin(query, now)
            if is_mine:
                return self._offer(self._fly(flight, global_request_id), since)
            if offer := self._shared(flight, since, deadline):
                return offer

    def claimed(
        self,
        requests: Iterable[AllocationRequest],
        *,
        began: int | None = None,
        age_s: float | None = None,
    ) -> Taken:
        """Count what Placement has granted against every answer that lacks it.

        Parameters
        ----------
        requests : iterable of mapping
            The allocation requests that were claimed.
        began : int, optional
            The moment before the claim was sent; None: unknown, long ago.
        age_s : float, optional
            Seconds since another scheduler was granted it: Placement has counted it in
            answers that were asked for since then.

        Returns
        -------
        Taken
            What `give_back` undoes.
        """
        amounts = amounts_of(requests)
        with self._lock:
            taken = Taken(amounts, began or 0, self.moment())
            since = math.inf if age_s is None else self._clock() - age_s
            for flight in self._flights.values():
                if flight.began_at < since:
                    flight.claims.append(taken)
            for answer in self._kept:
                if answer.asked_at < since:
                    answer.claimed(taken)
        return taken

    def give_back(self, taken: Taken) -> None:
        """Count a claim no more: it was released. Twice is once."""
        with self._lock:
            if taken.is_given_back:
                return
            taken.is_given_back = True
            for flight in self._flights.values():
                if taken in flight.claims:
                    flight.claims.remove(taken)
            for answer in self._kept:
                answer.given_back(taken)

    def refused(self, offer: Offer, index: int) -> None:
        """Leave a candidate out of its answer: Placement has no room for it."""
        answer, number = offer.part_of(index)
        with self._lock:
            answer.refused(number)

    def age_s(self, answer: Answer) -> float:
        """Return how long ago Placement was asked for an answer, in seconds."""
        return self._clock() - answer.asked_at

    def exhausted(self, offer: Offer) -> bool:
        """Tell that no candidate of an offer would do.

        Where the limit had cut it, the question is asked without a limit for a while.

        Returns
        -------
        bool
            Whether so: asking it again finds more.
        """
        cut = [a.query for a in offer.parts() if a.candidates.is_cut]
        with self._lock:
            for query in cut:
                self._cut.exhausted(query, self._clock())
                self._kept.drop(query)
        return bool(cut)

    def stats(self) -> KeptStats:
        """Return what is kept and what was counted."""
        with self._lock:
            return KeptStats(
                answers=len(self._kept),
                requests=self._kept.n_requests,
                dropped=self._kept.n_dropped,
                **self._counts,
            )

    def stop(self) -> None:
        """Renew nothing any more, and wait for what is on its way."""
        self._renewals.stop()

    def _hit(
        self, query: CandidatesQuery, since: int | None, now: float, max_age_s: float
    ) -> Offer | None:
        answer = self._kept.find(query, now)
        if answer is not None and now - answer.asked_at > max_age_s:
            return None
        if answer is None or answer.asked < max(since or 0, self._outdated):
            return None
        self._counts["hits"] += 1
        if not answer.is_renewed and self._kept.is_in_last_part(answer, now):
            self._renew(answer, now)
        return answer.offer() if since is None else answer.whole_offer()

    # -- asking Placement --------------------------------------------------------------

    def _begin(self, query: CandidatesQuery, now: float) -> Flight:
        flight = Flight(query, self.moment(), now)
        if self._is_keeping:
            self._flights[query] = flight
        return flight

    def _fly(self, flight: Flight, global_request_id: str | None = None) -> Answer:
        try:
            candidates = self._client.allocation_candidates(
                flight.query, global_request_id=global_request_id
            )
            return self._land(flight, candidates)
        except BaseException as e:
            with self._lock:
                self._end(flight)
                flight.result = e if isinstance(e, PlacementError) else None
            raise
        finally:
            flight.done.set()

    def _land(self, flight: Flight, candidates: AllocationCandidates) -> Answer:
        account = Account(candidates)  # takes longer than the lock should be held
        with self._lock:
            now = self._clock()
            answer = Answer(
                flight.query,
                candidates,
                account,
                asked=flight.began,
                came=self.moment(),
                came_at=now,
                took_s=now - flight.began_at,
            )
            for taken in flight.claims:
                answer.claimed(taken)
            self._end(flight)
            if self._is_keeping:
                self._kept.keep(answer, now)
            self._counts["cut"] += candidates.is_cut
            self._cut.note(flight.query, candidates)
            flight.result = answer
        return answer

    def _end(self, flight: Flight) -> None:
        if self._flights.get(flight.query) is flight:
            del self._flights[flight.query]

    def _shared(
        self, flight: Flight, since: int | None, deadline: float | None
    ) -> Offer | None:
        """Wait for somebody else's GET; None: it does not help, ask again."""
        flight.wait(deadline)
        if flight.began < max(since or 0, self._outdated):
            return None  # there is one GET a question at a time; the next may be ours
        answer = flight.answer()
        if answer is None:
            return None
        with self._lock:
            self._counts["shared"] += 1
        return self._offer(answer, since)

    def _offer(self, answer: Answer, since: int | None) -> Offer:
        with self._lock:
            return answer.offer() if since is None else answer.whole_offer()

    def _renew(self, answer: Answer, now: float) -> None:
        if not self._renewals.has_room or answer.query in self._flights:
            return
        answer.is_renewed = True  # once: a Placement that is away is not asked on
        flight = self._begin(answer.query, now)
        if self._renewals.start(flight):
            self._counts["refreshes"] += 1
        else:
            self._end(flight)
