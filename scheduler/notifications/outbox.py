# SPDX-License-Identifier: Apache-2.0
"""Notifications wait here for a thread that sends them: no decision waits for a bus."""

from __future__ import annotations

import dataclasses
import logging
import os
import queue
import threading
import time
from typing import Any, Final

from .notifiers import Notifier

LOG = logging.getLogger(__name__)

#: Notifications that wait for a bus that is away, at most; later ones are dropped.
MAX_WAITING: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Letter:
    """One notification on its way."""

    notifier: Notifier
    context: Any
    event_type: str
    payload: dict[str, Any]


class Outbox:
    """Send letters in their order, from one thread, which starts with the first.

    A process that is forked has a thread of its own, and none of its parent's letters.
    That sending fails is logged once, and so is that it works again.
    """

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._letters: queue.Queue[Letter | None] = queue.Queue(max_waiting)
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._is_failing = False
        self._n_lost = 0

    def put(self, letter: Letter) -> None:
        """Have a letter sent soon; where too many wait already, never."""
        try:
            self._opened().put_nowait(letter)
        except queue.Full:
            self.failed("%d wait for the message bus already", self._max_waiting)

    def failed(self, why: str, *details: object) -> None:
        """Say that a notification is lost, unless that was said of the last one."""
        self._n_lost += 1
        if not self._is_failing:
            self._is_failing = True
            LOG.warning(
                f"Notifications are lost, decisions are made all the same: {why}",
                *details,
            )

    def _worked(self) -> None:
        if self._is_failing:
            LOG.warning("Notifications go out again; %d were lost", self._n_lost)
            self._is_failing, self._n_lost = False, 0

    def _opened(self) -> queue.Queue[Letter | None]:
        with self._lock:
            if self._pid != os.getpid():
                self._empty()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._letters,),
                    name="notifications",
                    daemon=True,
                )
                self._thread.start()
            return self._letters

    def _empty(self) -> None:
        self._letters, self._thread = queue.Queue(self._max_waiting), None
        self._pid = os.getpid()

    def _run(self, letters: queue.Queue[Letter | None]) -> None:
        while (letter := letters.get()) is not None:
            try:
                letter.notifier.info(letter.context, letter.event_type, letter.payload)
            except Exception as e:
                # Whatever somebody else's notifier raises: the next may get through.
                self.failed("%s: %s", type(e).__name__, e)
            else:
                self._worked()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Send what waits, if the bus takes it in time; the next letter starts anew.

        Returns
        -------
        bool
            Whether nothing is being sent any more.
        """
        with self._lock:
            thread, letters = self._thread, self._letters
            is_ours = self._pid == os.getpid()
            self._empty()
        if thread is None or not is_ours:
            return True
        ends = time.monotonic() + timeout_s
        try:
            letters.put(None, timeout=timeout_s)
        except queue.Full:
            LOG.warning("%d notifications are lost at the end", letters.qsize())
            return False
        thread.join(max(0.0, ends - time.monotonic()))
        return not thread.is_alive()
