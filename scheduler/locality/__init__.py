# SPDX-License-Identifier: Apache-2.0
"""Where hosts are: their places at the levels that an operator has named."""

from .conflicts import (
    HostPlaces,
    conflicts_of_table,
    find_conflicts,
    find_unknown_levels,
    places_of_host,
)
from .distances import ELSEWHERE, Distances
from .masks import Finding, Masks
from .places import LEVEL_KEY, NOWHERE, PLACE_KEY, SEVERAL, Places, place_of
from .reasons import reason_of, reason_of_unknown

__all__ = [
    "ELSEWHERE",
    "LEVEL_KEY",
    "NOWHERE",
    "PLACE_KEY",
    "SEVERAL",
    "Distances",
    "Finding",
    "HostPlaces",
    "Masks",
    "Places",
    "conflicts_of_table",
    "find_conflicts",
    "find_unknown_levels",
    "place_of",
    "places_of_host",
    "reason_of",
    "reason_of_unknown",
]
