# SPDX-License-Identifier: Apache-2.0
"""The results of checks, and a time limit for checks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from oslo_upgradecheck.upgradecheck import Code


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was checked, its state, and what to do about it."""

    name: str
    code: Code
    details: str

    @classmethod
    def success(cls, name: str, details: str) -> CheckResult:
        """Return a result without problems."""
        return cls(name, Code.SUCCESS, details)

    @classmethod
    def warning(cls, name: str, details: str) -> CheckResult:
        """Return a result of which Moorage runs, but behaves differently."""
        return cls(name, Code.WARNING, details)

    @classmethod
    def failure(cls, name: str, details: str) -> CheckResult:
        """Return a result of which Moorage does not run, or finds no host."""
        return cls(name, Code.FAILURE, details)


class TimedCall:
    """A check in its own thread, so that waiting for it can time out."""

    def __init__(self, work: Callable[[], CheckResult]) -> None:
        self._outcome: queue.SimpleQueue[CheckResult | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], CheckResult]) -> None:
        try:
            self._outcome.put(work())
        except Exception as e:  # raised again in `result`
            self._outcome.put(e)

    def result(self, timeout_s: float) -> CheckResult:
        """Return or raise the outcome; TimeoutError if it takes longer."""
        try:
            outcome = self._outcome.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
