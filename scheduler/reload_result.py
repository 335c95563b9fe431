# SPDX-License-Identifier: Apache-2.0
"""The result of the last reload, in all processes of a service."""

from __future__ import annotations

import mmap
import os
from typing import Final

#: Bytes of a failure that the workers get; a longer one is truncated.
_SHARED_BYTES: Final = 4096


class ReloadResult:
    """Why the last reload failed, or "".

    The process that created this object, the owner, shares what it records with the
    workers that it has forked: it reads the options first, and sends them no signal if
    that fails. A worker's own record is not shared.
    """

    def __init__(self) -> None:
        self._owner_pid = os.getpid()
        self._shared = mmap.mmap(-1, _SHARED_BYTES)
        self._own = ""

    @property
    def is_owner(self) -> bool:
        """Whether this process created this object."""
        return os.getpid() == self._owner_pid

    def record(self, failure: str) -> None:
        """Record the outcome of a reload; "": it succeeded."""
        if not self.is_owner:
            self._own = failure
            return
        encoded = failure.encode()[: _SHARED_BYTES - 1]
        self._shared[:] = encoded.ljust(_SHARED_BYTES, b"\0")

    @property
    def failure(self) -> str:
        """Why the last reload failed; "" if it succeeded, or if there was none."""
        shared = self._shared[:].rstrip(b"\0").decode(errors="ignore")
        return self._own or shared
