# SPDX-License-Identifier: Apache-2.0
"""Claims that nobody owns and that Placement would not take back yet."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable

from ..errors import (
    PlacementError,
    PlacementIncompatible,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from .candidates import AllocationRequest
from .claims import Doubt, release
from .client import ConsumerAllocations, PlacementClient, doubled

LOG = logging.getLogger(__name__)

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0

#: Errors that say nothing of the consumer: later, the same may succeed.
_AWAY = (PlacementIncompatible, PlacementUnauthorized, PlacementUnavailable)


def _tell_nobody() -> None:
    """Stand in where nobody keeps a note of the claim."""


@dataclasses.dataclass(frozen=True, slots=True)
class Orphan:
    """A claim that was, or may have been, made for a request that failed.

    Attributes
    ----------
    request : mapping
        What was claimed.
    before : ConsumerAllocations or None
        What the consumer held already, and keeps (evacuation).
    doubt : Doubt or None
        Where it is not known whether the claim was made: it may come yet.
    settled : callable
        Called once nobody has to look after it any more.
    """

    request: AllocationRequest
    before: ConsumerAllocations | None = None
    doubt: Doubt | None = None
    settled: Callable[[], None] = _tell_nobody

    def is_held(self, held: ConsumerAllocations) -> bool:
        """Return whether a consumer holds just this, and nothing since."""
        if self.before is None:
            return held.are(self.request)
        return held.are(doubled(self.before, self.request))


class Orphans:
    """Release claims of failed requests, again and again until Placement does so.

    A thread of its own runs while there are any. What a consumer holds by then for
    another reason is left alone.
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        self._orphans: dict[str, Orphan] = {}
        self._lock = threading.Lock()
        #: Held from a look at a consumer to its release: a new request for the same
        #: instance claims between the two else, and loses that.
        self._releasing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._orphans)

    def add(self, consumer_uuid: str, orphan: Orphan) -> None:
        """Take care of a claim until it is released."""
        LOG.warning(
            "Consumer %s may hold an allocation of a request that failed; it is "
            "released as soon as Placement answers",
            consumer_uuid,
        )
        with self._lock:
            earlier = self._orphans.get(consumer_uuid)
            self._orphans[consumer_uuid] = orphan
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="orphans", daemon=True
                )
                self._thread.start()
        if earlier is not None:
            earlier.settled()

    def make_way(self, consumer_uuids: Iterable[str]) -> None:
        """Release these now or never: a new request is about to claim for them.

        Raises
        ------
        PlacementError
            Placement is away: the request would fail, too, and they are kept.
        """
        for uuid in self._orphans.keys() & set(consumer_uuids):
            try:
                self._release(uuid)
            except PlacementError as e:
                if _is_away(e):
                    raise
                LOG.warning("The request goes on, though this failed: %s", e)
                with self._lock:
                    orphan = self._orphans.pop(uuid, None)
                if orphan is not None:
                    orphan.settled()

    def stop(self) -> None:
        """Try a last time, and tell of those that are left."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        # There is no later: Placement is asked once more, however lately it was away.
        self._client.circuit.end_pause()
        for uuid in tuple(self._orphans):
            try:
                self._release(uuid)
            except PlacementError as e:
                LOG.error("Consumer %s may hold an allocation of nobody's: %s", uuid, e)

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._stop.wait(wait_s):
            self._release_all()
            with self._lock:
                if not self._orphans:
                    self._thread = None
                    return
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _release_all(self) -> None:
        for uuid in tuple(self._orphans):
            try:
                self._release(uuid)
            except PlacementError as e:
                LOG.debug("Consumer %s is not released yet: %s", uuid, e)
                if _is_away(e):
                    return  # the others would wait, too

    def _release(self, uuid: str) -> None:
        """Release what a consumer still holds for us, and forget it."""
        with self._releasing:
            orphan = self._orphans.get(uuid)
            if orphan is None:
                return
            # The claim may come between a look and what is to prevent it, once.
            if not self._is_settled(uuid, orphan):
                self._is_settled(uuid, orphan)
            with self._lock:
                is_ours = self._orphans.get(uuid) is orphan
                if is_ours:
                    del self._orphans[uuid]
            if is_ours:
                orphan.settled()

    def _is_settled(self, uuid: str, orphan: Orphan) -> bool:
        """Release it, or see to it that it is never made; False: look again."""
        held = self._client.allocations(uuid)
        if orphan.is_held(held):
            before = {uuid: orphan.before} if orphan.before else None
            release(self._client, [uuid], before=before)
            LOG.info("Released the allocation of consumer %s", uuid)
        elif orphan.doubt is not None and orphan.doubt.may_come_yet(held):
            return orphan.doubt.prevent(self._client, uuid)
        return True


def _is_away(e: PlacementError) -> bool:
    # `release` tells of several consumers in one error, and chains the first.
    return isinstance(e, _AWAY) or isinstance(e.__cause__, _AWAY)
