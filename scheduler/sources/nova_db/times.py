# SPDX-License-Identifier: Apache-2.0
"""Times of rows, and the limits within which they are unreliable."""

from __future__ import annotations

from typing import Final

US_PER_S: Final = 1_000_000
#: Seconds in which a row may change again with the same time: times may be whole
#: seconds, and the row is committed later.
HOT_S: Final = 3.0
#: Seconds of clock skew that are allowed for rows written before the first poll.
SKEW_S: Final = 7.0
#: Most rows of a table that is read whole at each poll.
SMALL: Final = 64


class HighWaterMark:
    """The highest time of a table's rows that is not in the future."""

    def __init__(self) -> None:
        self.us = 0

    def observe(self, moment_us: int | None, now: float) -> None:
        """Take a row's time into account, microseconds since the epoch."""
        # A future time, of one host with a fast clock, would hide others' changes.
        if moment_us is not None and self.us < moment_us <= now * US_PER_S:
            self.us = moment_us


def is_recent(at: float, now: float) -> bool:
    """Return whether a row written at that time may change again without a new one."""
    return abs(now - at) < HOT_S
