# SPDX-License-Identifier: Apache-2.0
"""The place of each host at each level: a number per row, and names by number.

    aggregates of the host ────┐
    aggregates in Placement ───┼─▶ one number per level and distinct value ─▶ rows
    places of a report ────────┘

The numbers are cached. A place is known by its name: an aggregate and a report that
name the same rack mean the same one.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ..hosts import HostAggregate, HostBatch, PlacementPlace
from ..request.locality import HOST, Target

#: The metadata keys of the level of which an aggregate is a place, and of its name.
LEVEL_KEY: Final = "moorage:level"
PLACE_KEY: Final = "moorage:place"

#: The numbers of a host that has no place at a level, and of one that has several.
NOWHERE: Final = -1
SEVERAL: Final = -2

Codes = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]


class PlaceAggregate(Protocol):
    """The part of a host aggregate that makes it a place."""

    @property
    def name(self) -> str:
        """The aggregate's name."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """The aggregate's metadata."""
        ...


def place_of(aggregate: PlaceAggregate) -> tuple[str, str] | None:
    """Return the level and the name of an aggregate's place; None: it is no place."""
    level = aggregate.metadata.get(LEVEL_KEY)
    if not level:
        return None
    return level, aggregate.metadata.get(PLACE_KEY) or aggregate.name


