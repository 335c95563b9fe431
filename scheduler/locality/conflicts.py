# SPDX-License-Identifier: Apache-2.0
"""Places of hosts, and of files, that contradict each other, for an operator."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ..hosts import HostAggregate, HostTable, PlacementPlace
from .distances import read_matrix
from .places import place_of

#: The places of a host by level; several, or none, at a level are possible.
HostPlaces = Mapping[str, Sequence[str]]
_SHOWN: Final = 5


def places_of_host(
    aggregates: Iterable[HostAggregate],
    reported: Iterable[tuple[str, str]],
    levels: Iterable[str],
    of_placement: Iterable[PlacementPlace] = (),
) -> dict[str, list[str]]:
    """Return the names of all places of a host, by level, each sorted."""
    by_level: dict[str, set[str]] = {level: set() for level in levels}
    in_aggregates = [
        place for aggregate in aggregates if (place := place_of(aggregate))
    ]
    in_placement = [of_aggregate.place for of_aggregate in of_placement]
    for level, name in [*reported, *in_aggregates, *in_placement]:
        if level in by_level:
            by_level[level].add(name)
    return {level: sorted(names) for level, names in by_level.items()}


def find_conflicts(places: Mapping[str, HostPlaces]) -> Iterator[str]:
    """Yield a message for each conflict.

    Parameters
    ----------
    places : mapping
        The places of each host by level, the smallest level first.
    """
    for host, by_level in sorted(places.items()):
        for level, names in by_level.items():
            if len(names) > 1:
                yield (
                    f"host {host} has {len(names)} places of level {level}, "
                    f"{_listed(names)}, so that it counts in none"
                )
    yield from _crossing(places)


def _crossing(places: Mapping[str, HostPlaces]) -> Iterator[str]:
    """Yield a message for each place with hosts in several larger places."""
    places_above: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for by_level in places.values():
        levels_and_names = by_level.items()
        single_places = [
            (level, names[0]) for level, names in levels_and_names if len(names) == 1
        ]
        for (level, name), (higher, place) in itertools.pairwise(single_places):
            places_above[level, name, higher].add(place)
    for (level, name, higher), higher_places in sorted(places_above.items()):
        if len(higher_places) > 1:
            yield (
                f"{level} {name} has hosts in {len(higher_places)} places of level "
                f"{higher}: {_listed(sorted(higher_places))}"
            )


def _listed(names: Sequence[str]) -> str:
    hidden = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{hidden}"


def find_unknown_levels(
    aggregates: Iterable[HostAggregate],
    reported: Mapping[str, Iterable[tuple[str, str]]],
    levels: Sequence[str],
) -> Iterator[str]:
    """Yield a message for each aggregate that is a place of no configured level.

    Parameters
    ----------
    reported : mapping
        The places that each host reports; there is one message for each unknown level.
    """
    for aggregate in aggregates:
        place = place_of(aggregate)
        if place is not None and place[0] not in levels:
            yield (
                f"aggregate {aggregate.name} is a place of level {place[0]}, which is "
                f"none of [locality] levels: {', '.join(levels)}"
            )
    hosts: defaultdict[str, list[str]] = defaultdict(list)
    for host, host_places in sorted(reported.items()):
        for level, _ in host_places:
            if level not in levels:
                hosts[level].append(host)
    for level, names in sorted(hosts.items()):
        yield (
            f"{len(names)} host(s) report places of level {level}, which is none of "
            f"[locality] levels, {', '.join(levels)}: {_listed(names)}"
        )


def find_empty_places(
    places: Mapping[str, HostPlaces], levels: Sequence[str], distance_file: str | None
) -> Iterator[str]:
    """Yield a message for each level of which a matrix names places without a host.

    The name of such a place is mostly misspelt: its distances apply to no host.

    Parameters
    ----------
    places : mapping
        The places of each host by level.
    """
    if not places or not distance_file:
        return
    try:
        matrix = read_matrix(Path(distance_file), levels)
    except ValueError as e:
        yield f"[locality] distance_file: {e}"
        return
    for level in levels:
        places_with_hosts = {
            name for by_level in places.values() for name in by_level.get(level, ())
        }
        if empty := sorted(matrix.get(level, {}).keys() - places_with_hosts):
            yield (
                f"[locality] distance_file has {len(empty)} place(s) of level {level} "
                f"without a host: {_listed(empty)}"
            )


def conflicts_of_table(
    table: HostTable, levels: Sequence[str], distance_file: str | None = None
) -> list[str]:
    """Return what all functions of this module find in a host table."""
    if not levels:
        return []
    hosts = table.batch()
    rows = zip(
        hosts.nodename.tolist(),
        hosts.aggregates,
        hosts.places,
        hosts.placement_places,
        strict=True,
    )
    places = {
        name: places_of_host(aggregates, reported, levels, of_placement)
        for name, aggregates, reported, of_placement in rows
    }
    reported = dict(zip(hosts.nodename.tolist(), hosts.places, strict=True))
    unknown = find_unknown_levels(table.aggregates, reported, levels)
    empty = find_empty_places(places, levels, distance_file)
    return [*unknown, *empty, *find_conflicts(places)]
