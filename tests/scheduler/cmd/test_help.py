# SPDX-License-Identifier: Apache-2.0
"""`--help` says what a program does, and `--version` which one it is."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage import __version__

Run = Callable[..., str]


def _run(*command: str) -> str:
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [program, *command[1:]], capture_output=True, text=True, check=True, timeout=60
    )
    return re.sub(r"\s+", " ", done.stdout)


@pytest.fixture(scope="module")
def run() -> Run:
    """Return a function that runs each command once, and returns what it prints."""
    return functools.cache(_run)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "description"),
    [
        ("moorage-scheduler", "Select hosts for the requests of nova's conductors"),
        ("moorage-api", "Serve the HTTP API of explanations, and the page"),
        ("moorage-relay", "Write the hosts of a source, such as nova's databases"),
        ("moorage-agent", "Report the state of this machine to the schedulers"),
    ],
)
def test_a_daemon_has_a_description(run: Run, program: str, description: str) -> None:
    assert description in run(program, "--help")


@pytest.mark.deep
@pytest.mark.parametrize(
    "command",
    [
        ("moorage-scheduler",),
        ("moorage-api",),
        ("moorage-relay",),
        ("moorage-agent",),
        ("moorage-status",),
        ("moorage-status", "orphans"),
    ],
    ids=" ".join,
)
def test_help_says_what_happens_without_an_option(
    run: Run, command: tuple[str, ...]
) -> None:
    printed = run(*command, "--help")
    assert f"Without it, moorage.conf and {command[0]}.conf are read" in printed
    assert "None" not in printed


def test_status_lists_all_commands(run: Run) -> None:
    printed = run("moorage-status", "--help")
    assert "'upgrade check' reports" in printed
    assert "'orphans' lists" in printed
    assert "orphans: list allocations" in run("moorage-status", "orphans", "--help")


@pytest.mark.deep
@pytest.mark.parametrize("command", [(), ("orphans",)])
def test_status_has_a_version(run: Run, command: tuple[str, ...]) -> None:
    assert __version__ in run("moorage-status", *command, "--version")
