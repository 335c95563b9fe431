# SPDX-License-Identifier: Apache-2.0
"""One refresh that concurrent callers share."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SharedRefresh:
    """Let concurrent callers share one run of some work.

    A caller waits for a run that began after its call: one that is already in progress
    may have missed the change the caller knows of.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_begun = 0
        self._n_ended = 0

    def run(self, work: Callable[[], None]) -> None:
        """Return once a run that began after this call has ended, in any thread."""
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
