# SPDX-License-Identifier: Apache-2.0
"""Data that readers derive from something that does not change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from cachetools import LRUCache

_T = TypeVar("_T")

#: For the present state of the hosts and the previous one: rows, mappings, and codes.
_MAX_DERIVED: Final = 6


class DerivedData:
    """A small cache of data that readers derive."""

    def __init__(self) -> None:
        self._made: LRUCache[Hashable, Any] = LRUCache(_MAX_DERIVED)
        self._lock = threading.RLock()  # `make` may itself derive something

    def get(self, token: Hashable, make: Callable[[], _T]) -> _T:
        """Return the data for `token`; call `make` once if it is not cached."""
        with self._lock:
            if token not in self._made:
                self._made[token] = make()
            made: _T = self._made[token]
            return made
