# SPDX-License-Identifier: Apache-2.0
"""Storage of cached answers, limited by age and by the number of candidates."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..query import CandidatesQuery
from .offers import CachedAnswer

#: A lookup refreshes an answer whose remaining lifetime is at most 1.5 times what
#: Placement takes to answer, but no less and no more than these parts of its lifetime.
_REFRESH_BOUNDS: Final = (0.25, 0.75)
_REFRESH_MARGIN: Final = 1.5


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The present size of the cache, and counters since the start.

    Attributes
    ----------
    answers, requests : int
        Cached answers, and the allocation requests in all of them.
    hits, shared, misses : int
        Lookups that were served from the cache, by another thread's GET in flight, and
        by a GET of their own.
    refreshes : int
        GETs in the background, in addition to those of `misses`.
    dropped : int
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
    dropped: int = 0
    truncated: int = 0


class AnswerStore:
    """Store one answer per query. Not thread-safe by itself.

    Parameters
    ----------
    max_age_s : float
        Lifetime of an answer, from its arrival.
    max_requests : int
        Most allocation requests, over all answers. An empty answer counts as one.

    Attributes
    ----------
    n_requests : int
        Allocation requests that are stored now.
    n_dropped : int
        Answers that were evicted, or not stored, because the store was full.
    """

    def __init__(self, *, max_age_s: float, max_requests: int) -> None:
        self.set_limits(max_age_s, max_requests)
        self._answers: OrderedDict[CandidatesQuery, CachedAnswer] = OrderedDict()
        self.n_requests = 0
        self.n_dropped = 0

    def set_limits(self, max_age_s: float, max_requests: int) -> None:
        """Change the limits."""
        self._max_age_s = max_age_s
        self._max_requests = max_requests

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[CachedAnswer]:
        return iter(self._answers.values())

    def find(self, query: CandidatesQuery, now: float) -> CachedAnswer | None:
        """Return a query's answer unless it has expired, and mark it as used."""
        answer = self._answers.get(query)
        if answer is None or self._left_s(answer, now) <= 0:
            return None
        self._answers.move_to_end(query)
        return answer

    def needs_refresh(self, answer: CachedAnswer, now: float) -> bool:
        """Return whether a refresh must start now to end before the answer expires."""
        least, most = (bound * self._max_age_s for bound in _REFRESH_BOUNDS)
        refresh_s = min(max(least, _REFRESH_MARGIN * answer.took_s), most)
        return self._left_s(answer, now) <= refresh_s

    def add(self, answer: CachedAnswer, now: float) -> None:
        """Store an answer in place of its predecessor.

        Expired answers are evicted first, then the least recently used ones.
        """
        for query in [a.query for a in self if self._left_s(a, now) <= 0]:
            self.drop(query)
        self.drop(answer.query)
        if _size(answer) > self._max_requests:
            self.n_dropped += 1
            return
        self._answers[answer.query] = answer
        self.n_requests += _size(answer)
        while self.n_requests > self._max_requests:
            self.drop(next(iter(self._answers)))
            self.n_dropped += 1

    def drop(self, query: CandidatesQuery) -> None:
        """Remove the answer to a query."""
        answer = self._answers.pop(query, None)
        if answer is not None:
            self.n_requests -= _size(answer)

    def _left_s(self, answer: CachedAnswer, now: float) -> float:
        return self._max_age_s - (now - answer.received_at)


def _size(answer: CachedAnswer) -> int:
    return max(1, answer.candidates.n_requests)
