# SPDX-License-Identifier: Apache-2.0
"""Where hosts are: their places at the levels that an operator has named."""

from .conflicts import (
    HostPlaces,
    conflicts_of_table,
    find_conflicts,
    find_empty_places,
    find_unknown_levels,
    places_of_host,
)
from .distances import ELSEWHERE, Distances
from .joint import (
    NOT_ALLOWED,
    EvenPlaces,
    JointRule,
    OnePlace,
    PlacesUsed,
    RoomOfPlaces,
    per_place,
)
from .masks import (
    Finding,
    Masks,
    Resolution,
    reason_of,
    reason_of_unknown,
    reason_without_host,
)
from .places import LEVEL_KEY, NOWHERE, PLACE_KEY, SEVERAL, Places, place_of

__all__ = [
    "ELSEWHERE",
    "LEVEL_KEY",
    "NOT_ALLOWED",
    "NOWHERE",
    "PLACE_KEY",
    "SEVERAL",
    "Distances",
    "EvenPlaces",
    "Finding",
    "HostPlaces",
    "JointRule",
    "Masks",
    "OnePlace",
    "Places",
    "PlacesUsed",
    "Resolution",
    "RoomOfPlaces",
    "conflicts_of_table",
    "find_conflicts",
    "find_empty_places",
    "find_unknown_levels",
    "per_place",
    "place_of",
    "places_of_host",
    "reason_of",
    "reason_of_unknown",
    "reason_without_host",
]
