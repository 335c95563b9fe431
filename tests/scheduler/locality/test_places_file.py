# SPDX-License-Identifier: Apache-2.0
"""The file of Placement's aggregates that are places, and its mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage.scheduler.hosts import PlacementPlace
from moorage.scheduler.locality.places_file import format_places, read_places

LEVELS = ("rack", "row")
ONE = "3b0a1b5c-0000-4000-8000-00000000000a"
HEADER = "aggregate,level,place"


def _read(folder: Path, *lines: str) -> list[PlacementPlace]:
    path = folder / "places.csv"
    path.write_text("\n".join((HEADER, *lines)), "utf-8")
    return read_places(path, LEVELS)


def test_uuids_may_have_any_form(tmp_path: Path) -> None:
    found = _read(tmp_path, f" {ONE.upper()} ,rack, r 7", "", f"{ONE},rack,r 7")
    assert found == [PlacementPlace(ONE, "rack", "r 7")]


def test_text_of_places_is_read_as_these_places(tmp_path: Path) -> None:
    places = [PlacementPlace(ONE, "rack", 'the "7th", left'), *_read(tmp_path)]
    _, *lines = format_places(places).splitlines()
    assert _read(tmp_path, *lines) == places


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param(["r7,rack,r7"], "line 2: 'r7' is not the UUID of an", id="uuid"),
        pytest.param(
            [f"{ONE},shelf,s"],
            "line 2: there is no level 'shelf'; [locality] levels has rack, row",
            id="level",
        ),
        pytest.param(
            [f"{ONE},rack,r1", f"{ONE},rack,r2"],
            f"line 3: aggregate {ONE} is already rack r1",
            id="twice",
        ),
        pytest.param([f"{ONE},rack"], "it must be the UUID of an aggreg", id="short"),
        pytest.param([f"{ONE},rack,"], "a name of 1 to 255 characters", id="no-name"),
    ],
)
def test_mistake_is_named_with_its_line(
    tmp_path: Path, lines: list[str], error: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        _read(tmp_path, *lines)


def test_other_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "places.csv"
    path.write_text("uuid,level,place\n")
    with pytest.raises(ValueError, match=f"it must be {HEADER}"):
        read_places(path, LEVELS)
