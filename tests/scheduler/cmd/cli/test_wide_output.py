# SPDX-License-Identifier: Apache-2.0
"""Output that is wider than the terminal scrolls; a pipe gets whole lines."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios

import pytest

from ....fixtures.explaining_api import FAILED

#: A pager that marks each line.
PAGER = "sed s/^/paged:/"
COMMAND = [sys.executable, "-W", "ignore", "-m", "moorage.scheduler.cmd.cli"]


def _on_terminal(n_columns: int, url: str, *args: str, until: str = "") -> str:
    """Return what the command prints on a terminal of so many columns.

    Parameters
    ----------
    until : str
        The text after which the command is interrupted; by default it ends by itself.
    """
    leader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, n_columns))
    environment = {**os.environ, "MOORAGE_URL": url, "PAGER": PAGER, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    with subprocess.Popen(
        [*COMMAND, *args], env=environment, stdin=terminal, stdout=terminal
    ) as process:
        os.close(terminal)
        printed = b""
        try:
            while piece := os.read(leader, 65536):
                printed += piece
                if until and until.encode() in printed:
                    process.send_signal(signal.SIGINT)
        except OSError:  # Linux: all writers have closed the terminal
            pass
        finally:
            os.close(leader)
    assert process.returncode == 0, printed
    return printed.decode()


@pytest.mark.parametrize(
    ("n_columns", "is_paged"), [(40, True), (240, False)], ids=["narrow", "wide"]
)
def test_a_pager_scrolls_what_would_break_words(
    url: str, n_columns: int, is_paged: bool
) -> None:
    printed = _on_terminal(n_columns, url, "hosts")
    assert ("paged:" in printed) is is_paged
    assert "instances" in printed
    assert "1% of 16 GiB" in printed


def test_new_decisions_are_printed_without_a_pager(url: str) -> None:
    printed = _on_terminal(40, url, "decisions", "--follow", until=FAILED)
    assert FAILED in printed
    assert "paged:" not in printed


def test_a_pipe_gets_whole_lines(url: str) -> None:
    run = subprocess.run(
        [*COMMAND, "explain", FAILED],
        env={**os.environ, "MOORAGE_URL": url, "COLUMNS": "40"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    [query] = [line for line in run.stdout.splitlines() if "CUSTOM_GOLD;" in line]
    assert query.startswith("Asked of Placement: ")
    assert query.endswith("root_required !COMPUTE_STATUS_DISABLED")
