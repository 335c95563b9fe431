# SPDX-License-Identifier: Apache-2.0
"""Time that is no silence of hosts: their messages are not read, or no relay writes."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Final

from ..reported.revisions import Route

LOG = logging.getLogger(__name__)

#: Seconds after which messages count as unread; how far a partition is read is known
#: within about 2 s.
BEHIND_S: Final = 5.0
#: Seconds that are added at a time to when each host was seen.
_EXCUSE_EVERY_S: Final = 5.0


class RelayAbsence:
    """Finds that no relay writes.

    Parameters
    ----------
    late_after_s : float
        Seconds without a message of a relay after which there is none. One that runs
        writes the heartbeats of all hosts.
    grace_s : float
        Seconds of an absence that do not count as silence; later ones do.

    Attributes
    ----------
    since : float or None
        When the last message was read, seconds since the epoch; None: a relay writes.
    """

    def __init__(self, late_after_s: float, grace_s: float) -> None:
        self._late_after_s = late_after_s
        self._grace_s = grace_s
        self.since: float | None = None

    @property
    def ends_at(self) -> float:
        """Until when hosts are not counted as silent, seconds since the epoch."""
        return (self.since or 0.0) + self._grace_s

    def check(self, written_at: float, now: float) -> None:
        """Set `since`, and log when an absence begins and ends.

        Parameters
        ----------
        written_at : float
            When the newest message of a relay was read, seconds since the epoch.
        """
        if self.since is not None and written_at != self.since:
            LOG.info("A relay writes to Kafka again, after %.0f s", now - self.since)
            self.since = None
        if self.since is None and now - written_at > self._late_after_s:
            self.since = written_at
            LOG.warning(
                "No relay has written to Kafka for %.0f s; the hosts behind it stay up "
                "if they were, for %.0f s ([kafka] relay_grace)",
                now - written_at, self._grace_s,
            )  # fmt: skip


class ExcusedTime:
    """Finds the time that is no silence of the hosts of each route, each second once.

    Attributes
    ----------
    unread : set of Route
        Those whose messages were not read at the last call of `find`.
    """

    def __init__(self) -> None:
        self.unread: set[Route] = set()
        #: Until when it was found, seconds since the epoch.
        self._until: dict[Route, float] = {}

    def find(
        self, read_until: Mapping[Route, float], relay: RelayAbsence, now: float
    ) -> dict[Route, float]:
        """Return the further seconds that do not count as silence.

        Parameters
        ----------
        read_until : mapping
            Until when all messages of each route are read, seconds since the epoch.
        """
        self.unread &= read_until.keys()
        self._until = {r: at for r, at in self._until.items() if r in read_until}
        found = {r: self._seconds(r, at, relay, now) for r, at in read_until.items()}
        return {route: seconds for route, seconds in found.items() if seconds}

    def _seconds(
        self, route: Route, read_until: float, relay: RelayAbsence, now: float
    ) -> float:
        found_until = self._until.get(route, -math.inf)
        if found_until > now:  # the clock was set back
            found_until = -math.inf
        if now - read_until > BEHIND_S:
            self.unread.add(route)
            since, until = read_until, now
        elif route in self.unread:
            self.unread.discard(route)
            since, until = found_until, read_until
        elif route.is_relayed and relay.since is not None:
            since, until = relay.since, min(now, relay.ends_at)
        else:
            return 0.0
        seconds = until - max(since, found_until)
        if not 0 < seconds < math.inf or (until == now and seconds < _EXCUSE_EVERY_S):
            return 0.0
        self._until[route] = until
        return seconds
