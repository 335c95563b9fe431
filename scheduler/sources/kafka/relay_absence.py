# SPDX-License-Identifier: Apache-2.0
"""Time in which no relay writes, which is no silence of the hosts behind it."""

from __future__ import annotations

import logging
import math
from typing import Final

LOG = logging.getLogger(__name__)

#: Seconds of an absence after which they are added to when each host was seen.
_EXCUSE_EVERY_S: Final = 5.0


class RelayAbsence:
    """Finds that no relay writes, and how much of that does not count as silence.

    Parameters
    ----------
    late_after_s : float
        Seconds without a message of a relay after which there is none. One that runs
        writes the heartbeats of all hosts.
    grace_s : float
        Seconds of an absence that do not count; later ones do.

    Attributes
    ----------
    since : float or None
        When the last message was written, seconds since the epoch; None: a relay
        writes.
    """

    def __init__(self, late_after_s: float, grace_s: float) -> None:
        self._late_after_s = late_after_s
        self._grace_s = grace_s
        self._written_at = -math.inf
        self._excused_until = -math.inf
        self.since: float | None = None

    @property
    def ends_at(self) -> float:
        """Until when hosts are not counted as silent, seconds since the epoch."""
        return self._written_at + self._grace_s

    def excuse(self, written_at: float, now: float) -> float:
        """Return the further seconds that do not count as silence.

        Parameters
        ----------
        written_at : float
            When the newest message of a relay was read, seconds since the epoch.
        """
        if written_at != self._written_at:
            self._end(now)
            self._written_at = self._excused_until = written_at
        if now - written_at <= self._late_after_s:
            return 0.0
        self._begin(now)
        until = min(now, self.ends_at)
        seconds = until - self._excused_until
        if seconds <= 0 or (until == now and seconds < _EXCUSE_EVERY_S):
            return 0.0
        self._excused_until = until
        return seconds

    def _begin(self, now: float) -> None:
        if self.since is None:
            self.since = self._written_at
            LOG.warning(
                "No relay has written to Kafka for %.0f s; the hosts behind it stay up "
                "if they were, for %.0f s ([kafka] relay_grace)",
                now - self._written_at, self._grace_s,
            )  # fmt: skip

    def _end(self, now: float) -> None:
        if self.since is not None:
            LOG.info("A relay writes to Kafka again, after %.0f s", now - self.since)
            self.since = None
