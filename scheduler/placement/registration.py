# SPDX-License-Identifier: Apache-2.0
"""Whether compute services have registered with Placement yet; asked seldom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ..errors import PlacementError

#: Seconds between two looks at a Placement that was empty.
MIN_WAIT_S: Final = 10.0

#: Why nothing fits there; it may reach an end user.
NO_PROVIDERS: Final = (
    "No compute service has registered with Placement yet: it has no resource provider."
)

_URL: Final = "/resource_providers"


class RegistrationCheck:
    """Remember whether a resource provider was ever seen. It is safe for threads.

    Placement lists providers without a limit: where there are 10,000, the one GET that
    finds them costs as much as 10 claims. None follows it.

    Parameters
    ----------
    read : callable
        Returns the decoded answer to a GET; it may raise PlacementError.
    clock : callable, optional
        Returns seconds that only grow.
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
        """Tell what was found last; it asks nothing."""
        return self._was_empty and not self._has_seen

    def see(self) -> None:
        """Take note that there is a provider."""
        self._has_seen = True

    def is_empty(self) -> bool:
        """Tell whether there is none, as far as is known; see `PlacementClient`."""
        # Who comes while another asks is told what was found before.
        if not self._has_seen and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self.was_empty

    def _look(self) -> None:
        if self._clock() < self._next_at:
            return
        self._next_at = self._clock() + MIN_WAIT_S
        try:
            body = self._read(_URL)
        except PlacementError:
            return  # it is a hint: the error that it goes with is the greater
        match body:
            case {"resource_providers": []}:
                self._was_empty = True
            case {"resource_providers": [_, *_]}:
                self.see()
