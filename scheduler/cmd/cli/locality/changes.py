# SPDX-License-Identifier: Apache-2.0
"""The changes that put hosts into the places that a file names, and their order.

If a change fails, the next run makes the missing changes: it compares the file with
the present places.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from ....errors import SchedulerError
from .host_file import Place, WantedPlaces

#: The hosts of each place.
Members = Mapping[Place, Collection[str]]


class HostRefused(SchedulerError):
    """Raised when a service refuses to move one host; others may be moved."""


class ChangeKind(enum.StrEnum):
    """What a change does."""

    CREATE = "create"
    REMOVE = "remove"
    ADD = "add"


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceChange:
    """A place that is created, or a host that enters or leaves one."""

    kind: ChangeKind
    place: Place
    host: str | None = None

    def as_dict(self) -> dict[str, str]:
        """Return the change for JSON."""
        level, name = self.place
        place_change = {"change": str(self.kind), "level": level, "place": name}
        return (
            place_change if self.host is None else {**place_change, "host": self.host}
        )


class PlaceService(Protocol):
    """Where places are kept: nova's host aggregates, or Placement's aggregates."""

    @property
    def name(self) -> str:
        """The name of the service, for errors."""

    @property
    def notes(self) -> Sequence[str]:
        """What an operator has to do after the changes."""

    def unknown(self, hosts: Collection[str]) -> Sequence[str]:
        """Return the hosts that the service does not know."""

    def members(self) -> Members:
        """Return all places, and their hosts."""

    def check_creatable(self, places: Collection[Place]) -> None:
        """Raise an error if one of these places cannot be created."""

    def create(self, places: Collection[Place]) -> None:
        """Create places without hosts."""

    def move(self, host: str, old: Sequence[Place], new: Sequence[Place]) -> None:
        """Remove a host from places, then add it to others.

        Raises
        ------
        HostRefused
            The service refused the move; a part of it may have been made.
        """


def plan(
    wanted: WantedPlaces, members: Members, unknown: Collection[str] = ()
) -> list[PlaceChange]:
    """Return the changes that are needed: places first, then host by host.

    Unknown hosts are left out.
    """
    created = [
        PlaceChange(ChangeKind.CREATE, place)
        for place in wanted.places
        if place not in members
    ]
    places_of: defaultdict[str, list[Place]] = defaultdict(list)
    for place in sorted(members):
        for host in members[place]:
            places_of[host].append(place)
    known_hosts = (host for host in wanted.of_host if host not in unknown)
    moves = (_moves(wanted, host, places_of[host]) for host in known_hosts)
    return [*created, *itertools.chain.from_iterable(moves)]


def _moves(
    wanted: WantedPlaces, host: str, present: Sequence[Place]
) -> Iterator[PlaceChange]:
    """Yield the changes that move one host from its present to its wanted places."""
    places = wanted.of_host[host].items()
    for place in present:
        if place[0] in wanted.levels and place not in places:
            yield PlaceChange(ChangeKind.REMOVE, place, host)
    for place in places:
        if place not in present:
            yield PlaceChange(ChangeKind.ADD, place, host)


def carry_out(
    changes: Sequence[PlaceChange],
    service: PlaceService,
    on_refused: Callable[[str, HostRefused], None],
) -> Iterator[PlaceChange]:
    """Make changes in their order; yield each once it was made.

    A host that the service refuses is passed to `on_refused`, and the others are moved.
    """
    for host, group in itertools.groupby(changes, key=lambda change: change.host):
        host_changes = list(group)
        if host is None:
            service.create([change.place for change in host_changes])
        else:
            try:
                service.move(
                    host,
                    _places(host_changes, ChangeKind.REMOVE),
                    _places(host_changes),
                )
            except HostRefused as e:
                on_refused(host, e)
                continue
        yield from host_changes


def _places(
    changes: Sequence[PlaceChange], kind: ChangeKind = ChangeKind.ADD
) -> list[Place]:
    return [change.place for change in changes if change.kind is kind]
