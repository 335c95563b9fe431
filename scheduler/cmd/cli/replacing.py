# SPDX-License-Identifier: Apache-2.0
"""Replace a file at once, so that a reader sees the old text or the new one."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: The mode of a new file: services of other users read it.
_MODE: Final = 0o644


def require_replaceable(path: Path) -> Path:
    """Return a path without symbolic links, whose file may be replaced by another.

    A new file in the place of a device, such as /dev/null, would break the machine.

    Raises
    ------
    OSError
        The path is that of something else than a regular file.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "It is no regular file", str(path))
    return path


def replace_file(path: Path, text: str, check: Callable[[Path], object]) -> None:
    """Write a text to a file, which may exist.

    Parameters
    ----------
    check : callable
        Reads the new file before it replaces the old one; its errors are raised.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    path = require_replaceable(path)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    new_path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        check(new_path)
        if path.exists():
            shutil.copymode(path, new_path)
        else:
            new_path.chmod(_MODE)
        new_path.replace(path)
    except BaseException:
        new_path.unlink(missing_ok=True)
        raise
