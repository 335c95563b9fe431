# SPDX-License-Identifier: Apache-2.0
"""Schedulers of one cloud tell each other what they have claimed.

It goes over a topic of our own, as fan-out casts: a scheduler that misses one sees the
instance a little later, once its host reports it.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

import oslo_messaging
from oslo_messaging import rpc

from ...objects import Serializer
from ..drivers.peer_claims import PeerClaim
from ..waiting import Spawner, ThreadSpawner

LOG = logging.getLogger(__name__)

#: Not nova's "scheduler": a nova-scheduler beside us would not know the methods.
PEERS_TOPIC: Final = "moorage"
NAMESPACE: Final = "moorage"

#: Claims told of in one cast, and kept while the broker is away, at most.
_MAX_TOLD: Final = 100
_MAX_KEPT: Final = 10_000


class HearsOfClaims(Protocol):
    """The part of the scheduler that is told of claims."""

    def apply_peer_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        """Take the claims of another scheduler."""


class PeersEndpoint:
    """Hear what other schedulers have claimed.

    Parameters
    ----------
    origin : str
        The own name, whose casts come back, too, and are left alone.
    """

    target = oslo_messaging.Target(namespace=NAMESPACE, version="1.0")

    def __init__(self, scheduler: HearsOfClaims, origin: str) -> None:
        self._scheduler = scheduler
        self._origin = origin

    def instances_claimed(
        self, context: object, origin: str, claims: list[dict[str, Any]]
    ) -> None:
        """Take claims, as `PeerClaim.to_wire` writes them."""
        if origin != self._origin:
            self._scheduler.apply_peer_claims(claims)


class Peers:
    """Announce claims to other schedulers, in a thread of its own: no decision waits.

    Attributes
    ----------
    origin : str
        This process, by a name that no other has.
    """

    def __init__(
        self,
        transport: oslo_messaging.Transport,
        *,
        spawner: Spawner | None = None,
    ) -> None:
        self.origin = str(uuid.uuid4())
        target = oslo_messaging.Target(
            topic=PEERS_TOPIC, namespace=NAMESPACE, version="1.0", fanout=True
        )
        self._client = rpc.get_rpc_client(transport, target, serializer=Serializer())
        spawner = spawner or ThreadSpawner()
        self._claims: deque[PeerClaim] = deque()
        self._lock = spawner.lock()
        self._has_news = spawner.event()
        self._is_stopping = False
        self._thread = spawner.spawn(self._run, name="peers")

    def announce(self, claims: Sequence[PeerClaim]) -> None:
        """Announce claims soon; where the broker is away for long, never."""
        with self._lock:
            n_free = _MAX_KEPT - len(self._claims)
            self._claims.extend(claims[:n_free])
        if n_free < len(claims):
            LOG.warning(
                "Other schedulers are not sent a claim: %d wait for the broker",
                _MAX_KEPT,
            )
        self._has_news.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Announce the last claims, if the broker takes them in time."""
        self._is_stopping = True
        self._has_news.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._is_stopping or self._claims:
            self._has_news.wait()
            self._has_news.clear()
            while claims := self._next():
                self._tell(claims)

    def _next(self) -> Sequence[PeerClaim]:
        """Return what fits into one cast."""
        with self._lock:
            n_claims = min(len(self._claims), _MAX_TOLD)
            return [self._claims.popleft() for _ in range(n_claims)]

    def _tell(self, claims: Sequence[PeerClaim]) -> None:
        try:
            self._client.cast(
                {},
                "instances_claimed",
                origin=self.origin,
                claims=[claim.to_wire() for claim in claims],
            )
        except Exception as e:  # a driver's library raises errors of its own, too
            LOG.warning(
                "Other schedulers are not told of %d claims: %s", len(claims), e
            )
