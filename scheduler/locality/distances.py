# SPDX-License-Identifier: Apache-2.0
"""Distances between hosts: by the smallest level that they share, or by a matrix."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from ..errors import ConfigurationError
from .csv_rows import read_records, require_level
from .places import Places

Lengths = npt.NDArray[np.float64]

#: The name for the distance of hosts that share no place.
ELSEWHERE: Final = "elsewhere"
_HEADER: Final = ["level", "from", "to", "distance"]
#: The longest distance: sums of thousands remain exact enough to be compared.
_MAX_LENGTH: Final = 1e9


class Distances:
    """The distances that an operator has configured.

    Parameters
    ----------
    levels : sequence of str
        The smallest first.
    of_level : mapping
        By level: the distance of two hosts whose smallest common place is of that
        level. If it is empty: 1 for the smallest level, 2 for the next, and so on.
    matrix : mapping, optional
        By level, place and other place: the distance between hosts of the two places.

    Raises
    ------
    ValueError
        A level is unknown, or has a smaller distance than the one below it.
    """

    def __init__(
        self,
        levels: Sequence[str],
        of_level: Mapping[str, float],
        matrix: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None,
    ) -> None:
        self.levels = tuple(levels)
        names = (*self.levels, ELSEWHERE)
        if unknown := sorted(of_level.keys() - {*names}):
            raise ValueError(
                f"there is no level {unknown[0]!r}; there are {', '.join(names)}"
            )
        lengths = _lengths(names, of_level)
        self._of_level = lengths[:-1]
        self._elsewhere = lengths[-1]
        self._matrix = matrix or {}

    @classmethod
    def read(
        cls, levels: Sequence[str], of_level: Mapping[str, float], path: str | None
    ) -> Self:
        """Return the distances that two options of [locality] configure.

        `of_level` is the value of ``distances``, `path` that of ``distance_file``.

        Raises
        ------
        ConfigurationError
            A value is invalid; the message names the option, and a file's line.
        """
        try:
            matrix = read_matrix(Path(path), levels) if path else None
        except ValueError as e:
            raise ConfigurationError(f"[locality] distance_file: {e}") from e
        try:
            return cls(levels, of_level, matrix)
        except ValueError as e:
            raise ConfigurationError(f"[locality] distances: {e}") from e

    def to_target(self, places: Places, target: Sequence[int], first: int) -> Lengths:
        """Return the distance of each host of a batch to a target.

        The levels are tried from `first` up. The first of them with a distance decides:
        the level's distance if host and target share a place, otherwise the distance of
        their two places in the matrix, if there is one.

        Parameters
        ----------
        target : sequence of int
            The number of the target's place at each level; less than 0: it has none.
        first : int
            The index of the smallest level that counts.

        Returns
        -------
        ndarray of float64, shape (n_hosts,)
        """
        lengths = np.full(len(places), np.nan)
        for k in range(first, len(self.levels)):
            if target[k] < 0:
                continue
            place_codes = places.at(self.levels[k])
            row = self._row(places, k, target[k])
            length = np.where(place_codes >= 0, row[place_codes], np.nan)
            lengths = np.where(np.isnan(lengths), length, lengths)
        return np.where(np.isnan(lengths), self._elsewhere, lengths)

    def _row(self, places: Places, k: int, code: int) -> Lengths:
        """Return the distance of each place of level k to the place with this number.

        NaN: no distance is known.
        """
        names = places.names(self.levels[k])
        of_place = self._matrix.get(self.levels[k], {}).get(names[code], {})
        row = np.full(len(names), np.nan)
        if of_place:
            row = np.array([of_place.get(name, np.nan) for name in names])
        row[code] = self._of_level[k]
        return row


def _lengths(names: Sequence[str], of_level: Mapping[str, float]) -> list[float]:
    """Return the distance of each level and of `ELSEWHERE`; none decreases."""
    if not of_level:
        return [float(number) for number in range(1, len(names) + 1)]
    lengths: list[float] = []
    for name in names:
        previous = lengths[-1] if lengths else 0.0
        default = 2 * previous if name == ELSEWHERE else previous
        length = of_level.get(name, default)
        if not math.isfinite(length) or length < previous:
            raise ValueError(
                f"the distance of {name} is {length}; it must be a number of at least "
                f"{previous}, that of the level below"
            )
        lengths.append(length)
    return lengths


# -- matrix ----------------------------------------------------------------------------


def read_matrix(
    path: Path, levels: Sequence[str]
) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Read the distances between places from a CSV file.

    Raises
    ------
    ValueError
        The file cannot be read, or a line is invalid.
    """
    matrix: defaultdict[str, defaultdict[str, dict[str, float]]]
    matrix = defaultdict(lambda: defaultdict(dict))
    for number, (level, place, other, length) in _rows(path):
        require_level(level, levels, f"{path}, line {number}")
        for start, end in ((place, other), (other, place)):
            first_length = matrix[level][start].setdefault(end, length)
            if first_length != length:
                raise ValueError(
                    f"{path}, line {number}: {place} and {other} already have the "
                    f"distance {first_length}"
                )
    return matrix


def _rows(path: Path) -> Iterator[tuple[int, tuple[str, str, str, float]]]:
    for number, row in read_records(path, _HEADER):
        try:
            level, place, other, text = row
            length = float(text)
        except ValueError:
            length = math.nan
        if not 0 <= length <= _MAX_LENGTH:
            raise ValueError(
                f"{path}, line {number}: {','.join(row)}; it must be a level, two "
                f"places, and a distance from 0 to {_MAX_LENGTH:.0f}"
            )
        yield number, (level, place, other, length)
