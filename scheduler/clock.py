# SPDX-License-Identifier: Apache-2.0
"""The default clock of a scheduler."""

from __future__ import annotations

from oslo_utils import timeutils


def now_s() -> float:
    """Return now, seconds since the epoch, from oslo.utils as nova's own code does.

    That is the system time, unless another time was set there, as nova's tests do:
    heartbeats and the age of reports are then measured by the same clock.
    """
    return timeutils.utcnow_ts(microsecond=True)
