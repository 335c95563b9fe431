# SPDX-License-Identifier: Apache-2.0
"""moorage-status orphans: list allocations without evidence of use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oslo_config import cfg
from rich.console import Console
from rich.table import Table

from ..conf import load
from ..failures import one_line
from ..placement.allocations.journal import suspected_in

DESCRIPTION: Final = (
    "orphans: list allocations that may have been claimed for a request without an "
    "answer, and of which nothing shows that they are in use. Exit status: 0: none, 1: "
    "some, 2: [moorage] claims_directory cannot be read, or not all of it."
)


def run(argv: Sequence[str]) -> int:
    """List the suspected orphans in ``[moorage] claims_directory``.

    Parameters
    ----------
    argv : sequence of str
        The options after the command: ``--config-file`` and ``--config-dir``.

    Returns
    -------
    int
        0: there are no suspected orphans. 1: there are some. 2: an option is missing or
        invalid, or the folder or a line in it cannot be read.
    """
    try:
        conf = load(list(argv), description=DESCRIPTION)
        folder = conf.moorage.claims_directory
        if not folder:
            raise cfg.Error(
                "[moorage] claims_directory is not set: orphans are in the log only"
            )
        malformed: dict[Path, int] = {}
        entries = suspected_in(Path(folder), malformed)
    except (cfg.Error, OSError) as e:
        print(f"moorage-status orphans: {one_line(e)}", file=sys.stderr)
        return 2
    for path, n_lines in malformed.items():
        print(
            f"moorage-status orphans: {path} has {n_lines} malformed lines: the claims "
            "in them are unknown",
            file=sys.stderr,
        )
    if not entries:
        if not malformed:
            print("No suspected orphans.")
        return 2 if malformed else 0
    table = Table("consumer", "resource providers", title="Suspected orphans")
    for entry in entries:
        providers = ", ".join(sorted(entry.request["allocations"]))
        table.add_row(entry.consumer_uuid, providers)
    Console().print(table)
    return 2 if malformed else 1
