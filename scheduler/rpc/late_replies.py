# SPDX-License-Identifier: Apache-2.0
"""Replies whose caller's queue is missing, retried by one thread for all of them.

A queue is missing for a moment while a broker fails over, and for good once its caller
is gone. oslo.messaging waits for it in the thread that served the call; a conductor
that is restarted with many calls outstanding would stop a scheduler like that.
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

#: Seconds between two tries.
_EVERY_S: Final = 0.5
#: Replies that are kept; the oldest one is given up for the next.
_MAX_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class LateReply:
    """A reply that could not be sent yet.

    Attributes
    ----------
    queue : str
        Where it goes.
    limit_s : float
        How long it is retried, in seconds; its caller waits no longer.
    send : callable
        Return whether it was sent, or fail for good; False: its queue is missing.
    close : callable
        Called once, when it was sent or is given up.
    """

    queue: str
    limit_s: float
    send: Callable[[], bool]
    close: Callable[[], None]


class LateReplies:
    """Retry replies until they are sent or their callers wait no more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: Each with the time at which it is given up.
        self._kept: dict[LateReply, float] = {}
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, reply: LateReply) -> None:
        """Retry a reply from now on."""
        with self._changed:
            # The oldest expire: the thread that may be sending them gives them up.
            n_over = max(0, len(self._kept) + 1 - _MAX_KEPT)
            self._kept.update(dict.fromkeys(list(self._kept)[:n_over], -math.inf))
            self._kept[reply] = time.monotonic() + reply.limit_s
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="moorage late replies", daemon=True
                )
                self._thread.start()
        if n_over:
            LOG.warning("%d replies wait for missing queues", _MAX_KEPT)

    def wait(self) -> None:
        """Return once all are sent or given up."""
        with self._changed:
            while self._kept:
                self._changed.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(_EVERY_S)
                if not self._kept:
                    self._thread = None
                    return
                kept = list(self._kept)
            self._try(kept)

    def _try(self, replies: Iterable[LateReply]) -> None:
        missing: set[str] = set()
        for reply in replies:
            # Checked first: its caller has stopped waiting, and uses no claim.
            if time.monotonic() >= self._kept.get(reply, 0.0):
                self._give_up(reply)
            elif reply.queue not in missing and self._is_done(reply):
                self._end(reply)
            else:
                missing.add(reply.queue)

    def _is_done(self, reply: LateReply) -> bool:
        try:
            return reply.send()
        except Exception:  # whatever the broker's library raises: the others go on
            LOG.exception("A reply to %s cannot be sent", reply.queue)
            return True

    def _give_up(self, reply: LateReply) -> None:
        if self._end(reply):
            LOG.error(
                "A reply was not sent within %.0f s: the caller's queue %s is missing",
                reply.limit_s,
                reply.queue,
            )

    def _end(self, reply: LateReply) -> bool:
        """Forget a reply; return whether this call did."""
        with self._changed:
            is_mine = self._kept.pop(reply, None) is not None
        if is_mine:
            try:
                reply.close()
            except Exception:  # the other replies are still to be sent
                LOG.exception("Claims of an expired reply cannot be released")
            with self._changed:
                self._changed.notify_all()
        return is_mine
