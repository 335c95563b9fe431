# SPDX-License-Identifier: Apache-2.0
"""Handle Ctrl-C between two steps instead of during one."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


class Interrupt:
    """Store SIGINT until `check` is called; a second one raises KeyboardInterrupt.

    A KeyboardInterrupt at an arbitrary place can be lost, because Python ignores one in
    the callback of a weak reference, or leave a thread that was just started.

    Attributes
    ----------
    requested_at : float or None
        The monotonic time at which SIGINT was received.
    """

    def __init__(self) -> None:
        self.requested_at: float | None = None
        signal.signal(signal.SIGINT, self._request)

    def _request(self, _number: int, _frame: object) -> None:
        self.requested_at = time.monotonic()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if SIGINT was received."""
        if self.requested_at is not None:
            raise KeyboardInterrupt

    def checking(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items, and check before each."""
        for item in items:
            self.check()
            yield item
