# SPDX-License-Identifier: Apache-2.0
"""The lines of a CSV file that an operator wrote."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_MAX_LINES: Final = 1_000_000


def read_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line that is not empty.

    Raises
    ------
    ValueError
        The file cannot be read, or is too long.
    """
    try:
        # Spreadsheets write a byte order mark.
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines)
            for row in reader:
                if reader.line_num > _MAX_LINES:
                    raise ValueError(f"{path}: it must have at most {_MAX_LINES} lines")
                cells = [cell.strip() for cell in row]
                if any(cells):
                    yield reader.line_num, cells
    except OSError as e:
        raise ValueError(f"{path}: cannot be read: {e.strerror or e}") from e
    except (UnicodeDecodeError, csv.Error) as e:
        raise ValueError(f"{path}: cannot be read: {e}") from e


def read_records(path: Path, header: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines after a header; raise ValueError if it is not `header`."""
    lines = read_csv(path)
    _, cells = next(lines, (1, []))
    if cells != list(header):
        raise ValueError(
            f"{path}, line 1: {','.join(cells)}; it must be {','.join(header)}"
        )
    yield from lines


def require_level(level: str, levels: Sequence[str], where: str) -> None:
    """Raise ValueError unless a level is configured."""
    if level not in levels:
        level_names = ", ".join(levels) or "none"
        raise ValueError(
            f"{where}: there is no level {level!r}; [locality] levels has {level_names}"
        )
