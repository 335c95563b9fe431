# SPDX-License-Identifier: Apache-2.0
"""The instances of a cell that were written last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .signatures import Signatures
from .times import HOT_S, SKEW_S, US_PER_S, Mark, is_recent

#: Seconds by which an instance's row may be committed later than another's, and by
#: which conductors' clocks may differ; a later one is found by the comparison.
_OVERLAP_S: Final = 60.0


class Window:
    """The instances that were written last, among which more may turn up.

    Attributes
    ----------
    since_us : int
        Rows written from then on, microseconds since the epoch, may have come to light
        since the last look.
    """

    def __init__(self) -> None:
        self.mark = Mark()
        self.since_us = 0
        self._marked_at = self._looked_at = self._looked_before = 0.0
        self._sums = Signatures()
        #: What was known before it was cleared.
        self._before: Mapping[int, int] = {}
        #: Rows that may change again and keep their time, and since when they are so.
        self._hot: dict[int, float] = {}

    @property
    def n_rows(self) -> int:
        """How many rows are known to be in it."""
        return len(self._sums.numbers)

    def clear(self) -> set[int]:
        """Forget the rows, to be told of all of them once more; return their ids."""
        self._before = self._sums.numbers
        self._sums = Signatures()
        return set(self._before)

    def fill(self, rows: Iterable[tuple[int, int | None]], now: float) -> None:
        """Say what all rows are: id, and what the database adds up of it.

        Those that may change again and keep their time are read by the next look.
        """
        since, recent = 2 * self.since_us, 2 * (now - HOT_S - SKEW_S) * US_PER_S
        numbers = {i: n for i, n in rows if n is not None and n >= since}
        self._sums = Signatures(numbers)
        self._hot = {i: now for i, n in numbers.items() if n > recent}

    def again(self) -> list[int]:
        """Return the rows that may have changed and kept their time."""
        at = self._looked_at
        self._hot = {i: since for i, since in self._hot.items() if is_recent(since, at)}
        return list(self._hot)

    def agrees(self, total: Sequence[Any]) -> bool:
        """Return whether the database has the rows that were read."""
        return self._sums.agrees(total)

    def begin(self, now: float) -> None:
        """Begin a look, or begin it again; leave out what the last one saw in time.

        While nothing is written, the highest time stays behind the clock of whoever
        wrote it; how far is told by ours.
        """
        if now != self._looked_at:  # else it is the same look
            self._looked_before, self._looked_at = self._looked_at, now
        overlap_us = int(_OVERLAP_S * US_PER_S)
        passed_us = int((self._looked_before - self._marked_at) * US_PER_S)
        is_past = passed_us > overlap_us
        behind_us = overlap_us - max(0, passed_us)
        since_us = self.mark.us + (1 if is_past else -behind_us)
        if since_us > self.since_us:
            self.since_us = since_us
            self._forget_the_old()

    def _forget_the_old(self) -> None:
        since = 2 * self.since_us
        numbers = self._sums.numbers
        for row_id in [i for i, n in numbers.items() if n < since]:
            self._sums.drop(row_id)

    def note(self, row_id: int, number: int, now: float) -> None:
        """Say that a row was read; `number` is what the database adds up of it."""
        self.note_time(number // 2, now)
        if number not in (self._sums.numbers.get(row_id), self._before.get(row_id)):
            self._hot[row_id] = now
        self._sums.put(row_id, number)

    def note_time(self, moment_us: int | None, now: float) -> None:
        """Say that a row was written then."""
        before = self.mark.us
        self.mark.note(moment_us, now)
        if self.mark.us != before:
            self._marked_at = now
