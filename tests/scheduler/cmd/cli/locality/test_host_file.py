# SPDX-License-Identifier: Apache-2.0
"""A file of hosts and their places is read, and each mistake is one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage.scheduler.cmd.cli.locality.host_file import WantedPlaces, read_wanted

LEVELS = ("rack", "row", "room")


def _read(folder: Path, *lines: str) -> WantedPlaces:
    path = folder / "hosts.csv"
    path.write_text("\n".join(lines), "utf-8")
    return read_wanted(path, LEVELS)


def test_upper_levels_follow_from_lower_ones(tmp_path: Path) -> None:
    wanted = _read(
        tmp_path,
        "host,rack,row,room",
        "n1,r1",
        "n2, r2 ,b,",
        "",
        ",r1,a",
        ",,a,east",
        "n3",
        "n4,,,west",
    )
    assert wanted.of_host == {
        "n1": {"rack": "r1", "row": "a", "room": "east"},
        "n2": {"rack": "r2", "row": "b"},
        "n3": {},
        "n4": {"room": "west"},
    }
    assert wanted.places == [
        ("rack", "r1"), ("rack", "r2"), ("row", "a"), ("row", "b"),
        ("room", "east"), ("room", "west"),
    ]  # fmt: skip


def test_line_of_one_host_places_the_others_of_its_rack(tmp_path: Path) -> None:
    wanted = _read(tmp_path, "host,rack,row", "n1,r1,a", "n2,r1")
    assert wanted.of_host["n2"] == {"rack": "r1", "row": "a"}


def test_levels_without_a_column_are_left_alone(tmp_path: Path) -> None:
    wanted = _read(tmp_path, "\ufeffhost,room,rack", "n1,east,r1")
    assert wanted.levels == ("rack", "room")
    assert wanted.of_host == {"n1": {"rack": "r1", "room": "east"}}


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param([], "line 1: ; it must be host and levels", id="empty"),
        pytest.param(["node,rack"], "line 1: node,rack; it must be host", id="header"),
        pytest.param(["host"], "such as host,rack,row,room", id="no-level"),
        pytest.param(
            ["host,rak"],
            "line 1: there is no level 'rak'; [locality] levels has rack, row, room",
            id="unknown-level",
        ),
        pytest.param(
            ["host,rack,rack"], "line 1: level rack has two columns", id="level-twice"
        ),
        pytest.param(["host,rack"], "it has no hosts", id="no-hosts"),
        pytest.param(
            ["host,rack", "n1,r1,a"], "line 2: it has 3 values, and the header 2",
            id="too-many",
        ),
        pytest.param(
            ["host,rack", "n1,r1", "n1,r1"], "line 3: host n1 is already on line 2",
            id="host-twice",
        ),
        pytest.param(
            ["host,rack,row", "n1,r1,a", "n2,r1,b"],
            "line 3: rack r1 is in row b, and by line 2 in row a; a name is one place "
            "of its level",
            id="rack-in-two-rows",
        ),
        pytest.param(
            ["host,rack,row,room", "n1,r1,,west", ",r1,a", ",,a,east"],
            "line 2: host n1 is in room west by rack r1, and in room east by row a",
            id="two-rooms",
        ),
        pytest.param(
            ["host,rack,row", "n1,r1", ",r1"],
            "line 3: without a host it must name a place and one around it",
            id="nothing-around",
        ),
        pytest.param(
            ["host,rack", f"n1,{'r' * 201}"], "is not a name of 1 to 200", id="long"
        ),
    ],
)  # fmt: skip
def test_mistake_is_named_with_its_line(
    tmp_path: Path, lines: list[str], error: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(error)) as found:
        _read(tmp_path, *lines)
    text = str(found.value)
    assert text.startswith(f"{tmp_path}/hosts.csv")
    assert "\n" not in text


@pytest.mark.parametrize("content", [b"host,rack\n\xff,r1", b'host,"rack\n'])
def test_file_that_is_no_text_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hosts.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=str(path)):
        read_wanted(path, LEVELS)
