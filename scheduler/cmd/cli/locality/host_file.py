# SPDX-License-Identifier: Apache-2.0
"""A CSV file of hosts and the places in which they should be.

    host,rack,row,room
    node1,r1
    node2,r1
    ,r1,a,east

A line without a host says where a place is: rack r1 is in row a, and row a in room
east.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ....locality.csv_rows import read_csv

_HOST: Final = "host"
#: nova's names of aggregates have 255 characters, among them that of the level.
_MAX_NAME: Final = 200

#: A level, and the name of a place at it.
Place = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class WantedPlaces:
    """The places in which hosts should be.

    Attributes
    ----------
    path : Path
        The file that was read.
    levels : tuple of str
        The levels that the file has, the smallest first. Places of other
        levels do not change.
    of_host : mapping
        By host: the names of its places by level. A level at which the host should have
        no place is missing.
    line_of : mapping
        The line of each host.
    """

    path: Path
    levels: tuple[str, ...]
    of_host: Mapping[str, Mapping[str, str]]
    line_of: Mapping[str, int]

    @property
    def places(self) -> list[Place]:
        """All places with hosts, by level."""
        unsorted = {
            place for places in self.of_host.values() for place in places.items()
        }
        return sorted(
            unsorted, key=lambda place: (self.levels.index(place[0]), place[1])
        )

    def where(self, host: str) -> str:
        """Return the line of a host, as errors name it."""
        return _at(self.path, self.line_of[host])


def read_wanted(path: Path, levels: Sequence[str]) -> WantedPlaces:
    """Read a file of hosts and their places.

    Parameters
    ----------
    levels : sequence of str
        The levels of ``[locality] levels``, the smallest first.

    Raises
    ------
    ValueError
        The file is invalid; the message names the line.
    """
    lines = read_csv(path)
    columns = _columns(path, next(lines, (1, []))[1], levels)
    ordered = tuple(level for level in levels if level in columns)
    file = _HostFile(path, ordered)
    for number, cells in lines:
        if len(cells) > len(columns) + 1:
            raise ValueError(
                f"{_at(path, number)}: it has {len(cells)} values, and the header "
                f"{len(columns) + 1}"
            )
        host, *names = cells
        by_column = dict(zip(columns, names, strict=False))
        place_names = {
            level: by_column[level] for level in ordered if by_column.get(level)
        }
        file.add(number, host, place_names)
    return file.wanted()


def _columns(path: Path, header: Sequence[str], levels: Sequence[str]) -> list[str]:
    """Return the levels of the columns after the first."""
    first_column, *columns = header or [""]
    if first_column != _HOST or not columns:
        example = ",".join((_HOST, *levels))
        raise ValueError(
            f"{path}, line 1: {','.join(header)}; it must be host and levels, such as "
            f"{example}"
        )
    for column in columns:
        if column not in levels:
            raise ValueError(
                f"{path}, line 1: there is no level {column!r}; [locality] levels has "
                f"{', '.join(levels)}"
            )
        if columns.count(column) > 1:
            raise ValueError(f"{path}, line 1: level {column} has two columns")
    return columns


def _at(path: Path, line: int) -> str:
    return f"{path}, line {line}"


class _HostFile:
    """The lines of a file that were read so far."""

    def __init__(self, path: Path, levels: tuple[str, ...]) -> None:
        self._path = path
        self._levels = levels
        self._hosts: dict[str, Mapping[str, str]] = {}
        self._line_of: dict[str, int] = {}
        #: By place and larger level: the place around it, and the line that has both.
        self._around: dict[tuple[Place, str], tuple[str, int]] = {}

    def add(self, line: int, host: str, place_names: Mapping[str, str]) -> None:
        """Add a line: the places of a host, or of its smallest place."""
        for level, name in place_names.items():
            if len(name) > _MAX_NAME or not name.isprintable():
                raise ValueError(
                    f"{_at(self._path, line)}: {level} {name[:_MAX_NAME]!r} is not a "
                    f"name of 1 to {_MAX_NAME} printable characters"
                )
        if host in self._hosts:
            raise ValueError(
                f"{_at(self._path, line)}: host {host} is already on line "
                f"{self._line_of[host]}"
            )
        if host:
            self._hosts[host], self._line_of[host] = place_names, line
        elif len(place_names) < 2:
            raise ValueError(
                f"{_at(self._path, line)}: without a host it must name a place and one "
                "around it"
            )
        for lower, (level, name) in itertools.combinations(place_names.items(), 2):
            self._nest(line, lower, level, name)

    def _nest(self, line: int, lower: Place, level: str, name: str) -> None:
        """Record that a place is in a larger one; raise ValueError if in another."""
        known_name, known_line = self._around.setdefault((lower, level), (name, line))
        if known_name != name:
            raise ValueError(
                f"{_at(self._path, line)}: {lower[0]} {lower[1]} is in {level} {name}, "
                f"and by line {known_line} in {level} {known_name}; a name is one "
                "place of its level"
            )

    def wanted(self) -> WantedPlaces:
        """Return the places of all hosts, with those around them."""
        if not self._hosts:
            raise ValueError(f"{self._path}: it has no hosts")
        of_host = {
            host: self._filled(host, place_names)
            for host, place_names in self._hosts.items()
        }
        return WantedPlaces(self._path, self._levels, of_host, self._line_of)

    def _filled(self, host: str, place_names: Mapping[str, str]) -> Mapping[str, str]:
        """Return the places of a host by level, with the places around them."""
        filled: dict[str, str] = {}
        for level in self._levels:
            names = {
                name: f"{lower[0]} {lower[1]}"
                for lower in filled.items()
                for name in self._known_around(lower, level)
            }
            if level in place_names:
                names.setdefault(place_names[level], "its line")
            if len(names) > 1:
                (name_1, source_1), (name_2, source_2), *_ = names.items()
                raise ValueError(
                    f"{_at(self._path, self._line_of[host])}: host {host} is in "
                    f"{level} {name_1} by {source_1}, and in {level} {name_2} by "
                    f"{source_2}"
                )
            if names:
                [filled[level]] = names
        return filled

    def _known_around(self, lower: Place, level: str) -> Iterator[str]:
        around = self._around.get((lower, level))
        if around is not None:
            yield around[0]
