# SPDX-License-Identifier: Apache-2.0
"""GETs on their way: who sent them, who waits, and those in the background."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ..errors import PlacementError, PlacementUnavailable
from .offers import Answer, Taken
from .query import CandidatesQuery

LOG = logging.getLogger(__name__)

#: How many answers are renewed in the background at a time.
MAX_RENEWALS: Final = 2


@dataclass(slots=True, eq=False)
class Flight:
    """One GET on its way. Where it ends without a result, its sender was killed.

    Attributes
    ----------
    query : CandidatesQuery
    began : int
        The moment before it was sent.
    began_at : float
        The same on its sender's clock, seconds.
    claims : list of Taken
        Those that ended since it began.
    result : Answer or PlacementError, optional
        Set before it is done.
    done : threading.Event
    """

    query: CandidatesQuery
    began: int
    began_at: float
    claims: list[Taken] = field(default_factory=list)
    result: Answer | PlacementError | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self, deadline: float | None) -> None:
        """Return once it is done; PlacementUnavailable when ``monotonic`` says so."""
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not self.done.wait(left_s):
            raise PlacementUnavailable(
                f"GET {self.query.path} of Placement, sent for another request, "
                "was not answered before this one's time was over."
            )

    def answer(self) -> Answer | None:
        """Return the answer, or raise what the sender got; None: it was killed."""
        if isinstance(self.result, PlacementError):
            # One exception in two threads would share its traceback.
            raise copy.copy(self.result) from self.result
        return self.result


class Renewals:
    """Send GETs in threads of their own, a few at a time. It is called under a lock.

    Parameters
    ----------
    send : callable
        Sends a flight and returns once it is done; it may raise PlacementError.
    lock : threading.Lock
        The lock under which `start` is called.
    """

    def __init__(self, send: Callable[[Flight], object], lock: threading.Lock) -> None:
        self._send = send
        self._lock = lock
        self._threads: set[threading.Thread] = set()
        self._is_stopped = False

    @property
    def has_room(self) -> bool:
        """Tell whether one more may start."""
        return not self._is_stopped and len(self._threads) < MAX_RENEWALS

    def start(self, flight: Flight) -> bool:
        """Send a flight; False: the system has no thread for it."""
        thread = threading.Thread(
            target=self._run, args=(flight,), name="allocation-candidates", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as e:
            LOG.warning("Kept allocation candidates cannot be renewed: %s", e)
            return False
        self._threads.add(thread)
        return True

    def stop(self) -> None:
        """Start none any more, and wait for those on their way; not under the lock."""
        with self._lock:
            self._is_stopped = True
            threads = tuple(self._threads)
        for thread in threads:
            thread.join()

    def _run(self, flight: Flight) -> None:
        try:
            self._send(flight)
        except PlacementError as e:
            LOG.warning("Kept allocation candidates were not renewed: %s", e)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
