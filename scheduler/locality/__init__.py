# SPDX-License-Identifier: Apache-2.0
"""Where hosts are: their places at the levels that an operator has named."""

from .conflicts import (
    conflicts_of_table,
    find_conflicts,
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
from .masks import Masks
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
    "JointRule",
    "Masks",
    "OnePlace",
    "Places",
    "PlacesUsed",
    "RoomOfPlaces",
    "conflicts_of_table",
    "find_conflicts",
    "find_unknown_levels",
    "per_place",
    "place_of",
    "places_of_host",
]
