# SPDX-License-Identifier: Apache-2.0
"""In-flight GETs that several threads wait for, and background refreshes."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ...errors import PlacementError, PlacementUnavailable
from ..query import CandidatesQuery
from .offers import CachedAnswer, CountedClaim

LOG = logging.getLogger(__name__)

#: How many answers are refreshed in the background at a time.
MAX_REFRESHES: Final = 2


@dataclass(slots=True, eq=False)
class InFlightGet:
    """One GET in flight. If it ends without a result, its thread was killed.

    Attributes
    ----------
    query : CandidatesQuery
    began : int
        The tick before it was sent.
    began_at : float
        The same on the sender's clock, seconds.
    claims : list of CountedClaim
        Claims that ended since it began.
    result : CachedAnswer or PlacementError, optional
        Set before `done`.
    done : threading.Event
    """

    query: CandidatesQuery
    began: int
    began_at: float
    claims: list[CountedClaim] = field(default_factory=list)
    result: CachedAnswer | PlacementError | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self, deadline: float | None) -> None:
        """Wait until it is done; PlacementUnavailable at the ``monotonic`` deadline."""
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not self.done.wait(left_s):
            raise PlacementUnavailable(
                f"GET {self.query.path} of Placement, sent for another request, "
                "did not complete before this request's deadline."
            )

    def answer(self) -> CachedAnswer | None:
        """Return the answer or raise the sender's error; None: it was killed."""
        if isinstance(self.result, PlacementError):
            # Two threads that raise one exception object would share its traceback.
            raise copy.copy(self.result) from self.result
        return self.result


class BackgroundRefresh:
    """Send GETs in background threads, a few at a time.

    Parameters
    ----------
    send : callable
        Sends a GET and returns once it is done; it may raise PlacementError.
    lock : threading.Lock
        The caller holds it when it calls `start`.
    """

    def __init__(
        self, send: Callable[[InFlightGet], object], lock: threading.Lock
    ) -> None:
        self._send = send
        self._lock = lock
        self._threads: set[threading.Thread] = set()
        self._is_stopped = False

    @property
    def has_capacity(self) -> bool:
        """Whether one more refresh may start."""
        return not self._is_stopped and len(self._threads) < MAX_REFRESHES

    def start(self, pending: InFlightGet) -> bool:
        """Send a GET in a new thread; False: the system cannot start a thread."""
        thread = threading.Thread(
            target=self._run, args=(pending,), name="allocation-candidates", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as e:
            LOG.warning("Starting a refresh of cached candidates failed: %s", e)
            return False
        self._threads.add(thread)
        return True

    def stop(self) -> None:
        """Start no more refreshes and join running ones; do not hold the lock."""
        with self._lock:
            self._is_stopped = True
            threads = tuple(self._threads)
        for thread in threads:
            thread.join()

    def _run(self, pending: InFlightGet) -> None:
        try:
            self._send(pending)
        except PlacementError as e:
            LOG.warning("Refreshing cached candidates failed: %s", e)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
