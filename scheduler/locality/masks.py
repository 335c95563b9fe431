# SPDX-License-Identifier: Apache-2.0
"""Which hosts a request's rules about places allow, for all hosts at once.

No rule of a level allows a host that has no place at that level, or several: it is
unknown whether the host would meet the rule.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..display import listed
from ..hosts import HostBatch
from ..request.locality import AtMost, InPlaces, Rule, Spread, WithInstances
from .joint import NOT_ALLOWED, EvenPlaces, JointRule, OnePlace, RoomOfPlaces
from .places import Counts, Places

Mask = npt.NDArray[np.bool_]

#: An attribute of a host, what a rule requires of it, and what the host has.
Finding = tuple[str, str, str]
_SHOWN = 8


class Standing(enum.IntEnum):
    """Whether an instance may keep a host beside those placed concurrently."""

    STAYS = enum.auto()
    #: It may keep the host once the others that must leave have left.
    WAITS = enum.auto()
    LEAVES = enum.auto()


class Masks:
    """The rules of a request, for the hosts of one batch.

    Parameters
    ----------
    hosts : HostBatch
        The hosts that are left; for `Spread` their places are those that count.
    own : str or None
        The UUID of the instance that needs a host. Limits allow the host it is on.
    located : mapping, optional
        Compute nodes by instance, for instances that the table may not know.
    """

    def __init__(
        self,
        hosts: HostBatch,
        levels: Sequence[str],
        own: str | None,
        located: Mapping[str, str] | None = None,
    ) -> None:
        self._hosts = hosts
        self._levels = levels
        self._own = own
        self._located = located or {}
        self.places = Places(hosts, levels, located)

    def all(self, rules: Collection[Rule]) -> Mask:
        """Return which hosts all rules allow, shape (n_hosts,)."""
        return functools.reduce(np.logical_and, map(self.of, rules))

    def of(self, rule: Rule) -> Mask:
        """Return which hosts a rule allows, shape (n_hosts,)."""
        at = self.places.at(rule.level)
        if isinstance(rule, InPlaces):
            inside = np.isin(at, self._numbers(rule))
            return inside if rule.is_allowing else (at >= 0) & ~inside
        if isinstance(rule, WithInstances):
            counts = self._counts_with(rule)
            is_first = rule.is_group and not counts.any()
            return (at >= 0) if is_first else counts[at] > 0
        counts = self._counts(rule)
        limit = rule.limit if isinstance(rule, AtMost) else self._most(rule, at, counts)
        return ((at >= 0) & (counts[at] < limit)) | self._is_on()

    def joint(self, rule: Rule) -> JointRule:
        """Return a rule for all further instances of the request together."""
        at = self.places.at(rule.level)
        if isinstance(rule, WithInstances) and rule.is_group:
            if not self._counts_with(rule).any():
                return OnePlace(at)
        elif isinstance(rule, AtMost) and rule.is_group:
            return RoomOfPlaces(at, rule.limit - self._counts(rule))
        elif isinstance(rule, Spread):
            counted = np.unique(at[at >= 0])
            return EvenPlaces(at, self._counts(rule), counted, rule.max_skew)
        return JointRule(np.where(self.of(rule), 0, NOT_ALLOWED))

    def _numbers(self, rule: InPlaces) -> list[int]:
        found = (self.places.find(rule.level, name) for name in rule.places)
        return [number for number in found if number is not None]

    def _counts_with(self, rule: WithInstances) -> Counts:
        """Return how many of a rule's instances each place has.

        As long as the table knows no member of a group, its members follow the one
        with the lowest UUID of those that others have placed.
        """
        located = rule.instances & self._located.keys()
        if not (rule.is_group and located):
            return self._counts(rule)
        others = dataclasses.replace(rule, instances=rule.instances - located)
        counts = self._counts(others)
        if counts.any():
            return counts
        return self.places.count(rule.level, {min(located)})

    def _counts(self, rule: WithInstances | AtMost | Spread) -> Counts:
        uuids = rule.instances
        if rule.is_group:
            uuids = uuids.union(self._hosts.placed)
        return self.places.count(rule.level, uuids - {self._own or ""})

    @staticmethod
    def _most(rule: Spread, at: npt.NDArray[np.int32], counts: Counts) -> int:
        """Return the number of instances at which a place is full."""
        inside = at[at >= 0]
        least = int(counts[inside].min()) if len(inside) else 0
        return least + rule.max_skew

    def _is_on(self) -> Mask:
        """Return on which hosts the instance is already, shape (n_hosts,)."""
        return self._hosts.count_instances({self._own or ""}) > 0

    def knows(self, rule: WithInstances) -> bool:
        """Return whether the place of an instance is known, or none is needed."""
        return rule.is_group or bool(self._counts_with(rule).any())

    def is_without_host(self, rule: InPlaces) -> bool:
        """Return whether a rule names places of which none has a host at all."""
        if not rule.is_allowing:
            return False
        places = Places(self._hosts.whole(), self._levels)
        at = places.at(rule.level)
        codes = np.unique(at[at >= 0]).tolist()
        return rule.places.isdisjoint(places.name(rule.level, c) for c in codes)

    # -- reasons -----------------------------------------------------------------------

    def finding(self, rule: Rule, index: int) -> Finding:
        """Return the level, what a rule requires, and what a host has instead."""
        level, code = rule.level, int(self.places.at(rule.level)[index])
        name = self.places.name(level, code)
        here = f"{level} {name}" if code >= 0 else name
        if isinstance(rule, InPlaces):
            places = listed(sorted(rule.places), _SHOWN)
            needed = places if rule.is_allowing else f"not {places}"
            return level, f"{needed} ({rule.hint})", here
        if isinstance(rule, WithInstances):
            counts = self._counts_with(rule)
            with_some = [self.places.names(level)[i] for i in np.flatnonzero(counts)]
            places = listed(sorted(with_some), _SHOWN)
            needed = places or "an instance that is known"
            return level, f"{needed} ({rule.hint})", here
        return level, *self._of_number(rule, code, self._counts(rule), here)

    def _of_number(
        self, rule: AtMost | Spread, code: int, counts: Counts, here: str
    ) -> tuple[str, str]:
        what = "members" if rule.is_group else "of these instances"
        n_here = int(counts[code])
        if isinstance(rule, AtMost) and not rule.is_group:
            required = f"none {what} ({rule.hint})"
            return required, f"{here} has {n_here} {what}" if code >= 0 else here
        if isinstance(rule, AtMost):
            required = f"fewer than {rule.limit} {what} ({rule.hint})"
            has = f"{here} has {n_here} of {rule.limit} {what}"
            return required, has if code >= 0 else here
        at = self.places.at(rule.level)
        most = self._most(rule, at, counts)
        required = f"fewer than {most} {what} ({rule.hint})"
        return required, f"{here} has {n_here} {what}" if code >= 0 else here

    # -- instances that were placed concurrently ---------------------------------------

    def standing(self, rules: Collection[Rule], index: int, uuid: str) -> Standing:
        """Return whether an instance may keep a host beside the located instances.

        If several instances break a rule together, as few as possible leave: those
        with the highest UUIDs. Only located instances leave, not those that the table
        knows.
        """
        return max(
            (self._standing(rule, index, uuid) for rule in rules),
            default=Standing.STAYS,
        )

    def _standing(self, rule: Rule, index: int, uuid: str) -> Standing:
        if isinstance(rule, InPlaces):
            return Standing.STAYS
        code = int(self.places.at(rule.level)[index])
        here = [
            each
            for each in rule.instances & self._located.keys()
            if self.places.count(rule.level, {each})[code] > 0
        ]
        if isinstance(rule, WithInstances):
            return self._standing_with(rule, index, uuid, here)
        if self.of(rule)[index]:
            return Standing.STAYS
        counts = self._counts(rule)
        at = self.places.at(rule.level)
        limit = rule.limit if isinstance(rule, AtMost) else self._most(rule, at, counts)
        return _standing(uuid, here, int(counts[code]) + 1 - limit)

    def _standing_with(
        self, rule: WithInstances, index: int, uuid: str, here: Collection[str]
    ) -> Standing:
        """Return the standing by a rule that places all members with one of them."""
        located = rule.instances & self._located.keys()
        known = rule.instances - located - {self._own or ""}
        if not rule.is_group:
            return Standing.STAYS
        if self.places.count(rule.level, known).any():
            return Standing.STAYS if self.of(rule)[index] else Standing.LEAVES
        elsewhere = located.difference(here)
        return _standing(uuid, elsewhere, len(elsewhere))


def _standing(uuid: str, others: Collection[str], n_leaving: int) -> Standing:
    """Return whether an instance is one of those that leave: the highest ones."""
    if n_leaving < 1:
        return Standing.STAYS
    n_higher = sum(each > uuid for each in others)
    return Standing.LEAVES if n_higher < n_leaving else Standing.WAITS