class PlaceNames:
    """The places at each level by number; a number never changes its meaning."""

    def __init__(self, levels: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._codes: dict[str, dict[str, int]] = {level: {} for level in levels}

    def code(self, level: str, name: str) -> int:
        """Return the number of a place, a new one if it is new."""
        codes = self._codes[level]
        with self._lock:
            return codes.setdefault(name, len(codes))

    def find(self, level: str, name: str) -> int | None:
        """Return the number of a known place, otherwise None."""
        return self._codes[level].get(name)

    def of_level(self, level: str) -> list[str]:
        """Return the names of a level's places, by number."""
        with self._lock:
            return list(self._codes[level])

    def number(self, level: str) -> int:
        """Return the number of places of a level."""
        return len(self._codes[level])


class _PlaceColumn:
    """The place numbers of each distinct value of a column, one row for each level."""

    def __init__(self, levels: Sequence[str], names: PlaceNames) -> None:
        self._levels = levels
        self.names = names
        self.codes = np.empty((len(levels), 0), np.int32)

    def __len__(self) -> int:
        return self.codes.shape[1]

    def extend(self, values: Sequence[Any]) -> None:
        """Add the values of the next codes."""
        new_codes = np.empty((len(self._levels), len(values)), np.int32)
        for i, value in enumerate(values):
            places = self._places_of(value)
            for k, level in enumerate(self._levels):
                names = {name for place_level, name in places if place_level == level}
                new_codes[k, i] = self._code(level, names)
        self.codes = np.concatenate([self.codes, new_codes], axis=1)

    def has_any(self, k: int) -> bool:
        """Return whether any value has a place at the level of index `k`."""
        return bool((self.codes[k] != NOWHERE).any())

    def _places_of(self, value: Any) -> Sequence[tuple[str, str]]:  # noqa: ANN401 - a column's
        pairs: Sequence[tuple[str, str]] = value
        return pairs

    def _code(self, level: str, names: Collection[str]) -> int:
        if len(names) > 1:
            return SEVERAL
        return self.names.code(level, next(iter(names))) if names else NOWHERE


class _AggregatePlaces(_PlaceColumn):
    """The places of the column ``aggregates``."""

    def _places_of(self, value: Sequence[HostAggregate]) -> Sequence[tuple[str, str]]:
        places = map(place_of, value)
        return [place for place in places if place is not None]


class _PlacementPlaces(_PlaceColumn):
    """The places of the column ``placement_places``."""

    def _places_of(self, value: Sequence[PlacementPlace]) -> Sequence[tuple[str, str]]:
        return [of_aggregate.place for of_aggregate in value]


@dataclasses.dataclass(frozen=True, slots=True)
class _OfAggregates:
    """Makes the places of aggregates, once for all readers of the same levels."""

    levels: tuple[str, ...]

    def __call__(self) -> _PlaceColumn:
        return _AggregatePlaces(self.levels, PlaceNames(self.levels))


@dataclasses.dataclass(frozen=True, slots=True)
class _OfReports:
    """Makes the places of reports, which share their numbers with the aggregates."""

    levels: tuple[str, ...]
    names: PlaceNames

    def __call__(self) -> _PlaceColumn:
        return _PlaceColumn(self.levels, self.names)


@dataclasses.dataclass(frozen=True, slots=True)
class _OfPlacement:
    """Makes the places of Placement's aggregates, with the same numbers."""

    levels: tuple[str, ...]
    names: PlaceNames

    def __call__(self) -> _PlaceColumn:
        return _PlacementPlaces(self.levels, self.names)


class Places:
    """The places of the hosts of a batch.

    Parameters
    ----------
    levels : sequence of str
        The smallest first.
    located : mapping, optional
        The compute nodes of instances, instead of those that the table knows; empty:
        the instance is on none. The batch knows instances that the request has placed.
    """

    def __init__(
        self,
        hosts: HostBatch,
        levels: Sequence[str],
        located: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._hosts = hosts
        self.levels = tuple(levels)
        placed = {uuid: (node,) for uuid, node in hosts.placed_nodes.items()}
        self._located: Mapping[str, Collection[str]] = {**(located or {}), **placed}
        make = _OfAggregates(self.levels)
        self._of_aggregates = hosts.value_arrays("aggregates", make)
        self._names = self._of_aggregates.names
        self._of_reports = hosts.value_arrays(
            "places", _OfReports(self.levels, self._names)
        )
        self._of_placement = hosts.value_arrays(
            "placement_places", _OfPlacement(self.levels, self._names)
        )

    def __len__(self) -> int:
        return len(self._hosts)

    def at(self, level: str) -> Codes:
        """Return the number of each host's place, `NOWHERE` or `SEVERAL`.

        Returns
        -------
        ndarray of int32, shape (n_hosts,)
        """
        return self._codes_of(self._hosts, level)

    def _codes_of(self, hosts: HostBatch, level: str) -> Codes:
        k = self.levels.index(level)
        codes: Codes = self._of_aggregates.codes[k][hosts.codes("aggregates")]
        if self._of_placement.has_any(k):
            of_placement = self._of_placement.codes[k]
            codes = _agreed(codes, of_placement[hosts.codes("placement_places")])
        if self._of_reports.has_any(k):
            codes = _agreed(codes, self._of_reports.codes[k][hosts.codes("places")])
        return codes

    def names(self, level: str) -> list[str]:
        """Return the names of a level's places by number."""
        return self._names.of_level(level)

    def find(self, level: str, name: str) -> int | None:
        """Return the number of a place; None: no host has ever been in it."""
        return self._names.find(level, name)

    def name(self, level: str, code: int) -> str:
        """Return the name of a place, or what the lack of one is called."""
        if code >= 0:
            return self.names(level)[code]
        return f"several places of level {level}" if code == SEVERAL else f"no {level}"

    def count(self, level: str, instances: Collection[str]) -> Counts:
        """Return how many of these instances each place has.

        Sources know instances by service host: one whose nodes are in several places
        counts in each, unless the request itself has placed it.

        Returns
        -------
        ndarray of int64, shape (n_places + 2,)
            The last two are 0: `SEVERAL` and `NOWHERE` index them.
        """
        counts = np.zeros(self._names.number(level) + 2, np.int64)
        for number, codes in self._of_instances(level, instances):
            for code in codes:
                if 0 <= code < len(counts) - 2:
                    counts[code] += number
        return counts

    def _of_instances(
        self, level: str, instances: Collection[str]
    ) -> list[tuple[int, set[int]]]:
        """Return pairs: a number of instances, and the places in which they are."""
        located = self._located.keys() & set(instances)
        by_host = self._hosts.count_by_host(set(instances) - located)
        places = []
        if by_host:
            of_host = self._by_name("host", frozenset(by_host), level)
            places += [
                (count, of_host.get(host, set())) for host, count in by_host.items()
            ]
        if located:
            nodes = frozenset[str]().union(*(self._located[uuid] for uuid in located))
            of_node = self._by_name("uuid", nodes, level)
            for uuid in located:
                place_sets = (of_node.get(node, set()) for node in self._located[uuid])
                places.append((1, set[int]().union(*place_sets)))
        return places

    def targets_of_hosts(self, names: Collection[str]) -> dict[str, tuple[int, ...]]:
        """Return the places of service hosts at all levels: those of the first node."""
        hosts = self._all.take(self._all.matches("host", names))
        codes = [self._codes_of(hosts, level).tolist() for level in self.levels]
        targets: dict[str, tuple[int, ...]] = {}
        for index in range(len(hosts)):
            target = tuple(of_level[index] for of_level in codes)
            targets.setdefault(hosts.value("host", index), target)
        return targets

    def target_of(self, level: str, name: str) -> tuple[int, ...] | None:
        """Return a place and the larger ones around it, by level; None: it has no host.

        Smaller levels are `NOWHERE`.
        """
        code, k = self.find(level, name), self.levels.index(level)
        if code is None:
            return None
        host_index = np.flatnonzero(self._codes_of(self._all, level) == code)[:1]
        if not len(host_index):
            return None
        host = self._all.take(host_index)
        larger_levels = self.levels[k + 1 :]
        larger_codes = [
            int(self._codes_of(host, larger_level)[0]) for larger_level in larger_levels
        ]
        return (*[NOWHERE] * k, code, *larger_codes)

    def names_around(self, level: str, targets: Iterable[Target]) -> set[str]:
        """Return the names of the places of a level that have one of the targets."""
        places: set[str] = set()
        k = self.levels.index(level)
        for target_level, name in targets:
            if target_level == level:
                places.add(name)
                continue
            codes_around = self.around(target_level, name)
            if codes_around is not None and codes_around[k] >= 0:
                places.add(self.names(level)[codes_around[k]])
        return places

    def around(self, level: str, name: str) -> tuple[int, ...] | None:
        """Return the places around a place, as `target_of` does, or around a host."""
        if level == HOST:
            return self.targets_of_hosts([name]).get(name)
        return self.target_of(level, name)

    def _by_name(
        self, column: str, names: frozenset[str], level: str
    ) -> dict[str, set[int]]:
        """Return the places of hosts, by their names in a column."""
        hosts = self._all.take(self._all.matches(column, names))
        by_name: dict[str, set[int]] = {}
        codes = self._codes_of(hosts, level).tolist()
        for index, code in enumerate(codes):
            by_name.setdefault(hosts.value(column, index), set()).add(code)
        return by_name

    @functools.cached_property
    def _all(self) -> HostBatch:
        return self._hosts.whole()


def _agreed(codes: Codes, second: Codes) -> Codes:
    """Return the numbers of places of two origins; `SEVERAL` where they differ."""
    agreed = np.where((codes == second) | (second == NOWHERE), codes, np.int32(SEVERAL))
    return np.where(codes == NOWHERE, second, agreed)
