# SPDX-License-Identifier: Apache-2.0
"""Times of rows, and for how long a row may change without a new one."""

from __future__ import annotations

from typing import Final

US_PER_S: Final = 1_000_000
#: Seconds for which a row's second may go on: the writer's second, and its commit.
HOT_S: Final = 3.0
#: Seconds by which clocks may differ, of rows that were written before we came.
SKEW_S: Final = 7.0
#: Rows of a table up to which it is read whole at each look.
SMALL: Final = 64


class Mark:
    """The highest time of a table's rows that is not ahead of our clock."""

    def __init__(self) -> None:
        self.us = 0

    def note(self, moment_us: int | None, now: float) -> None:
        """Say that there is a row of that time, microseconds since the epoch."""
        # Else one host whose clock is ahead would hide the others' changes.
        if moment_us is not None and self.us < moment_us <= now * US_PER_S:
            self.us = moment_us


def is_recent(at: float, now: float) -> bool:
    """Return whether a moment is so near that a row of it may change again."""
    return abs(now - at) < HOT_S
