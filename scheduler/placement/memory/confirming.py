# SPDX-License-Identifier: Apache-2.0
"""Query Placement whether it has more candidates: once for equal queries."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache, TTLCache

from ...candidates import AllocationCandidates, CandidatesQuery
from ...waiting import Event, Spawner
from ..allocations.limits import MAX_CONFIRMED
from ..client import PlacementClient
from .table_offer import TableOffer

#: Seconds for which an answer is shared even if a provider changes.
_SHARED_S: Final = 1.0


class Confirmation(enum.Enum):
    """Whether Placement has more candidates than an offer that did not suffice.

    CONFIRMED: Placement has no more; SHARED: it had no more when an equal query was
    sent; UNCONFIRMED: it was not queried, as too many GETs were sent for this project
    in this second; DISAGREED: it has more.
    """

    CONFIRMED = "confirmed"
    SHARED = "confirmed_shared"
    UNCONFIRMED = "unconfirmed"
    DISAGREED = "disagreed"


@dataclass(slots=True, eq=False)
class _Question:
    """A GET that was sent, and its answer.

    Attributes
    ----------
    revision : int
        The revision of the table whose offer the GET is to confirm.
    sent_at : float
    done : Event
        Set once the GET has ended.
    is_confirmed : bool
        Whether Placement had no more candidates.
    """

    revision: int
    sent_at: float
    done: Event
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True)
class _Allowance:
    """How many GETs may be sent for a project now, and when that was counted."""

    n_gets: float
    at: float


class Confirmations:
    """Queries Placement, at most `max_per_s` times for each project; thread-safe.

    Parameters
    ----------
    max_per_s : callable
        Returns the most GETs in a second for each project; 0: none is sent.
    max_age_s : float
        The seconds for which an answer is shared, if no provider changes.
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(
        self,
        client: PlacementClient,
        *,
        max_per_s: Callable[[], float],
        max_age_s: float,
        clock: Callable[[], float],
        spawner: Spawner,
    ) -> None:
        self._client = client
        self._max_per_s = max_per_s
        self._clock = clock
        self._spawner = spawner
        self._lock = spawner.lock()
        #: By query, and whether it is for several instances.
        self._questions: TTLCache[tuple[CandidatesQuery, bool], _Question]
        self._questions = TTLCache(MAX_CONFIRMED, max_age_s, timer=clock)
        self._allowances: LRUCache[str | None, _Allowance] = LRUCache(MAX_CONFIRMED)
        self._counts = Counter(dict.fromkeys(Confirmation, 0))

    def counts(self) -> Mapping[str, int]:
        """Return how often each outcome occurred, by its value."""
        return {outcome.value: count for outcome, count in self._counts.items()}

    def confirm(
        self,
        offer: TableOffer,
        revision: int,
        *,
        n_instances: int = 1,
        project_id: str | None = None,
        global_request_id: str | None = None,
    ) -> tuple[Confirmation, AllocationCandidates | None]:
        """Return whether Placement has more, and its answer if it was queried.

        Placement has more if it has a candidate that is not offered or, for several
        instances, more room. If an offer has more candidates than the limit of its
        query, Placement is queried for as many as that limit.

        Parameters
        ----------
        revision : int
            The revision of the table that the offer is from.

        Raises
        ------
        PlacementError
            Placement could not be queried.
        """
        query = offer.query.canonical()[0].unlimited()
        is_for_several = n_instances > 1
        outcome, question = self._begin((query, is_for_several), revision, project_id)
        answer = None
        if question is not None:
            try:
                answer = self._get(query, offer, global_request_id)
                question.is_confirmed = offer.lacking(answer) is None and not (
                    is_for_several and offer.has_less_room_than(answer)
                )
            finally:
                question.done.set()
            if not question.is_confirmed:
                outcome = Confirmation.DISAGREED
        with self._lock:
            self._counts[outcome] += 1
        return outcome, answer

    def _begin(
        self, key: tuple[CandidatesQuery, bool], revision: int, project_id: str | None
    ) -> tuple[Confirmation, _Question | None]:
        """Wait for an equal query; return the outcome, and the question to be sent."""
        while True:
            with self._lock:
                equal_question = self._questions.get(key)
                if equal_question is None or equal_question.done.is_set():
                    if equal_question is not None and self._is_shared(
                        equal_question, revision
                    ):
                        return Confirmation.SHARED, None
                    if not self._may_send(project_id):
                        return Confirmation.UNCONFIRMED, None
                    question = _Question(revision, self._clock(), self._spawner.event())
                    self._questions[key] = question
                    return Confirmation.CONFIRMED, question
            equal_question.done.wait()

    def _is_shared(self, question: _Question, revision: int) -> bool:
        is_recent = self._clock() - question.sent_at <= _SHARED_S
        return question.is_confirmed and (is_recent or question.revision == revision)

    def _may_send(self, project_id: str | None) -> bool:
        limit, now = self._max_per_s(), self._clock()
        allowance = self._allowances.get(project_id, _Allowance(math.inf, now))
        n_gets = min(max(limit, 1.0), allowance.n_gets + limit * (now - allowance.at))
        may_send = limit > 0 and n_gets >= 1
        self._allowances[project_id] = _Allowance(n_gets - may_send, now)
        return may_send

    def _get(
        self,
        query: CandidatesQuery,
        offer: TableOffer,
        global_request_id: str | None,
    ) -> AllocationCandidates:
        limit = offer.n_open + 1
        if offer.query.limit is not None:
            limit = min(limit, offer.query.limit)
        limited = CandidatesQuery((("limit", str(limit)), *query.params), limit)
        return self._client.allocation_candidates(
            limited, global_request_id=global_request_id
        )
