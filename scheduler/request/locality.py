# SPDX-License-Identifier: Apache-2.0
"""Rules and preferences of a request about places: racks, rows or other levels.

`..locality.hints` reads them from hints and extra specs. A `Request` holds those that
follow from its volumes and ports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: In place of the level of a `Target` that is a service host; no place has this level.
HOST: Final = "host"
#: A level and the name of a place, or `HOST` and the name of a service host.
Target = tuple[str, str]


@dataclass(frozen=True, slots=True)
class InPlaces:
    """Only hosts in one of these places, or only hosts in none of them."""

    hint: str
    level: str
    places: frozenset[str]
    is_allowing: bool


@dataclass(frozen=True, slots=True)
class WithInstances:
    """Only hosts in a place that has one of these instances.

    Attributes
    ----------
    instances : frozenset of str
        UUIDs.
    is_group : bool
        Whether the instances are those of the server group: its first member may go
        anywhere, and the other members, also those of the same request, follow it.
    """

    hint: str
    level: str
    instances: frozenset[str]
    is_group: bool


@dataclass(frozen=True, slots=True)
class AtMost:
    """Only hosts in places with fewer than `limit` of these instances.

    Attributes
    ----------
    is_group : bool
        Whether the instances are those of the server group, so that instances of the
        same request count, too.
    """

    hint: str
    level: str
    instances: frozenset[str]
    is_group: bool
    limit: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Only hosts in places that have few of these instances, compared with others.

    With one more instance, a place has at most `max_skew` more of them than the place
    that has the fewest. Instances of the same request count.
    """

    hint: str
    level: str
    instances: frozenset[str]
    max_skew: int

    @property
    def is_group(self) -> bool:
        """Whether instances of the same request count."""
        return True


@dataclass(frozen=True, slots=True)
class SoftRule:
    """Hosts near to, or far from, places or some instances are preferred.

    Attributes
    ----------
    level : str
        The level of the place or of the group's hint. Empty: the rule is about
        instances, and a host that has one of them is nearer than its smallest place.
    place : str or None
        None: the instances are meant.
    instances : frozenset of str
        UUIDs.
    is_group : bool
        Whether the instances are those of the server group, so that instances of the
        same request count, too.
    targets : frozenset of (level, place)
        Places, and hosts with the level `HOST`, of which the closest one counts; empty:
        the place or the instances are meant.
    """

    is_near: bool
    level: str
    place: str | None = None
    instances: frozenset[str] = frozenset()
    is_group: bool = False
    targets: frozenset[Target] = frozenset()


#: One rule of a request at one level; `hint` is what it is read from.
Rule = InPlaces | WithInstances | AtMost | Spread
