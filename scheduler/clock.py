# SPDX-License-Identifier: Apache-2.0
"""The default clock of a scheduler, and its times as text."""

from __future__ import annotations

import datetime
import functools

from oslo_utils import timeutils

#: Returns now, seconds since the epoch, from oslo.utils as nova's own code does: the
#: system time, unless another time was set there, as nova's tests do. Heartbeats and
#: the age of reports are then measured by the same clock.
now_s = functools.partial(timeutils.utcnow_ts, microsecond=True)


def utc_text(seconds: float) -> str:
    """Return a time in UTC, to the second, in ISO 8601: 2026-11-22T21:03:22Z.

    Parameters
    ----------
    seconds : float
        Since the epoch.
    """
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
