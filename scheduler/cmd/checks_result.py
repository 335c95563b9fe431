# SPDX-License-Identifier: Apache-2.0
"""One line of the report, and how long may be waited for one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from oslo_upgradecheck.upgradecheck import Code


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how that is, and what to do about it."""

    name: str
    code: Code
    details: str

    @classmethod
    def success(cls, name: str, details: str) -> Finding:
        """All is well."""
        return cls(name, Code.SUCCESS, details)

    @classmethod
    def warning(cls, name: str, details: str) -> Finding:
        """It will run, and something is different."""
        return cls(name, Code.WARNING, details)

    @classmethod
    def failure(cls, name: str, details: str) -> Finding:
        """It will not run, or find no host."""
        return cls(name, Code.FAILURE, details)


class Pending:
    """Work in a thread of its own, which nobody waits for longer than he wants."""

    def __init__(self, work: Callable[[], Finding]) -> None:
        self._outcome: queue.SimpleQueue[Finding | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], Finding]) -> None:
        try:
            self._outcome.put(work())
        except Exception as e:  # raised again in `result`
            self._outcome.put(e)

    def result(self, timeout_s: float) -> Finding:
        """Return what came of it, or raise that; TimeoutError if it takes longer."""
        try:
            outcome = self._outcome.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
