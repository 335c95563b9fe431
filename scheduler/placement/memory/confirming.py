# SPDX-License-Identifier: Apache-2.0
"""Query Placement whether it, too, has no candidate: once for equal queries."""

from __future__ import annotations

import enum
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from cachetools import TTLCache

from ...candidates import AllocationCandidates, CandidatesQuery
from ..allocations.limits import MAX_CONFIRMED
from ..client import PlacementClient


class Confirmation(enum.Enum):
    """What is known of a query without candidates in memory.

    CONFIRMED: Placement has none; SHARED: it had none when an equal query was sent;
    UNCONFIRMED: it was not queried, as too many GETs were sent in this second;
    DISAGREED: it has some.
    """

    CONFIRMED = "confirmed"
    SHARED = "confirmed_shared"
    UNCONFIRMED = "unconfirmed"
    DISAGREED = "disagreed"


class Confirmations:
    """Queries Placement with ``limit=1``, at most so often a second; thread-safe.

    Parameters
    ----------
    max_per_s : callable
        Returns the most GETs in a second; 0: none is sent.
    max_age_s : callable
        Returns the seconds for which an answer is shared, if no provider changes.
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
    ) -> None:
        self._client = client
        self._max_per_s = max_per_s
        self._clock = clock
        self._lock = threading.Lock()
        #: The revision of the table at which Placement had no candidates, by query.
        self._none: TTLCache[CandidatesQuery, int]
        self._none = TTLCache(MAX_CONFIRMED, max_age_s, timer=clock)
        self._allowed = math.inf
        self._allowed_at = clock()
        self._counts = Counter(dict.fromkeys(Confirmation, 0))

    def counts(self) -> Mapping[str, int]:
        """Return how often each outcome occurred, by its value."""
        return {outcome.value: n for outcome, n in self._counts.items()}

    def confirm(
        self,
        query: CandidatesQuery,
        revision: int,
        global_request_id: str | None = None,
    ) -> tuple[Confirmation, AllocationCandidates | None]:
        """Return whether Placement has candidates, and one if it has.

        Parameters
        ----------
        revision : int
            Of the table that has none.

        Raises
        ------
        PlacementError
            Placement could not be queried.
        """
        canonical = query.canonical()[0].unlimited()
        found = None
        with self._lock:
            outcome = self._known(canonical, revision)
        if outcome is None:
            outcome, found = self._get(canonical, global_request_id)
        with self._lock:
            self._counts[outcome] += 1
            if outcome is Confirmation.CONFIRMED:
                self._none[canonical] = revision
        return outcome, found

    def _known(self, query: CandidatesQuery, revision: int) -> Confirmation | None:
        """Return the outcome without a GET; None: one may be sent."""
        if self._none.get(query) == revision:
            return Confirmation.SHARED
        return None if self._may_send() else Confirmation.UNCONFIRMED

    def _may_send(self) -> bool:
        limit, now = self._max_per_s(), self._clock()
        gained = limit * (now - self._allowed_at)
        self._allowed = min(max(limit, 1.0), self._allowed + gained)
        self._allowed_at = now
        if not limit or self._allowed < 1:
            return False
        self._allowed -= 1
        return True

    def _get(
        self, query: CandidatesQuery, global_request_id: str | None
    ) -> tuple[Confirmation, AllocationCandidates | None]:
        one = CandidatesQuery((("limit", "1"), *query.params), 1)
        found = self._client.allocation_candidates(
            one, global_request_id=global_request_id
        )
        if found.n_requests:
            return Confirmation.DISAGREED, found
        return Confirmation.CONFIRMED, None
