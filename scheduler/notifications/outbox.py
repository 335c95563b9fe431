# SPDX-License-Identifier: Apache-2.0
"""A queue of notifications, and the thread that sends them: decisions do not wait."""

from __future__ import annotations

import dataclasses
import logging
import os
import queue
import threading
import time
from typing import Any, Final

from ..periodic import Outage
from .publishers import MessagingNotifier

LOG = logging.getLogger(__name__)

#: The maximum number of queued notifications; further ones are dropped.
MAX_WAITING: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Notification:
    """One notification to send."""

    publisher: MessagingNotifier
    context: Any
    event_type: str
    payload: dict[str, Any]


class Outbox:
    """Send notifications in order from one thread, which the first `put` starts.

    A forked process starts a thread of its own, and does not send what its parent
    process had queued. The log has the first of several consecutive failures, and the
    first success after them.
    """

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._queue: queue.Queue[Notification | None] = queue.Queue(max_waiting)
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._outage = Outage(LOG)

    def put(self, notification: Notification) -> None:
        """Queue a notification; drop it if the queue is full."""
        try:
            self._queue_of_thread().put_nowait(notification)
        except queue.Full:
            self.failed("%d wait for the message bus already", self._max_waiting)

    def failed(self, why: str, *details: object) -> None:
        """Count a lost notification, and log the first of a series."""
        text = f"Notifications are lost, decisions are not affected: {why}"
        self._outage.fail(why, text, *details)

    def _queue_of_thread(self) -> queue.Queue[Notification | None]:
        """Return the queue of this process's thread, which is started if necessary."""
        with self._lock:
            if self._pid != os.getpid():
                self._reset()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._queue,),
                    name="notifications",
                    daemon=True,
                )
                self._thread.start()
            return self._queue

    def _reset(self) -> None:
        self._queue, self._thread = queue.Queue(self._max_waiting), None
        self._pid = os.getpid()

    def _run(self, notifications: queue.Queue[Notification | None]) -> None:
        """Send the notifications of a queue; return when the queue yields None."""
        while (notification := notifications.get()) is not None:
            try:
                publisher, context = notification.publisher, notification.context
                publisher.info(context, notification.event_type, notification.payload)
            except Exception as e:
                # A caller's notifier may raise anything; the next call may succeed.
                self.failed("%s: %s", type(e).__name__, e)
            else:
                self._outage.end(
                    "Notifications are sent again; %d were lost",
                    self._outage.n_failures, level=logging.WARNING,
                )  # fmt: skip

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Send the queued notifications, and end the thread, within `timeout_s`.

        A later `put` starts a new thread.

        Returns
        -------
        bool
            Whether the thread has ended; if not, it is still sending.
        """
        with self._lock:
            thread, notifications = self._thread, self._queue
            is_of_this_process = self._pid == os.getpid()
            self._reset()
        if thread is None or not is_of_this_process:
            return True
        deadline = time.monotonic() + timeout_s
        try:
            notifications.put(None, timeout=timeout_s)
        except queue.Full:
            LOG.warning("%d notifications are lost at shutdown", notifications.qsize())
            return False
        thread.join(max(0.0, deadline - time.monotonic()))
        return not thread.is_alive()
