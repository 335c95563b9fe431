# SPDX-License-Identifier: Apache-2.0
"""The default clock of a scheduler, and its times as text."""

from __future__ import annotations

import datetime
import functools

from oslo_utils import timeutils

#: Returns the current time, seconds since the epoch. Like nova's code, it reads the
#: clock of oslo.utils: the system time, unless a test set another time, as nova's tests
#: do. So heartbeats and the age of reports are measured by the same clock.
now_s = functools.partial(timeutils.utcnow_ts, microsecond=True)


def utc_text(seconds: float) -> str:
    """Return a time in UTC, to the second, in ISO 8601: 2026-11-22T21:03:22Z.

    Parameters
    ----------
    seconds : float
        Since the epoch.
    """
    utc_time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{utc_time:%Y-%m-%dT%H:%M:%SZ}"
