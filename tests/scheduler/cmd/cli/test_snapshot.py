# SPDX-License-Identifier: Apache-2.0
"""Every command answers on a snapshot as on the API it was taken of; and replays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.cmd.cli.snapshotting import Snapshot, read_snapshot

from ....fixtures.explained_clouds import NAMES
from ....fixtures.explaining_api import (
    FAILED,
    INSTANCE,
    SELECTED,
    TWO,
)

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def taken(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("taken") / "cloud.snapshot"
    _run(["--url", url, "snapshot", str(path)])
    return path


def _run(args: list[str], status: int = 0) -> Result:
    result = CliRunner().invoke(cli, args, env={"MOORAGE_URL": None})
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def call(taken: Path) -> Call:
    """Call a command on the snapshot: no service is there."""
    return lambda *args, status=0: _run(["--snapshot", str(taken), *args], status)


def _settled(text: str) -> Any:
    """An answer without what depends on the moment."""
    return json.loads(re.sub(r'"(\w+)": [0-9.e+-]+(?=,?\n +[}"])', _timeless, text))


_MOMENTARY = {"refresh", "prefilters", "placement", "hosts", "filters", "weighers"}


def _timeless(match: re.Match[str]) -> str:
    is_timed = match[1] in {
        *_MOMENTARY,
        "total",
        "started_at",
        "view_age_s",
        "view_revision",
    }
    return f'"{match[1]}": 0' if is_timed else match[0]


@pytest.mark.parametrize(
    "args",
    [
        ["decisions"],
        ["decisions", "--failed", "--since", "1h"],
        ["decisions", "--selected", "--instance", INSTANCE],
        ["decisions", "--host", "nowhere"],
        ["explain", SELECTED],
        ["explain", INSTANCE],
        *(["why-not", name, FAILED] for name in NAMES),
        ["schedule", "--dry-run", "--request", TWO, "--count", "2"],
        ["schedule", "--dry-run", "--vcpus", "1", "--ram", "64"],
        ["hosts", "--instances"],
        *(["hosts", name] for name in NAMES),
        ["capacity", "--hosts", "3", "--project", "project"],
        ["replay", SELECTED],
        ["replay", "--since", "1h"],
    ],
    ids=" ".join,
)
def test_the_answers_are_those_of_the_api(
    call: Call, url: str, args: list[str]
) -> None:
    offline = _settled(call(*args, "--json").stdout)
    assert offline == _settled(_run(["--url", url, *args, "--json"]).stdout)


def test_a_snapshot_is_for_its_owner_only(taken: Path) -> None:
    assert taken.stat().st_mode & 0o777 == 0o600
    assert list(taken.parent.iterdir()) == [taken]


def test_a_snapshot_can_be_taken_of_a_snapshot(call: Call, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert "3 decision(s), 3 view(s)" in call("snapshot", str(again)).stdout
    assert "h1" in _run(["--snapshot", str(again), "hosts"]).stdout


def test_a_snapshot_is_bounded_by_options(url: str, tmp_path: Path) -> None:
    path = tmp_path / "small"
    _run(["--url", url, "snapshot", str(path), "--decisions", "2", "--views", "1"])
    found = read_snapshot(path)
    assert (len(found.records), len(found.views)) == (2, 1)
    error = _run(["--snapshot", str(path), "replay", TWO], status=1).stderr
    assert "stored_views keeps only the newest ones" in error


def test_a_snapshot_is_not_changed(call: Call) -> None:
    error = call("hosts", "disable", "h1", "--reason", "x", status=2).stderr
    assert "only read" in error


def test_a_snapshot_is_not_followed(call: Call) -> None:
    error = call("decisions", "--follow", status=2).stderr
    assert "--follow: a snapshot gets no new decisions" in error


def test_capacity_without_decisions_names_the_remedy(url: str, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    _run(["--url", url, "snapshot", str(path), "--decisions", "0"])
    error = _run(["--snapshot", str(path), "capacity"], status=1).stderr
    assert "There is no flavor in the 200 newest stored decisions: pass fl" in error


# -- files that are no snapshots -------------------------------------------------------


def _damaged(taken: Path, kind: str) -> bytes:
    data = taken.read_bytes()
    found = read_snapshot(taken)
    head = data[: len(b"moorage snapshot 1")]
    match kind:
        case "empty":
            return b""
        case "other":
            return b"\x1f\x8bsomething else"
        case "version":
            return head[:-1] + b"\x07" + data[len(head) :]
        case "truncated":
            return data[: len(data) // 2]
        case "view":
            found.view = found.view[: len(found.view) // 2]
        case "record":
            id_, record = found.records[0]
            found.records[0] = (id_, record[:1] + b"garbage")
        case "plugin":
            found.view = b"moorage view \x7f"
    return head + msgspec.msgpack.encode(found, enc_hook=None)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("empty", "it is no snapshot"),
        ("other", "it is no snapshot"),
        ("version", "another version"),
        ("truncated", "damaged or truncated"),
        ("view", "it is truncated"),
        ("record", "decompressing"),
        ("plugin", "another version"),
    ],
)
def test_another_file_is_refused_in_one_line(
    taken: Path, tmp_path: Path, kind: str, why: str
) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(_damaged(taken, kind))
    error = _run(["--snapshot", str(path), "hosts"], status=1).stderr
    assert error.startswith(f"Error: --snapshot {path} cannot be read: ")
    assert why in error
    assert error.count("\n") == 1


def test_a_missing_file_and_folder_are_one_line(url: str, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert "No such file" in _run(["--snapshot", str(missing), "hosts"], 1).stderr
    target = str(missing / "file")
    error = _run(["--url", url, "snapshot", target], status=1).stderr
    assert "cannot be written" in error


def test_a_snapshot_has_no_secret(taken: Path) -> None:
    assert isinstance(read_snapshot(taken), Snapshot)
    assert b"decision_store_connection" not in taken.read_bytes()


# -- replay ----------------------------------------------------------------------------


def test_a_replay_says_that_it_is_identical(call: Call) -> None:
    assert "Identical to the last bit: selected" in call("replay", SELECTED).stdout
    assert "Identical to the last bit: no valid host" in call("replay", FAILED).stdout


def test_another_configuration_shows_the_difference(call: Call, tmp_path: Path) -> None:
    other = tmp_path / "other.conf"
    other.write_text("[filter_scheduler]\ncpu_weight_multiplier = -10\n")
    text = call("replay", SELECTED, "--config-file", str(other)).stdout
    for word in ("The replay differs", "CPUWeigher on", "ranking", "Scores, replayed"):
        assert word in text
    summary = call("replay", "--since", "1h", "--config-file", str(other)).stdout
    assert "3 decision(s) replayed, 0 without a view" in summary
    assert "Their memory used: " in summary


@pytest.mark.parametrize(
    ("args", "status", "why"),
    [
        (["nothing"], 1, "No decision is stored for 'nothing'"),
        ([], 2, "Pass a request id"),
        ([SELECTED, "--since", "1h"], 2, "Pass a request id"),
        ([SELECTED, "--config-file", "/nowhere"], 1, "configuration cannot be read"),
    ],
)
def test_what_cannot_be_replayed_is_said(
    call: Call, args: list[str], status: int, why: str
) -> None:
    assert why in call("replay", *args, status=status).stderr
