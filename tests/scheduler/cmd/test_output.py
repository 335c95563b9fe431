# SPDX-License-Identifier: Apache-2.0
"""An output that cannot be written is an error of one line."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

FULL = "The output cannot be written: No space left on device"
CLOSED = "The standard output is closed"


@pytest.mark.parametrize(
    ("program", "args", "prefix", "status"),
    [
        ("moorage", "completion bash", "Error", 1),
        ("moorage-status", "--config-file {} orphans", "moorage-status", 2),
        ("moorage-status", "--config-file {} upgrade check", "moorage-status", 255),
    ],
    ids=["command", "orphans", "upgrade check"],
)
@pytest.mark.parametrize(
    ("output", "cause"),
    [(">/dev/full", FULL), (">&-", CLOSED)],
    ids=["full disk", "closed"],
)
def test_it_is_one_line_and_an_exit_status(
    tmp_path: Path,
    program: str,
    args: str,
    prefix: str,
    status: int,
    output: str,
    cause: str,
) -> None:
    config = tmp_path / "moorage.conf"
    config.write_text(f"[moorage]\nclaims_directory = {tmp_path}\n")
    path = Path(sys.executable).parent / program
    command = f"{shlex.quote(str(path))} {args.format(config)} {output}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, f"{prefix}: {cause}\n")
