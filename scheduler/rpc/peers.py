# SPDX-License-Identifier: Apache-2.0
"""Exchange claims between the schedulers of one cloud.

They are fan-out casts on Moorage's own topic. A scheduler that misses one learns of the
instance a little later, once its host reports it.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

import oslo_messaging
from oslo_messaging import rpc

from ...objects import Serializer
from ..drivers.claims.peer_claims import ClaimState, PeerClaim
from ..waiting import Spawner, ThreadSpawner

LOG = logging.getLogger(__name__)

#: Not nova's "scheduler": a nova-scheduler in the same cloud lacks the methods.
PEERS_TOPIC: Final = "moorage"
NAMESPACE: Final = "moorage"

#: Maximum number of claims in one cast, and in the queue while the broker is away.
_MAX_PER_CAST: Final = 100
_MAX_QUEUED: Final = 10_000


class AppliesPeerClaims(Protocol):
    """The part of the scheduler that receives claims."""

    def apply_peer_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        """Apply the claims of another scheduler."""


class PeersEndpoint:
    """Receives the claims of other schedulers.

    Parameters
    ----------
    origin : str
        The name of this process, whose own casts come back and are ignored.
    """

    target = oslo_messaging.Target(namespace=NAMESPACE, version="1.1")

    def __init__(self, scheduler: AppliesPeerClaims, origin: str) -> None:
        self._scheduler = scheduler
        self._origin = origin

    def instances_claimed(
        self, context: object, origin: str, claims: list[dict[str, Any]]
    ) -> None:
        """Apply claims in the form of `PeerClaim.to_wire`."""
        if origin != self._origin:
            self._scheduler.apply_peer_claims(claims)

    def instances_reserved(
        self, context: object, origin: str, claims: list[dict[str, Any]]
    ) -> None:
        """Apply reservations, and those that are withdrawn; since version 1.1."""
        self.instances_claimed(context, origin, claims)


class Peers:
    """Publishes claims to other schedulers, in its own thread: no decision waits.

    Attributes
    ----------
    origin : str
        A unique name of this process.
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
        self._is_queued = spawner.event()
        self._is_stopping = False
        self._thread = spawner.spawn(self._run, name="peers")

    def publish(self, claims: Sequence[PeerClaim]) -> None:
        """Queue claims for publication; drop them if the queue is full."""
        with self._lock:
            n_free = _MAX_QUEUED - len(self._claims)
            self._claims.extend(claims[:n_free])
        if n_free < len(claims):
            LOG.warning(
                "Dropping claims for other schedulers: %d already wait for the broker",
                _MAX_QUEUED,
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
                self._cast(claims)

    def _take_batch(self) -> Sequence[PeerClaim]:
        """Remove and return the claims for one cast."""
        with self._lock:
            n_claims = min(len(self._claims), _MAX_PER_CAST)
            return [self._claims.popleft() for _ in range(n_claims)]

    def _cast(self, claims: Sequence[PeerClaim]) -> None:
        for is_granted, some in itertools.groupby(claims, _is_granted):
            if is_granted:
                self._send(self._client, "instances_claimed", list(some))
            else:
                client = self._client.prepare(version="1.1")
                self._send(client, "instances_reserved", list(some))

    def _send(self, client: Any, method: str, claims: Sequence[PeerClaim]) -> None:  # noqa: ANN401 - oslo.messaging has no type of both
        try:
            client.cast(
                {},
                method,
                origin=self.origin,
                claims=[claim.to_wire() for claim in claims],
            )
        except Exception as e:  # a driver's library raises errors of its own, too
            LOG.warning(
                "Publishing %d claims to other schedulers failed: %s", len(claims), e
            )


def _is_granted(claim: PeerClaim) -> bool:
    return claim.state is ClaimState.GRANTED
