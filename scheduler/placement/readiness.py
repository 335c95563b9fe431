# SPDX-License-Identifier: Apache-2.0
"""Whether Placement can serve requests; it is polled while it cannot."""

from __future__ import annotations

import logging
import threading
from typing import Final

from ..errors import PlacementError
from .client import PlacementClient
from .registration import NO_PROVIDERS

LOG = logging.getLogger(__name__)

#: Seconds between two polls of a Placement that is down, where the circuit permits.
POLL_INTERVAL_S: Final = 1.0

#: How long `stop` waits for a poll in flight, which changes nothing.
_STOP_TIMEOUT_S: Final = 3.0


class Readiness:
    """Whether Placement can serve requests, and why not.

    A thread polls Placement from the start, or from when its circuit opens, until it
    answers, so that no request has to wait for the first failure.

    Parameters
    ----------
    client : PlacementClient
        Its circuit starts the polling when it opens.
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_answered = False
        self._reason = "Placement has not been polled yet."
        client.circuit.on_open(self._start_polling)

    @property
    def is_ready(self) -> bool:
        """Whether Placement has answered, and its circuit is not open."""
        return self._has_answered and not self._client.circuit.is_open

    @property
    def note(self) -> str:
        """Why it is not ready, or what else an operator should know, or ""."""
        if not self._has_answered:
            return self._reason
        if reason := self._client.circuit.reason:
            return reason
        return NO_PROVIDERS if self._client.was_empty else ""

    def start(self) -> None:
        """Poll Placement once; if that fails, warn and start polling."""
        if not self._probe():
            LOG.warning(
                "Placement does not answer yet; requests will fail: %s", self._reason
            )
            self._start_polling()

    def stop(self) -> None:
        """Stop polling; wait at most 3 s for a poll in flight."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_TIMEOUT_S)

    def _probe(self) -> bool:
        try:
            self._client.probe()
        except PlacementError as e:
            self._reason = str(e)
            return False
        self._has_answered = True
        return True

    def _start_polling(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(
                    target=self._run, name="placement-watch", daemon=True
                )
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while not self._stop.wait(POLL_INTERVAL_S):
            if not self.is_ready and not self._client.circuit.pause_left_s:
                self._probe()
            with self._lock:
                if self.is_ready:
                    LOG.info("Placement answers")
                    self._thread = None
                    return
