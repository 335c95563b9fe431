# SPDX-License-Identifier: Apache-2.0
"""A PID file."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from ..errors import ConfigurationError


@contextlib.contextmanager
def pid_file(path: str | None) -> Iterator[None]:
    """Write this process's id to a file, and remove the file at the end.

    A lock, which ends with the process and is not inherited by a fork, distinguishes a
    file in use from a stale one, which is replaced.

    Parameters
    ----------
    path : str, optional
        None: no file is written.

    Raises
    ------
    ConfigurationError
        The file is not writable, or another process uses it.
    """
    if path is None:
        yield
        return
    try:
        fd = _locked(path)
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
    except OSError as e:
        raise ConfigurationError(f"[moorage] pid_file {path}: {_cause(e)}") from e
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(fd)


def _locked(path: str) -> int:
    """Open the file and lock it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its previous owner has removed it since


def _is_at(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _cause(error: OSError) -> str:
    if isinstance(error, BlockingIOError | PermissionError) and error.filename is None:
        return "a running moorage-scheduler uses it; each needs its own"
    return f"it cannot be written: {error.strerror}"
