# SPDX-License-Identifier: Apache-2.0
"""The result of the last reload, in all processes of a service."""

from __future__ import annotations

import mmap
import os
from typing import Final

#: Size of the memory that the processes share; a longer failure is truncated.
_SHARED_BYTES: Final = 4096


class ReloadResult:
    """The cause for which the last reload failed; "" if it succeeded.

    The owner is the process that created this object. It reads the options first. If
    that fails, it does not signal a reload to the workers that it has forked: they must
    learn of the failure from here. What a worker records is not shared.
    """

    def __init__(self) -> None:
        self._owner_pid = os.getpid()
        self._shared = mmap.mmap(-1, _SHARED_BYTES)
        self._worker_failure = ""

    @property
    def is_owner(self) -> bool:
        """Whether this process created this object."""
        return os.getpid() == self._owner_pid

    def record(self, failure: str) -> None:
        """Record why a reload failed; "": it succeeded."""
        if not self.is_owner:
            self._worker_failure = failure
            return
        encoded = failure.encode()[: _SHARED_BYTES - 1]
        self._shared[:] = encoded.ljust(_SHARED_BYTES, b"\0")

    @property
    def failure(self) -> str:
        """Why the last reload failed; "" if it succeeded, or before the first one."""
        owner_failure = self._shared[:].rstrip(b"\0").decode(errors="ignore")
        return self._worker_failure or owner_failure
