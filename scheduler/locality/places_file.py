# SPDX-License-Identifier: Apache-2.0
"""The file ``[locality] places``: which aggregates of Placement are which places."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ..hosts import PlacementPlace
from .csv_rows import read_records, require_level

_HEADER: Final = ("aggregate", "level", "place")
_MAX_NAME: Final = 255


def read_places(path: Path, levels: Sequence[str]) -> list[PlacementPlace]:
    """Read which aggregates are places.

    Raises
    ------
    ValueError
        The file cannot be read, or a line is invalid; the message names the line.
    """
    places: dict[str, PlacementPlace] = {}
    for number, cells in read_records(path, _HEADER):
        where = f"{path}, line {number}"
        if len(cells) != len(_HEADER) or not 0 < len(cells[2]) <= _MAX_NAME:
            raise ValueError(
                f"{where}: {','.join(cells)}; it must be the UUID of an aggregate, a "
                f"level, and a name of 1 to {_MAX_NAME} characters"
            )
        place = PlacementPlace(_uuid(where, cells[0]), cells[1], cells[2])
        require_level(place.level, levels, where)
        if places.setdefault(place.aggregate, place) != place:
            first_place = " ".join(places[place.aggregate].place)
            raise ValueError(
                f"{where}: aggregate {place.aggregate} is already {first_place}"
            )
    return list(places.values())


def _uuid(where: str, text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as e:
        raise ValueError(f"{where}: {text!r} is not the UUID of an aggregate") from e


def format_places(places: Iterable[PlacementPlace]) -> str:
    """Return the text of a file with these places."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_HEADER, *places])
    return text.getvalue()
