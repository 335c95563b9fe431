# SPDX-License-Identifier: Apache-2.0
"""A check with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from .result import CheckResult


class TimedCall:
    """A check in its own thread, so that waiting for it can time out."""

    def __init__(self, work: Callable[[], CheckResult]) -> None:
        self._work = work
        self._outcome: Future[CheckResult] = Future()
        # Not an executor's thread: Python would wait for that at exit.
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._outcome.set_result(self._work())
        except Exception as e:  # raised again in `result`
            self._outcome.set_exception(e)

    def result(self, timeout_s: float) -> CheckResult:
        """Return or raise the outcome; TimeoutError if it takes longer."""
        try:
            return self._outcome.result(timeout_s)
        except TimeoutError:
            if self._outcome.done():
                raise
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
