# SPDX-License-Identifier: Apache-2.0
"""In-flight GETs that several threads wait for, and background refreshes."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from ...candidates import CandidatesQuery
from ...errors import PlacementError
from ...waiting import Event, Spawner, Task
from ..candidates_source import CountedClaim
from .cached_answer import CachedAnswer

LOG = logging.getLogger(__name__)

#: How many answers are refreshed in the background at a time.
MAX_REFRESHES: Final = 2
#: A lookup refreshes an answer whose remaining lifetime is at most 1.5 times what
#: Placement takes to answer, and at least the first and at most the second of these
#: parts of its lifetime.
_REFRESH_BOUNDS: Final = (0.25, 0.75)
_REFRESH_MARGIN: Final = 1.5


def refresh_margin_s(get_s: float, lifetime_s: float) -> float:
    """Return how long before it expires an answer is refreshed, seconds.

    Parameters
    ----------
    get_s : float
        How long its GET took.
    """
    least_s, most_s = (bound * lifetime_s for bound in _REFRESH_BOUNDS)
    return min(max(least_s, _REFRESH_MARGIN * get_s), most_s)


@dataclass(slots=True, eq=False)
class InFlightGet:
    """One GET in flight. If it ends without a result, its thread was killed.

    Attributes
    ----------
    began : int
        The sequence number before it was sent.
    began_at : float
        When it was sent, in seconds of the cache's clock.
    done : Event
        Set after `result`.
    claims : list of CountedClaim
        Claims that ended since the GET began.
    """

    query: CandidatesQuery
    began: int
    began_at: float
    done: Event
    claims: list[CountedClaim] = field(default_factory=list)
    result: CachedAnswer | PlacementError | None = None

    def answer(self) -> CachedAnswer | None:
        """Return the answer or raise the sender's error; None: sender was killed."""
        if isinstance(self.result, PlacementError):
            # Two threads that raise one exception object would share its traceback.
            raise copy.copy(self.result) from self.result
        return self.result


class BackgroundRefresh:
    """Send GETs in background threads, `MAX_REFRESHES` at a time.

    Parameters
    ----------
    send : callable
        Sends a GET and returns once it is done; it may raise PlacementError.
    lock : lock
        The caller holds it when it calls `start`.
    """

    def __init__(
        self,
        send: Callable[[InFlightGet], object],
        lock: AbstractContextManager[object],
        spawner: Spawner,
    ) -> None:
        self._send = send
        self._lock = lock
        self._spawner = spawner
        self._running: dict[InFlightGet, Task] = {}
        self._is_stopped = False

    @property
    def has_capacity(self) -> bool:
        """Whether one more refresh may start."""
        return not self._is_stopped and len(self._running) < MAX_REFRESHES

    def start(self, pending: InFlightGet) -> bool:
        """Send a GET in a new thread; False: the system cannot start a thread."""

        def run() -> None:
            try:
                self._send(pending)
            except PlacementError as e:
                LOG.warning("Refreshing cached candidates failed: %s", e)
            finally:
                with self._lock:
                    del self._running[pending]

        try:
            task = self._spawner.spawn(run, name="allocation-candidates")
        except RuntimeError as e:
            LOG.warning("Starting a refresh of cached candidates failed: %s", e)
            return False
        self._running[pending] = task
        return True

    def stop(self) -> None:
        """Start no more refreshes and join running ones; do not hold the lock."""
        with self._lock:
            self._is_stopped = True
            tasks = tuple(self._running.values())
        for task in tasks:
            task.join()
