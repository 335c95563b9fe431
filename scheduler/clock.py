# SPDX-License-Identifier: Apache-2.0
"""The time of a scheduler that is handed no clock."""

from __future__ import annotations

from oslo_utils import timeutils


def now_s() -> float:
    """Return now, seconds since the epoch, by oslo.utils as nova's own code has it.

    It is the system's time, unless somebody has set another one there, as nova's tests
    do: heartbeats and the age of what was seen are then told by one clock.
    """
    return timeutils.utcnow_ts(microsecond=True)
