# SPDX-License-Identifier: Apache-2.0
"""The folder in which several processes keep the figures that are summed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Names the folder to prometheus_client, which has to find it when it is imported.
VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def share() -> Callable[[], None]:
    """Have this process and those that it forks keep their figures in one folder.

    Called before anything imports prometheus_client. A folder that the environment
    names already is used, and kept.

    Returns
    -------
    callable
        Removes the folder; it does nothing in a process that was forked.
    """
    if os.environ.get(VARIABLE):
        return _keep
    folder = tempfile.mkdtemp(prefix="moorage-figures-")
    os.environ[VARIABLE] = folder
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            os.environ.pop(VARIABLE, None)
            shutil.rmtree(folder, ignore_errors=True)

    return remove


def folder() -> Path | None:
    """Return the folder; None: this process counts for itself."""
    told = os.environ.get(VARIABLE)
    return Path(told) if told else None


def _keep() -> None:
    """Do nothing: whoever made the folder removes it."""
