# SPDX-License-Identifier: Apache-2.0
"""Schedulers of one cloud tell each other what they have claimed.

It goes over a topic of our own, as fan-out casts: a scheduler that misses one sees the
instance a little later, once its host reports it.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final, Protocol

import oslo_messaging
from oslo_messaging import rpc

from ...objects import Serializer
from ..drivers.announcing import AnnouncedClaim

LOG = logging.getLogger(__name__)

#: Not nova's "scheduler": a nova-scheduler beside us would not know the methods.
PEERS_TOPIC: Final = "moorage"
NAMESPACE: Final = "moorage"

#: Claims told of in one cast, and kept while the broker is away, at most.
_MAX_TOLD: Final = 100
_MAX_KEPT: Final = 10_000


class HearsOfClaims(Protocol):
    """The part of the scheduler that is told of claims."""

    def hear(self, claims: Sequence[dict[str, Any]]) -> None:
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
        """Take claims, as `AnnouncedClaim.to_wire` writes them."""
        if origin != self._origin:
            self._scheduler.hear(claims)


class Peers:
    """Tell the other schedulers, from a thread of its own: no decision waits.

    Attributes
    ----------
    origin : str
        This process, by a name that no other has.
    """

    def __init__(self, transport: oslo_messaging.Transport) -> None:
        self.origin = str(uuid.uuid4())
        target = oslo_messaging.Target(
            topic=PEERS_TOPIC, namespace=NAMESPACE, version="1.0", fanout=True
        )
        self._client = rpc.get_rpc_client(transport, target, serializer=Serializer())
        self._queue: queue.Queue[AnnouncedClaim | None] = queue.Queue(_MAX_KEPT)
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
        self._thread.start()

    def announce(self, claims: Sequence[AnnouncedClaim]) -> None:
        """Tell the others soon; where the broker is away for long, never."""
        try:
            for claim in claims:
                self._queue.put_nowait(claim)
        except queue.Full:
            LOG.warning(
                "Other schedulers are not told of a claim: %d wait for the broker",
                _MAX_KEPT,
            )

    def stop(self, timeout_s: float = 5.0) -> None:
        """Tell the last claims, if the broker takes them in time."""
        until = time.monotonic() + timeout_s
        with contextlib.suppress(queue.Full):  # the broker takes nothing
            self._queue.put(None, timeout=timeout_s)
        self._thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        is_last = False
        while not is_last:
            first = self._queue.get()
            claims, is_last = self._waiting(first)
            if claims:
                self._tell(claims)

    def _waiting(
        self, first: AnnouncedClaim | None
    ) -> tuple[Sequence[AnnouncedClaim], bool]:
        """Return what waits to be told, and whether that is all there will be."""
        claims: list[AnnouncedClaim] = []
        following = first
        while following is not None:
            claims.append(following)
            if len(claims) >= _MAX_TOLD or self._queue.empty():
                return claims, False
            following = self._queue.get()
        return claims, True

    def _tell(self, claims: Sequence[AnnouncedClaim]) -> None:
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
