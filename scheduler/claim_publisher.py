# SPDX-License-Identifier: Apache-2.0
"""Publish claims to the other schedulers in a thread, so that no decision waits."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from .drivers.claims.peer_claims import PeerClaim
from .waiting import Spawner, ThreadSpawner

LOG = logging.getLogger(__name__)

#: Maximum number of claims that are sent at once, and maximum number in the queue while
#: the broker does not answer.
_MAX_AT_ONCE: Final = 100
MAX_QUEUED: Final = 10_000


class ClaimPublisher:
    """A bounded queue of claims, which a thread sends.

    Parameters
    ----------
    send : callable
        Sends some claims; called in the thread. If it raises an error, the error is
        logged, and these claims are lost.

    Attributes
    ----------
    n_dropped : int
        Claims that were not queued because the queue was full.
    """

    def __init__(
        self,
        send: Callable[[Sequence[PeerClaim]], object],
        *,
        spawner: Spawner | None = None,
    ) -> None:
        spawner = spawner or ThreadSpawner()
        self._send = send
        self._claims: deque[PeerClaim] = deque()
        self._lock = spawner.lock()
        self._is_queued = spawner.event()
        self._is_stopping = False
        self.n_dropped = 0
        self._thread = spawner.spawn(self._run, name="peers")

    def publish(self, claims: Sequence[PeerClaim]) -> None:
        """Queue claims for publication; drop them if the queue is full."""
        with self._lock:
            n_free = MAX_QUEUED - len(self._claims)
            self._claims.extend(claims[:n_free])
            self.n_dropped += max(0, len(claims) - n_free)
        if n_free < len(claims):
            LOG.warning(
                "Dropping claims for other schedulers: %d already wait for the broker",
                MAX_QUEUED,
            )
        self._is_queued.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Publish the queued claims, if the broker accepts them in time; stop."""
        self._is_stopping = True
        self._is_queued.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._is_stopping or self._claims:
            self._is_queued.wait()
            self._is_queued.clear()
            while claims := self._take_batch():
                self._try_to_send(claims)

    def _take_batch(self) -> Sequence[PeerClaim]:
        """Remove and return the claims that are sent next."""
        with self._lock:
            n_claims = min(len(self._claims), _MAX_AT_ONCE)
            return [self._claims.popleft() for _ in range(n_claims)]

    def _try_to_send(self, claims: Sequence[PeerClaim]) -> None:
        try:
            self._send(claims)
        except Exception as e:  # a driver's library raises errors of its own, too
            LOG.warning(
                "Publishing %d claims to other schedulers failed: %s", len(claims), e
            )
