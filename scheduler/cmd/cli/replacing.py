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


def replace_file(
    path: Path,
    text: str,
    check: Callable[[Path], object] | None = None,
    *,
    mode: int | None = None,
) -> None:
    """Write a text to a file, which may exist.

    Parameters
    ----------
    check : callable, optional
        Reads the new file before it replaces the old one; its errors are raised.
    mode : int, optional
        The mode of the file; by default, that of the old one is kept.

    Raises
    ------
    OSError
        The file cannot be written; it names the path.
    """
    path = require_replaceable(path)
    new_path = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        new_path = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if check is not None:
            check(new_path)
        if mode is None and path.exists():
            shutil.copymode(path, new_path)
        else:
            new_path.chmod(_MODE if mode is None else mode)
        new_path.replace(path)
    except BaseException as e:
        if new_path is not None:
            new_path.unlink(missing_ok=True)
        if isinstance(e, OSError):
            raise OSError(e.errno, e.strerror, str(path)) from e
        raise


def write_output(path: Path, text: str, *, mode: int | None = None) -> None:
    """Write a text to the file of an option: to a pipe or a device, or as a whole.

    Parameters are those of `replace_file`, and so are errors.
    """
    if path.exists() and not path.is_file():  # such as /dev/stdout
        path.write_text(text, "utf-8")
    else:
        replace_file(path, text, mode=mode)
