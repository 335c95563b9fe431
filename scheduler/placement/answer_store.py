# SPDX-License-Identifier: Apache-2.0
"""The answers that are kept: young ones only, and a bounded number of candidates."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .offers import Answer
from .query import CandidatesQuery

#: The last part of an answer's life, in which whoever asks has it renewed: as long as
#: Placement takes with half as much to spare, within these parts of its life.
_LAST_PART: Final = (0.25, 0.75)
_SPARE: Final = 1.5


@dataclass(frozen=True, slots=True)
class KeptStats:
    """What is kept now, and how it came about since the start.

    Attributes
    ----------
    answers, requests : int
        Answers that are kept, and the allocation requests in all of them.
    hits, shared, misses : int
        Questions that were answered from what is kept, by a GET that somebody else
        had begun, and by a GET of their own.
    refreshes : int
        GETs in the background, beside those of `misses`.
    dropped : int
        Answers that had to go, or were not kept, for want of room.
    cut : int
        Answers that the limit may have cut.
    """

    answers: int = 0
    requests: int = 0
    hits: int = 0
    shared: int = 0
    misses: int = 0
    refreshes: int = 0
    dropped: int = 0
    cut: int = 0


class AnswerStore:
    """Keep one answer a question. Its caller keeps threads apart.

    Parameters
    ----------
    max_age_s : float
        How long an answer serves once it has come.
    max_requests : int
        Most allocation requests, all answers together. An empty answer counts as one.

    Attributes
    ----------
    n_requests : int
        Allocation requests that are kept now.
    n_dropped : int
        Answers that had to go, or were not kept, for want of room.
    """

    def __init__(self, *, max_age_s: float, max_requests: int) -> None:
        self.bound(max_age_s, max_requests)
        self._answers: OrderedDict[CandidatesQuery, Answer] = OrderedDict()
        self.n_requests = 0
        self.n_dropped = 0

    def bound(self, max_age_s: float, max_requests: int) -> None:
        """Keep answers by other limits from now on."""
        self._max_age_s = max_age_s
        self._max_requests = max_requests

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._answers.values())

    def find(self, query: CandidatesQuery, now: float) -> Answer | None:
        """Return the answer to a question if it is young enough, and note its use."""
        answer = self._answers.get(query)
        if answer is None or self._left_s(answer, now) <= 0:
            return None
        self._answers.move_to_end(query)
        return answer

    def is_in_last_part(self, answer: Answer, now: float) -> bool:
        """Tell whether a successor should be asked for, to be there in time."""
        least, most = (part * self._max_age_s for part in _LAST_PART)
        last_part_s = min(max(least, _SPARE * answer.took_s), most)
        return self._left_s(answer, now) <= last_part_s

    def keep(self, answer: Answer, now: float) -> None:
        """Keep an answer instead of its predecessor; make room where it is needed.

        What is too old goes first, then what was not used for longest.
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
        """Keep no answer to a question."""
        answer = self._answers.pop(query, None)
        if answer is not None:
            self.n_requests -= _size(answer)

    def _left_s(self, answer: Answer, now: float) -> float:
        return self._max_age_s - (now - answer.came_at)


def _size(answer: Answer) -> int:
    return max(1, answer.candidates.n_requests)
