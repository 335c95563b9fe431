# SPDX-License-Identifier: Apache-2.0
"""An output that cannot be written, because of a full disk or a closed stream."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Final

#: What a file system answers to a write; other errors are not those of the output.
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextlib.contextmanager
def explained_output(prefix: str, status: int) -> Iterator[None]:
    """Exit with one line on stderr if stdout is closed or its disk is full.

    Parameters
    ----------
    prefix : str
        What the line begins with.
    status : int
        The exit status.
    """
    if not sys.stdout:  # None, if the stream is closed
        print(f"{prefix}The standard output is closed", file=sys.stderr)
        sys.exit(status)
    try:
        yield
    except OSError as e:
        if e.filename is not None or e.errno not in _UNWRITABLE:
            raise
        discard_output()
        cause = f"The output cannot be written: {e.strerror}"
        print(f"{prefix}{cause}", file=sys.stderr)
        sys.exit(status)


def discard_output() -> None:
    """Write what Python flushes at exit to nowhere: it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
