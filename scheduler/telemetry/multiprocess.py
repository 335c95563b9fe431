# SPDX-License-Identifier: Apache-2.0
"""The folder in which several processes store the metrics that are summed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Passes the folder to prometheus_client, which reads it when it is imported.
VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def share_folder() -> Callable[[], None]:
    """Store the metrics of this process and of those that it forks in one folder.

    Called before anything imports prometheus_client. A folder that the environment
    names already is used, and is not removed.

    Returns
    -------
    callable
        Removes the folder; does nothing in a forked process.
    """
    if os.environ.get(VARIABLE):
        return _do_nothing
    folder = tempfile.mkdtemp(prefix="moorage-metrics-")
    os.environ[VARIABLE] = folder
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            os.environ.pop(VARIABLE, None)
            shutil.rmtree(folder, ignore_errors=True)

    return remove


def folder() -> Path | None:
    """Return the folder; None: this process is the only one."""
    path = os.environ.get(VARIABLE)
    return Path(path) if path else None


def _do_nothing() -> None:
    """Leave the folder to its creator."""
