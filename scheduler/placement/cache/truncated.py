# SPDX-License-Identifier: Apache-2.0
"""Answers that `limit` truncated: warned of once, and requested in full if useless.

Placement returns the same first rows every time unless its own ``[placement]
randomize_allocation_candidates`` is set, and a limit saves it no work. So the query
after a useless answer is sent without a limit, not with a larger one.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final, TypeVar

from ...candidates import AllocationCandidates
from ..query import CandidatesQuery

LOG = logging.getLogger(__name__)

_T = TypeVar("_T")

#: How long a query is sent without its limit once a truncated answer was useless.
UNLIMITED_FOR_S: Final = 60.0
#: How many queries are remembered; the oldest are evicted.
_MAX_REMEMBERED: Final = 1000


class TruncatedAnswers:
    """Remember which queries had truncated answers. Not thread-safe by itself."""

    def __init__(self) -> None:
        self._warned: OrderedDict[CandidatesQuery, None] = OrderedDict()
        self._unlimited_until: OrderedDict[CandidatesQuery, float] = OrderedDict()

    def effective(self, query: CandidatesQuery, now: float) -> CandidatesQuery:
        """Return the query that must be sent now, without its limit if lifted."""
        if query.limit is None or not self._unlimited_until:
            return query
        full = unlimited(query)
        until = self._unlimited_until.get(full)
        return query if until is None or now >= until else full

    def warn_once(
        self, query: CandidatesQuery, candidates: AllocationCandidates
    ) -> None:
        """Warn of a truncated answer, once per query."""
        if not candidates.is_truncated:
            return
        full = unlimited(query)
        if full not in self._warned:
            LOG.warning(
                "Placement's answer was truncated at %d candidates: %s. Hosts beyond "
                "them are considered only if none of these can be used. Raise "
                "[scheduler] max_placement_results, or set [placement] "
                "randomize_allocation_candidates in Placement's own configuration",
                candidates.n_requests,
                full.path,
            )
            _remember(self._warned, full, None)

    def lift_limit(self, query: CandidatesQuery, now: float) -> None:
        """Send the query without a limit for a while: its answer was useless."""
        _remember(self._unlimited_until, unlimited(query), now + UNLIMITED_FOR_S)


def unlimited(query: CandidatesQuery) -> CandidatesQuery:
    """Return the same query without a limit."""
    return CandidatesQuery(tuple(p for p in query.params if p[0] != "limit"))


def _remember(
    memory: OrderedDict[CandidatesQuery, _T], query: CandidatesQuery, value: _T
) -> None:
    memory[query] = value
    memory.move_to_end(query)
    while len(memory) > _MAX_REMEMBERED:
        memory.popitem(last=False)
