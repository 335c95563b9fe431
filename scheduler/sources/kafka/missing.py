# SPDX-License-Identifier: Apache-2.0
"""Hosts that send heartbeats, but whose report the topic has lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Seconds for which heartbeats must lack their report. A single one says little: it
#: may be read before its report, or after that of an agent that has restarted.
_LATE_S: Final = 30.0
#: Seconds after its last heartbeat for which a host is remembered.
_REMEMBERED_S: Final = 60.0
_MAX_HOSTS: Final = 100_000
_MAX_NAMED: Final = 5


@dataclass(slots=True)
class _Heartbeats:
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
        """Note a heartbeat without its report."""
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
        """Return the nodes whose report is missing for long, for an operator; or ""."""
        now = self._clock()
        with self._lock:
            for uuid, heartbeats in list(self._nodes.items()):
                if not heartbeats.is_remembered(now):
                    del self._nodes[uuid]
            late = sorted(uuid for uuid, h in self._nodes.items() if h.is_late)
        if not late:
            return ""
        others = f" and {len(late) - _MAX_NAMED} more" if len(late) > _MAX_NAMED else ""
        return (
            f"hosts send heartbeats, but topic {topic} has no current report of them: "
            f"{', '.join(late[:_MAX_NAMED])}{others}"
        )
