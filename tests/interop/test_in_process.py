# SPDX-License-Identifier: Apache-2.0
"""A scheduler can be built and used inside a process of nova's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..fixtures.nova_peer import peer_or_skip

PROGRAM = Path(__file__).with_name("nova_and_moorage.py")

pytestmark = [pytest.mark.deep, pytest.mark.peer]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the program in nova's environment saw; see there."""
    python = peer_or_skip()
    folder = tmp_path_factory.mktemp("cwd")
    run = subprocess.run(
        [python, "-W", "ignore", PROGRAM],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return {**told, "files": [path.name for path in folder.iterdir()]}


@pytest.mark.parametrize(
    ("change", "hosts"),
    [
        ("one host", ["first"]),
        ("over RPC", ["first"]),
        ("a new compute node", ["first", "second"]),
        ("a disabled service", ["second"]),
        ("enabled again", ["first", "second"]),
        ("a new aggregate", ["second"]),
    ],
)
def test_next_decision_sees_what_nova_has_written(
    seen: dict[str, Any], change: str, hosts: list[str]
) -> None:
    assert seen[change] == hosts


def test_nova_catches_what_it_would_of_its_own_scheduler(seen: dict[str, Any]) -> None:
    told = "No valid host was found. "
    assert seen["too large"] == [f"{told}Of 1 host: 1 lacks CPUs."] * 2
    assert seen["Placement away"] == [
        f"{told}PlacementUnavailable: Placement was unreachable, timed out or sent a "
        "malformed answer.",
        True,
    ]


def test_options_of_nova_and_of_its_libraries_stay_theirs(seen: dict[str, Any]) -> None:
    assert seen["nova's options changed"] == []
    assert seen["registered twice"] == []


def test_nothing_is_left_and_no_port_or_file_is_taken(seen: dict[str, Any]) -> None:
    assert seen["threads left"] == []
    assert seen["listening"] == []
    assert seen["files"] == []
