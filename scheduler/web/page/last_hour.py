# SPDX-License-Identifier: Apache-2.0
"""The decisions of the last hour in numbers."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from typing import Final

from ...clock import now_s
from ...database import StoreUnavailable
from ...decision_store import DecisionPage, DecisionQuery
from ...drivers.record import DecisionRecord, Outcome
from ...errors import SchedulerError
from ...explain import RejectionCount, count_rejections

_MINUTES: Final = 60
#: Maximum number of records that are read; reading one takes 0.1 ms.
_MOST: Final = 1000
#: Seconds for which browsers share one reading.
_SHARED_S: Final = 5.0
#: Seconds that a request waits while another one reads.
_WAIT_S: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class HourSummary:
    """The decisions of the last hour.

    Attributes
    ----------
    since_s : float
        The time from which on decisions are counted, seconds since the epoch.
    is_whole : bool
        Whether all decisions are counted; False: there were too many, and only the
        newest ones are.
    minutes : sequence of (int, int)
        Decisions with and without a host by minute, the oldest first.
    """

    since_s: float
    is_whole: bool
    n_selected: int
    n_refused: int
    minutes: Sequence[tuple[int, int]]
    rejections: Sequence[RejectionCount]

    @property
    def n_decisions(self) -> int:
        """The number of decisions that are counted."""
        return self.n_selected + self.n_refused


class LastHour:
    """Reads the decisions of the last hour, at most once in some seconds.

    Parameters
    ----------
    find : callable
        Returns the decisions of a query, the newest first.
    clock : callable
        Returns the current time, seconds since the epoch.
    """

    def __init__(
        self,
        find: Callable[[DecisionQuery], DecisionPage],
        clock: Callable[[], float] = now_s,
    ) -> None:
        self._find = find
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = -math.inf
        self._summary: HourSummary | Exception = StoreUnavailable("It was never read.")

    def read(self) -> HourSummary:
        """Return the summary.

        Raises
        ------
        SchedulerError, StoreUnavailable
            The store does not answer, or did not at the last attempt, seconds ago.
        """
        if not self._lock.acquire(timeout=_WAIT_S):
            raise StoreUnavailable("The decisions of the last hour are still read.")
        try:
            if abs(self._clock() - self._read_at) >= _SHARED_S:
                self._read()
            summary = self._summary
        finally:
            self._lock.release()
        if isinstance(summary, HourSummary):
            return summary
        raise summary.with_traceback(None)

    def _read(self) -> None:
        try:
            self._summary = self._summarized(self._clock())
        except (SchedulerError, StoreUnavailable) as e:
            self._summary = e
        # Counted from the end of the reading, which may have taken long.
        self._read_at = self._clock()

    def _summarized(self, now: float) -> HourSummary:
        since = now - _MINUTES * 60
        page = self._find(DecisionQuery(since_s=since, limit=_MOST))
        records = [decision.record for decision in page.decisions]
        is_whole = page.next_id is None
        are_selected = [record.outcome is Outcome.SELECTED for record in records]
        return HourSummary(
            since
            if is_whole
            else min((record.started_at for record in records), default=now),
            is_whole,
            sum(are_selected),
            len(are_selected) - sum(are_selected),
            _by_minute(records, since),
            count_rejections(records),
        )


def _by_minute(
    records: Sequence[DecisionRecord], since: float
) -> list[tuple[int, int]]:
    """Return the decisions with and without a host in each minute."""
    counts = [[0, 0] for _ in range(_MINUTES)]
    for record in records:
        minute = min(_MINUTES - 1, max(0, int((record.started_at - since) / 60)))
        counts[minute][record.outcome is not Outcome.SELECTED] += 1
    return [(n_selected, n_refused) for n_selected, n_refused in counts]
