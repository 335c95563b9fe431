# SPDX-License-Identifier: Apache-2.0
"""Claims that nobody owns and that Placement would not take back yet."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterable

from ..errors import PlacementError
from .candidates import AllocationRequest
from .claims import release
from .client import ConsumerAllocations, PlacementClient, doubled

LOG = logging.getLogger(__name__)

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Orphan:
    """A claim that was, or may have been, made for a request that failed.

    Attributes
    ----------
    request : mapping
        What was claimed.
    before : ConsumerAllocations or None
        What the consumer held already, and keeps (evacuation).
    """

    request: AllocationRequest
    before: ConsumerAllocations | None = None

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
            self._orphans[consumer_uuid] = orphan
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="orphans", daemon=True
                )
                self._thread.start()

    def make_way(self, consumer_uuids: Iterable[str]) -> None:
        """Release these now or never: a new request is about to claim for them."""
        for uuid in self._orphans.keys() & set(consumer_uuids):
            self._settle(uuid)
            with self._lock:
                self._orphans.pop(uuid, None)

    def stop(self) -> None:
        """Try a last time, and tell of those that are left."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for uuid in tuple(self._orphans):
            if not self._settle(uuid):
                LOG.error("Consumer %s may hold an allocation of nobody's", uuid)

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._stop.wait(wait_s):
            for uuid in tuple(self._orphans):
                if not self._settle(uuid):
                    break  # Placement is away still: the others would wait, too
            with self._lock:
                if not self._orphans:
                    self._thread = None
                    return
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _settle(self, uuid: str) -> bool:
        """Return whether a consumer needs no care any more."""
        orphan = self._orphans.get(uuid)
        if orphan is None:
            return True
        before = {uuid: orphan.before} if orphan.before else None
        try:
            if orphan.is_held(self._client.allocations(uuid)):
                release(self._client, [uuid], before=before)
                LOG.info("Released the allocation of consumer %s", uuid)
        except PlacementError:
            return False
        with self._lock:
            if self._orphans.get(uuid) is orphan:
                del self._orphans[uuid]
        return True
