# SPDX-License-Identifier: Apache-2.0
"""A journal's file: locked by the process that writes it, or that takes it over."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...errors import ConfigurationError

_PREFIX: Final = "claims-"
#: The name of a journal's file; the group is the id of the process.
JOURNAL_NAME: Final = re.compile(rf"{_PREFIX}(\d+)-\w+")


class JournalFile:
    """A file that only this process writes to; it is locked while it is open."""

    def __init__(self, folder: Path) -> None:
        while True:
            # Readable by its owner only.
            fd, name = tempfile.mkstemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=folder)
            self.path, self._fd = Path(name), fd
            self.n_bytes = 0
            try:
                if try_lock(fd, self.path):
                    break
            except OSError:
                self.close()
                raise
            # Another process took the file over, and is about to remove it.
            os.close(fd)

    def append(self, lines: bytes) -> None:
        """Write lines at the end.

        Raises
        ------
        OSError
            The lines could not be written, or only in part.
        """
        n_written = os.write(self._fd, lines)
        self.n_bytes += n_written
        if n_written < len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def empty(self) -> None:
        """Remove all lines."""
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self.n_bytes = 0

    def close(self) -> None:
        """Remove the file, and its lock."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            self.empty()  # entries that are resolved later must not be taken over
            raise
        finally:
            os.close(self._fd)


def make_folder(folder: Path) -> None:
    """Create a folder for its owner only, if it is missing.

    Raises
    ------
    ConfigurationError
        The folder cannot be used.
    """
    with report_unusable(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def report_unusable(folder: Path) -> Iterator[None]:
    """Raise ConfigurationError, which names the option, instead of OSError."""
    try:
        yield
    except OSError as e:
        raise ConfigurationError(
            f"Unsettled claims cannot be recorded in {folder}: {e}. [moorage] "
            "claims_directory must be a folder that this user may write to"
        ) from e


def try_lock(fd: int, path: Path) -> bool:
    """Lock an open file; False: another process has locked it, or the file is gone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(fd).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def read_all(fd: int) -> bytes:
    """Return the content of an open file."""
    with os.fdopen(os.dup(fd), "rb") as file:
        return file.read()
