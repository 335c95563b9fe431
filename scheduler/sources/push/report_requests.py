# SPDX-License-Identifier: Apache-2.0
"""Requests to agents for whole reports, with jitter, rate limit and backoff."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LOG = logging.getLogger(__name__)

#: Request a whole report of (node UUID) from the agent at (topic, server); False: no
#: agent can be reached now.
SendRequest = Callable[[str, str, str], bool]

#: Seconds within which the first request is sent; another scheduler may send one
#: sooner, and the agent's answer is received here as well.
_FIRST_WITHIN_S: Final = 0.5
_NEXT_AFTER_S: Final = 1.0
_MAX_BACKOFF_S: Final = 60.0
#: Requests a second to all agents together.
_RATE: Final = 500.0
#: Seconds of silence after which a node is not requested any more until it reports.
_SILENT_S: Final = 300.0
#: Most nodes with a pending request; others are added with their next message.
_MAX_PENDING: Final = 100_000


@dataclass(slots=True)
class _PendingRequest:
    topic: str
    server: str
    due_at: float
    last_report_at: float
    since: float
    wait_s: float = _NEXT_AFTER_S


class ReportRequester:
    """The whole reports that are missing, and when each is requested next.

    Parameters
    ----------
    rng : random.Random, optional
        Adds jitter to the requests.
    clock : callable, optional
        Returns monotonic seconds.
    """

    def __init__(
        self,
        *,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Not a generator with a state: forked workers would all send at the same time.
        self._rng = rng or random.SystemRandom()
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, _PendingRequest] = {}
        self._send: SendRequest | None = None
        self._allowance = 0.0
        self._allowed_at = clock()
        self.n_sent = 0

    def __len__(self) -> int:
        return len(self._pending)

    def connect(self, send: SendRequest) -> None:
        """Set the function that sends a request to an agent."""
        self._send = send

    def request(self, node_uuid: str, topic: str | None, server: str | None) -> None:
        """Request a whole report of a node from the agent at that topic and server."""
        if topic is None or server is None:
            return  # it accepts no requests; its next whole report may still arrive
        now = self._clock()
        with self._lock:
            pending = self._pending.get(node_uuid)
            if pending is not None:
                pending.topic, pending.server = topic, server
                pending.last_report_at = now
            elif len(self._pending) < _MAX_PENDING:
                due_at = now + self._rng.uniform(0, _FIRST_WITHIN_S)
                self._pending[node_uuid] = _PendingRequest(
                    topic, server, due_at, now, now
                )

    def discard(self, node_uuid: str) -> None:
        """Drop a node's request: its whole report was received, or the node is gone."""
        with self._lock:
            self._pending.pop(node_uuid, None)

    def longest_wait_s(self) -> float:
        """Return the age of the oldest pending request, in seconds."""
        with self._lock:
            first = min((p.since for p in self._pending.values()), default=None)
        return 0.0 if first is None else self._clock() - first

    def send_due(self) -> None:
        """Send the requests that are due, as many as the rate limit allows."""
        if self._send is None or not self._pending:
            return
        for node_uuid, topic, server in self._due():
            if not self._send(topic, server, node_uuid):
                return  # the others are sent when they are due again
            self.n_sent += 1

    def _due(self) -> list[tuple[str, str, str]]:
        now = self._clock()
        due = []
        with self._lock:
            earned = (now - self._allowed_at) * _RATE
            self._allowance, self._allowed_at = (
                min(_RATE, self._allowance + earned),
                now,
            )
            for node_uuid, pending in list(self._pending.items()):
                if now - pending.last_report_at > _SILENT_S:
                    del self._pending[node_uuid]
                elif pending.due_at <= now and self._allowance >= 1:
                    self._allowance -= 1
                    pending.due_at = now + pending.wait_s * self._rng.uniform(1, 1.5)
                    pending.wait_s = min(2 * pending.wait_s, _MAX_BACKOFF_S)
                    due.append((node_uuid, pending.topic, pending.server))
        return due
