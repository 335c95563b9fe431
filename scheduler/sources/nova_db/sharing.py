# SPDX-License-Identifier: Apache-2.0
"""One look for all who wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SharedLook:
    """Let callers share what one of them does.

    Each is content with a run that began after it asked: one that is under way may have
    missed what the caller knows.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_begun = 0
        self._n_ended = 0

    def run(self, work: Callable[[], None]) -> None:
        """Return once a run that began after this call has ended, one's own or not."""
        with self._changed:
            wanted = self._n_begun + 1
            while self._n_ended < wanted and self._n_begun != self._n_ended:
                self._changed.wait()
            if self._n_ended >= wanted:
                return
            self._n_begun += 1
        try:
            work()
        finally:
            with self._changed:
                self._n_ended = self._n_begun
                self._changed.notify_all()
