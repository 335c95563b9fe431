# SPDX-License-Identifier: Apache-2.0
"""Answers that `limit` cut: told once, and asked for whole where they were of no use.

Placement cuts the same first rows every time unless its own ``[placement]
randomize_allocation_candidates`` is set, and saves no work of its own by it: so the
question after a useless answer goes without a limit, rather than with a larger one.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final, TypeVar

from .candidates import AllocationCandidates
from .query import CandidatesQuery

LOG = logging.getLogger(__name__)

_T = TypeVar("_T")

#: How long a question is asked without its limit once an answer was of no use.
WHOLE_FOR_S: Final = 60.0
#: How many questions are remembered; the oldest are forgotten.
_MAX_REMEMBERED: Final = 1000


class CutAnswers:
    """Remember which questions had a cut answer. Its caller keeps threads apart."""

    def __init__(self) -> None:
        self._told: OrderedDict[CandidatesQuery, None] = OrderedDict()
        self._whole_until: OrderedDict[CandidatesQuery, float] = OrderedDict()

    def effective(self, query: CandidatesQuery, now: float) -> CandidatesQuery:
        """Return the question as it is to be asked now."""
        if query.limit is None or not self._whole_until:
            return query
        whole = unlimited(query)
        until = self._whole_until.get(whole)
        return query if until is None or now >= until else whole

    def note(self, query: CandidatesQuery, candidates: AllocationCandidates) -> None:
        """Warn of a cut answer, once for each question."""
        if not candidates.is_cut:
            return
        whole = unlimited(query)
        if whole not in self._told:
            LOG.warning(
                "Placement's answer was cut at %d candidates: %s. Hosts beyond them "
                "are seen only where none of these will do. Raise [scheduler] "
                "max_placement_results, or set [placement] "
                "randomize_allocation_candidates in Placement's own configuration",
                candidates.n_requests,
                whole.path,
            )
            _remember(self._told, whole, None)

    def exhausted(self, query: CandidatesQuery, now: float) -> None:
        """Ask without a limit for a while: no candidate of a cut answer would do."""
        _remember(self._whole_until, unlimited(query), now + WHOLE_FOR_S)


def unlimited(query: CandidatesQuery) -> CandidatesQuery:
    """Return the same question for all candidates."""
    return CandidatesQuery(tuple(p for p in query.params if p[0] != "limit"))


def _remember(
    memory: OrderedDict[CandidatesQuery, _T], query: CandidatesQuery, value: _T
) -> None:
    memory[query] = value
    memory.move_to_end(query)
    while len(memory) > _MAX_REMEMBERED:
        memory.popitem(last=False)
