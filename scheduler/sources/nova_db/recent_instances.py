# SPDX-License-Identifier: Apache-2.0
"""The recently written instances of a cell, which the checksum of a poll covers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .checksums import TableChecksum
from .times import HOT_S, SKEW_S, US_PER_S, HighWaterMark, is_recent

#: Seconds by which an instance's row may be committed after one with a later time, plus
#: the skew of conductors' clocks; later ones are found by the comparison.
_OVERLAP_S: Final = 60.0


class RecentInstances:
    """The recently written rows; late commits may still add some.

    Attributes
    ----------
    since_us : int
        The start of the window, microseconds since the epoch: rows with a later time
        may have been committed since the last poll.
    """

    def __init__(self) -> None:
        self.mark = HighWaterMark()
        self.since_us = 0
        self._marked_at = self._polled_at = self._polled_before = 0.0
        self._sums = TableChecksum()
        #: The rows that were known before `clear`.
        self._before: Mapping[int, int] = {}
        #: Rows that may change again with the same time, and since when.
        self._hot: dict[int, float] = {}

    @property
    def n_rows(self) -> int:
        """The number of known rows in the window."""
        return len(self._sums.numbers)

    def clear(self) -> set[int]:
        """Forget the rows, before all are read again; return their ids."""
        self._before = self._sums.numbers
        self._sums = TableChecksum()
        return set(self._before)

    def fill(self, rows: Iterable[tuple[int, int | None]], now: float) -> None:
        """Set all rows: each one's id, and its number in the checksum.

        Those that may change again with the same time are read by the next poll.
        """
        since, recent = 2 * self.since_us, 2 * (now - HOT_S - SKEW_S) * US_PER_S
        numbers = {i: n for i, n in rows if n is not None and n >= since}
        self._sums = TableChecksum(numbers)
        self._hot = {i: now for i, n in numbers.items() if n > recent}

    def rows_to_reread(self) -> list[int]:
        """Return the rows that may have changed with the same time."""
        at = self._polled_at
        self._hot = {i: since for i, since in self._hot.items() if is_recent(since, at)}
        return list(self._hot)

    def matches(self, total: Sequence[Any]) -> bool:
        """Return whether the database's checksum equals that of the rows read."""
        return self._sums.matches(total)

    def begin(self, now: float) -> None:
        """Begin or restart a poll, and move the start of the window.

        While nothing is written, the highest row time falls behind the writers' clocks;
        the local clock measures how far.
        """
        if now != self._polled_at:  # otherwise it is the same poll
            self._polled_before, self._polled_at = self._polled_at, now
        overlap_us = int(_OVERLAP_S * US_PER_S)
        passed_us = int((self._polled_before - self._marked_at) * US_PER_S)
        is_past = passed_us > overlap_us
        behind_us = overlap_us - max(0, passed_us)
        since_us = self.mark.us + (1 if is_past else -behind_us)
        if since_us > self.since_us:
            self.since_us = since_us
            self._drop_old()

    def _drop_old(self) -> None:
        since = 2 * self.since_us
        numbers = self._sums.numbers
        for row_id in [i for i, n in numbers.items() if n < since]:
            self._sums.drop(row_id)

    def observe(self, row_id: int, number: int, now: float) -> None:
        """Add a row that was read; `number` is its number in the checksum."""
        self.observe_time(number // 2, now)
        if number not in (self._sums.numbers.get(row_id), self._before.get(row_id)):
            self._hot[row_id] = now
        self._sums.put(row_id, number)

    def observe_time(self, moment_us: int | None, now: float) -> None:
        """Take the time of a row into account."""
        before = self.mark.us
        self.mark.observe(moment_us, now)
        if self.mark.us != before:
            self._marked_at = now
