# SPDX-License-Identifier: Apache-2.0
"""Replace a file at once, so that a reader sees the old text or the new one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Of a new file: it is read by services of other users.
_MODE: Final = 0o644


def replace_file(path: Path, text: str, check: Callable[[Path], object]) -> None:
    """Write a text to a file, which may exist.

    Parameters
    ----------
    check : callable
        Reads the new file before it replaces the old one; an error of it is raised.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    path = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    made = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        check(made)
        if path.exists():
            shutil.copymode(path, made)
        else:
            made.chmod(_MODE)
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
