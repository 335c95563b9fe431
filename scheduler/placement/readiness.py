# SPDX-License-Identifier: Apache-2.0
"""Whether Placement can do its part now; it is watched while it cannot."""

from __future__ import annotations

import logging
import threading
from typing import Final

from ..errors import PlacementError
from .client import PlacementClient
from .registration import NO_PROVIDERS

LOG = logging.getLogger(__name__)

#: Seconds between two looks at a Placement that is away, where the circuit lets them.
WATCH_EVERY_S: Final = 1.0

#: Seconds for which the end waits for a look that is on its way: it changes nothing.
_END_S: Final = 3.0


class Readiness:
    """Tell whether requests can be served, and why not.

    A thread of its own runs from the start, or from when Placement went away, until it
    answers, so that nobody's request has to find out.

    Parameters
    ----------
    client : PlacementClient
        Its circuit tells this object when it opens.
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_answered = False
        self._reason = "Placement was not asked yet."
        client.circuit.on_open(self._watch)

    @property
    def is_ready(self) -> bool:
        """Tell whether Placement answered, and has not gone away since."""
        return self._has_answered and not self._client.circuit.is_open

    @property
    def note(self) -> str:
        """Return why it is not ready, or what else an operator should know, or ""."""
        if not self._has_answered:
            return self._reason
        if reason := self._client.circuit.reason:
            return reason
        return NO_PROVIDERS if self._client.was_empty else ""

    def start(self) -> None:
        """Ask Placement; where it does not answer well, warn, and go on asking."""
        if not self._look():
            LOG.warning(
                "Placement does not answer yet; requests will fail: %s", self._reason
            )
            self._watch()

    def stop(self) -> None:
        """Ask no more; a look on its way is not waited for longer than 3 s."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_END_S)

    def _look(self) -> bool:
        try:
            self._client.probe()
        except PlacementError as e:
            self._reason = str(e)
            return False
        self._has_answered = True
        return True

    def _watch(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(
                    target=self._run, name="placement-watch", daemon=True
                )
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while not self._stop.wait(WATCH_EVERY_S):
            if not self.is_ready and not self._client.circuit.pause_left_s:
                self._look()
            with self._lock:
                if self.is_ready:
                    LOG.info("Placement answers")
                    self._thread = None
                    return
