# SPDX-License-Identifier: Apache-2.0
"""Retry replies whose caller's queue is missing, in one thread for all of them.

A queue is missing briefly while a broker fails over, and permanently once its
caller is gone. oslo.messaging waits for it in the thread that served the call: the
restart of a conductor with many outstanding calls would block all threads.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

LOG = logging.getLogger(__name__)

#: Seconds between two attempts.
_EVERY_S: Final = 0.5
#: Maximum number of waiting replies; the oldest one is dropped for a new one.
_MAX_WAITING: Final = 1000


@dataclass(frozen=True, slots=True)
class LateReply:
    """A reply that could not be sent yet.

    Attributes
    ----------
    queue : str
        The caller's queue.
    limit_s : float
        Seconds for which it is retried; its caller waits no longer.
    send : callable
        Sends it and returns True; False: its queue is missing. An error is final.
    close : callable
        Called once, when it has been sent or dropped.
    """

    queue: str
    limit_s: float
    send: Callable[[], bool]
    close: Callable[[], None]


class LateReplies:
    """Retries replies until they are sent or their callers have timed out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: The deadline of each reply.
        self._waiting: dict[LateReply, float] = {}
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, reply: LateReply) -> None:
        """Add a reply to retry."""
        with self._changed:
            # The oldest expire: the thread that may be sending them drops them.
            n_over = max(0, len(self._waiting) + 1 - _MAX_WAITING)
            self._waiting.update(dict.fromkeys(list(self._waiting)[:n_over], -math.inf))
            self._waiting[reply] = time.monotonic() + reply.limit_s
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="moorage late replies", daemon=True
                )
                self._thread.start()
        if n_over:
            LOG.warning(
                "%d replies wait for missing queues; dropping the oldest", _MAX_WAITING
            )

    def wait(self) -> None:
        """Wait until all replies are sent or dropped."""
        with self._changed:
            while self._waiting:
                self._changed.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(_EVERY_S)
                if not self._waiting:
                    self._thread = None
                    return
                waiting = list(self._waiting)
            self._try(waiting)

    def _try(self, replies: Iterable[LateReply]) -> None:
        missing: set[str] = set()
        for reply in replies:
            # Checked first: its caller has stopped waiting, and uses no claim.
            if time.monotonic() >= self._waiting.get(reply, 0.0):
                self._drop(reply)
            elif reply.queue not in missing and self._is_done(reply):
                self._end(reply)
            else:
                missing.add(reply.queue)

    def _is_done(self, reply: LateReply) -> bool:
        try:
            return reply.send()
        except Exception:  # the broker's library may raise anything
            LOG.exception("Sending a reply to %s failed", reply.queue)
            return True

    def _drop(self, reply: LateReply) -> None:
        if self._end(reply):
            LOG.error(
                "A reply was not sent within %.0f s: the caller's queue %s is missing",
                reply.limit_s,
                reply.queue,
            )

    def _end(self, reply: LateReply) -> bool:
        """Remove a reply; return whether this call removed it."""
        with self._changed:
            is_mine = self._waiting.pop(reply, None) is not None
        if is_mine:
            try:
                reply.close()
            except Exception:  # the other replies are still to be sent
                LOG.exception("Claims of an expired reply cannot be released")
            with self._changed:
                self._changed.notify_all()
        return is_mine
