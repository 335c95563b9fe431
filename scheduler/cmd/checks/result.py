# SPDX-License-Identifier: Apache-2.0
"""The result of a check, which may have a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
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
        """Return a result with which Moorage runs, but behaves differently."""
        return cls(name, Code.WARNING, details)

    @classmethod
    def failure(cls, name: str, details: str) -> CheckResult:
        """Return a result with which Moorage does not run, or finds no host."""
        return cls(name, Code.FAILURE, details)


class TimedCall:
    """A check in its own thread, so that waiting for it can time out."""

    def __init__(self, work: Callable[[], CheckResult]) -> None:
        self._work = work
        self._outcome: Future[CheckResult] = Future()
        # Not in an executor: Python would wait for its threads at exit.
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._outcome.set_result(self._work())
        except Exception as e:  # raised again in `result`
            self._outcome.set_exception(e)

    def result(self, timeout_s: float) -> CheckResult:
        """Return the result, or raise the error, of the check.

        Raises
        ------
        TimeoutError
            The check has not ended after `timeout_s`.
        """
        try:
            return self._outcome.result(timeout_s)
        except TimeoutError:
            if self._outcome.done():
                raise
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
