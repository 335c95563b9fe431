# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, heeded between two steps instead of in the middle of one."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


class Interrupt:
    """Remember SIGINT until somebody looks; a second one ends whatever is done.

    A KeyboardInterrupt out of nowhere can be lost (Python ignores one that comes in a
    weak reference's callback), or come before a thread that it starts is known.
    """

    def __init__(self) -> None:
        self._is_asked = False
        signal.signal(signal.SIGINT, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self._is_asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if it was asked for."""
        if self._is_asked:
            raise KeyboardInterrupt

    def heeding(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items, and look before each."""
        for item in items:
            self.check()
            yield item
