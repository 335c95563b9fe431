# SPDX-License-Identifier: Apache-2.0
"""Time that does not count as silence of hosts, and hosts without a report."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ..reported.revisions import Route

LOG = logging.getLogger(__name__)

#: Seconds after which messages count as unread; how far a partition is read is known
#: within about 2 s.
BEHIND_S: Final = 5.0
#: Least seconds by which the times when hosts were seen are moved at once.
_ADDED_EVERY_S: Final = 5.0


class RelayAbsence:
    """Detects that no relay writes.

    Parameters
    ----------
    late_after_s : float
        Seconds without a message of a relay after which relays count as absent. A relay
        that runs writes the heartbeats of all hosts.
    grace_s : float
        Seconds of an absence that do not count as silence; later ones do.

    Attributes
    ----------
    since : float or None
        When the last message of a relay was read, seconds since the epoch; None: a
        relay writes.
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


class UncountedTime:
    """Finds the time that does not count as silence of hosts, by route.

    No second is found twice.

    Attributes
    ----------
    unread : set of Route
        The routes whose messages were not read at the last call of `find`.
    """

    def __init__(self) -> None:
        self.unread: set[Route] = set()
        #: Until when such time was found, seconds since the epoch.
        self._until: dict[Route, float] = {}

    def find(
        self, read_until: Mapping[Route, float], relay: RelayAbsence, now: float
    ) -> dict[Route, float]:
        """Return the seconds since the last call that do not count as silence.

        Parameters
        ----------
        read_until : mapping
            Until when all messages of each route are read, seconds since the epoch.
        """
        self.unread &= read_until.keys()
        self._until = {r: until for r, until in self._until.items() if r in read_until}
        seconds_by_route = {
            route: self._seconds(route, until, relay, now)
            for route, until in read_until.items()
        }
        return {r: seconds for r, seconds in seconds_by_route.items() if seconds}

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
        if not 0 < seconds < math.inf or (until == now and seconds < _ADDED_EVERY_S):
            return 0.0
        self._until[route] = until
        return seconds


#: Seconds for which a node must have heartbeats without a report to be named. A single
#: heartbeat says little: it may be read before its report, or after the report of the
#: agent's next incarnation.
_LATE_S: Final = 30.0
#: Seconds for which a host is remembered after its last heartbeat.
_REMEMBERED_S: Final = 60.0
_MAX_HOSTS: Final = 100_000
#: Most hosts that a text for operators names.
_MAX_NAMED: Final = 5


@dataclass(slots=True)
class _Heartbeats:
    """When the first and the newest heartbeat of a node without a report were read."""

    since: float
    newest: float

    def is_remembered(self, now: float) -> bool:
        return now - self.newest <= _REMEMBERED_S

    @property
    def is_late(self) -> bool:
        return self.newest - self.since > _LATE_S


class MissingHosts:
    """Collects the nodes whose heartbeats have no report; thread-safe.

    Parameters
    ----------
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[str, _Heartbeats] = {}

    def request(self, node_uuid: str, topic: str | None, server: str | None) -> None:  # noqa: ARG002 - there are no requests over Kafka
        """Record a heartbeat of a node without a report."""
        now = self._clock()
        with self._lock:
            heartbeats = self._nodes.get(node_uuid)
            if heartbeats is not None and heartbeats.is_remembered(now):
                heartbeats.newest = now
            elif heartbeats is not None:
                heartbeats.since = heartbeats.newest = now
            elif len(self._nodes) < _MAX_HOSTS:
                self._nodes[node_uuid] = _Heartbeats(now, now)

    def discard(self, node_uuid: str) -> None:
        """Forget a node: its report was read, or it is removed."""
        if self._nodes:
            with self._lock:
                self._nodes.pop(node_uuid, None)

    def note(self, topic: str) -> str:
        """Return a text that names the nodes whose report is missing; "": no node."""
        now = self._clock()
        with self._lock:
            for uuid, heartbeats in list(self._nodes.items()):
                if not heartbeats.is_remembered(now):
                    del self._nodes[uuid]
            uuids = sorted(uuid for uuid, h in self._nodes.items() if h.is_late)
        if not uuids:
            return ""
        unnamed_text = (
            f" and {len(uuids) - _MAX_NAMED} more" if len(uuids) > _MAX_NAMED else ""
        )
        return (
            f"hosts send heartbeats, but topic {topic} has no current report of them: "
            f"{', '.join(uuids[:_MAX_NAMED])}{unnamed_text}"
        )
