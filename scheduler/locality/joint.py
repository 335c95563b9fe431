# SPDX-License-Identifier: Apache-2.0
"""Rules for all instances of a request, for drivers that place them at once.

    filters  ── joint_rules ──▶ JointRule ─┐
    weighers ── joint_wishes ─▶ PlacesUsed ┴▶ a driver, for all instances at once

Filters and weighers decide about one instance after the other. These are their rules
and preferences for several instances, about sets of hosts: a place is here a
service host with its nodes, a rack, a row.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Self

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
PlaceNumbers = npt.NDArray[np.integer]

#: The place of a host that must not get an instance.
NOT_ALLOWED: Final = -1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class JointRule:
    """Only hosts with a place get instances.

    Attributes
    ----------
    places : ndarray of int, shape (n_hosts,)
        The number of each host's place; less than 0: the host must not be used.
    """

    places: PlaceNumbers

    @property
    def allowed(self) -> Mask:
        """Which hosts may get an instance at all, shape (n_hosts,)."""
        mask: Mask = self.places >= 0
        return mask

    def take(self, mask: Mask) -> Self:
        """Return the same rule for some of the hosts."""
        return dataclasses.replace(self, places=self.places[mask])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RoomOfPlaces(JointRule):
    """Each place gets at most as many further instances as it has room.

    Attributes
    ----------
    room : ndarray of int64, shape (n_places,)
        The most further instances of each place.
    """

    room: npt.NDArray[np.int64]

    @property
    def allowed(self) -> Mask:
        """Which hosts may get an instance at all, shape (n_hosts,)."""
        mask: Mask = self.places >= 0
        mask[mask] = self.room[self.places[mask]] > 0
        return mask


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OnePlace(JointRule):
    """All instances get hosts of one place, whichever it is."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class EvenPlaces(JointRule):
    """A place that gets instances has at most `max_skew` more than any place.

    Attributes
    ----------
    counts : ndarray of int64, shape (n_places,)
        The instances that each place has already.
    counted : ndarray of int
        The places with which others are compared.
    """

    counts: npt.NDArray[np.int64]
    counted: PlaceNumbers
    max_skew: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PlacesUsed:
    """A preference for many different places, or for few.

    Attributes
    ----------
    places : ndarray of int, shape (n_hosts,)
        The number of each host's place; less than 0: it has none.
    weights : ndarray of float64, shape (n_places,)
        What each place adds to the sum of weights once it gets an instance: less than
        0 for a preference for few places.
    """

    places: PlaceNumbers
    weights: npt.NDArray[np.float64]

    def take(self, mask: Mask) -> PlacesUsed:
        """Return the same preference for some of the hosts."""
        return dataclasses.replace(self, places=self.places[mask])


def per_place(
    places: PlaceNumbers, of_hosts: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the greatest value of each place's hosts, shape (n_places,)."""
    greatest = np.full(int(places.max(initial=-1)) + 1, -np.inf)
    has_place = places >= 0
    np.maximum.at(greatest, places[has_place], of_hosts[has_place])
    return greatest
