# SPDX-License-Identifier: Apache-2.0
"""Whether any compute service has registered with Placement; checked rarely."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ..errors import PlacementError

#: Seconds between two polls of a Placement that was empty.
MIN_WAIT_S: Final = 10.0

#: Why there are no candidates then; an end user may see it.
NO_PROVIDERS: Final = (
    "No compute service has registered with Placement yet: it has no resource provider."
)

_URL: Final = "/resource_providers"


class RegistrationCheck:
    """Remember whether a resource provider was ever seen. Thread-safe.

    Placement lists providers without a limit: with 10,000 of them, the one GET that
    finds them costs as much as 10 claims. It is the last one.

    Parameters
    ----------
    read : callable
        Returns the decoded answer to a GET; it may raise PlacementError.
    clock : callable, optional
        Returns monotonic seconds.
    """

    def __init__(
        self,
        read: Callable[[str], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._next_at = clock()
        self._has_seen = False
        self._was_empty = False

    @property
    def was_empty(self) -> bool:
        """The last result, without a GET."""
        return self._was_empty and not self._has_seen

    def set_registered(self) -> None:
        """Note that there is a provider."""
        self._has_seen = True

    def is_empty(self) -> bool:
        """Return whether none is known; see `PlacementClient.is_empty`."""
        # While another thread polls, the last result is returned.
        if not self._has_seen and self._lock.acquire(blocking=False):
            try:
                self._poll()
            finally:
                self._lock.release()
        return self.was_empty

    def _poll(self) -> None:
        if self._clock() < self._next_at:
            return
        self._next_at = self._clock() + MIN_WAIT_S
        try:
            body = self._read(_URL)
        except PlacementError:
            return  # only a hint: the caller reports the error that matters
        match body:
            case {"resource_providers": []}:
                self._was_empty = True
            case {"resource_providers": [_, *_]}:
                self.set_registered()
