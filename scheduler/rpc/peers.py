# SPDX-License-Identifier: Apache-2.0
"""Exchange claims between the schedulers of one cloud.

Claims are fan-out casts on Moorage's own topic. A scheduler that misses a cast learns
of the instance a little later, when a report of its host includes it.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import Any, Final, Protocol

import oslo_messaging
from oslo_messaging import rpc

from ...objects import Serializer
from ..claim_publisher import ClaimPublisher
from ..drivers.claims.peer_claims import ClaimState, PeerClaim
from ..errors import InvalidRequest
from ..waiting import Spawner

#: Not nova's "scheduler": a nova-scheduler in the same cloud lacks the methods.
PEERS_TOPIC: Final = "moorage"
NAMESPACE: Final = "moorage"


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

    def instances_claimed(self, context: object, origin: str, claims: object) -> None:
        """Apply claims in the form of `PeerClaim.to_wire`."""
        if not isinstance(claims, list):
            raise InvalidRequest(
                f"claims: a list is needed, not {type(claims).__name__}"
            )
        if origin != self._origin:
            self._scheduler.apply_peer_claims(claims)

    def instances_reserved(self, context: object, origin: str, claims: object) -> None:
        """Apply reservations and withdrawals of reservations; since version 1.1."""
        self.instances_claimed(context, origin, claims)


class Peers:
    """Publishes claims to other schedulers in its own thread, so no decision waits.

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
        self._publisher = ClaimPublisher(self._cast, spawner=spawner)
        self.publish = self._publisher.publish
        self.stop = self._publisher.stop

    def _cast(self, claims: Sequence[PeerClaim]) -> None:
        for is_granted, group in itertools.groupby(claims, _is_granted):
            client = self._client if is_granted else self._client.prepare(version="1.1")
            client.cast(
                {},
                "instances_claimed" if is_granted else "instances_reserved",
                origin=self.origin,
                claims=[claim.to_wire() for claim in group],
            )


def _is_granted(claim: PeerClaim) -> bool:
    return claim.state is ClaimState.GRANTED
