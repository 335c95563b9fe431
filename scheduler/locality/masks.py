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
from typing import Final

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


class Resolution(enum.IntEnum):
    """How a conflict with instances that were placed concurrently is resolved."""

    KEEP = enum.auto()
    #: The instance keeps its host once the instances that have to move have moved.
    WAIT = enum.auto()
    #: The instance gives its host up, and is placed again.
    MOVE = enum.auto()


class Masks:
    """The rules of a request, for the hosts of one batch.

    Parameters
    ----------
    rules : sequence of Rule
        `Spread` compares the places that have a host which the other rules allow.
    hosts : HostBatch
        The hosts that pass the other filters.
    instance : str or None
        The UUID of the instance that needs a host. Limits allow a host that has
        reported it.
    located : mapping, optional
        The compute nodes of instances, instead of those that the table knows; empty:
        the instance is on none.
    answered : collection of str
        The located instances whose requests were answered: they do not move for a rule.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        hosts: HostBatch,
        levels: Sequence[str],
        instance: str | None,
        located: Mapping[str, Collection[str]] | None = None,
        answered: Collection[str] = (),
    ) -> None:
        self._rules = rules
        self._hosts = hosts
        self._levels = levels
        self._instance = instance
        located = located or {}
        self._located = {
            uuid: nodes
            for uuid, nodes in located.items()
            if nodes and uuid not in answered
        }
        self._nowhere = {uuid for uuid, nodes in located.items() if not nodes}
        self.places = Places(hosts, levels, located)

    def all(self) -> Mask:
        """Return which hosts all rules allow, shape (n_hosts,)."""
        spreads = (rule for rule in self._rules if isinstance(rule, Spread))
        return functools.reduce(np.logical_and, map(self.of, spreads), self._comparable)

    @functools.cached_property
    def _comparable(self) -> Mask:
        """Which hosts are allowed by all rules but `Spread`, shape (n_hosts,)."""
        rules = (rule for rule in self._rules if not isinstance(rule, Spread))
        all_hosts = np.ones(len(self._hosts), np.bool_)
        return functools.reduce(np.logical_and, map(self.of, rules), all_hosts)

    def _compared(self, rule: Spread) -> npt.NDArray[np.int32]:
        """Return the places that a rule compares, each once."""
        place_codes = self.places.at(rule.level)[self._comparable]
        return np.unique(place_codes[place_codes >= 0])

    def of(self, rule: Rule) -> Mask:
        """Return which hosts a rule allows, shape (n_hosts,)."""
        place_codes = self.places.at(rule.level)
        if isinstance(rule, InPlaces):
            is_inside = np.isin(place_codes, self._numbers(rule))
            return is_inside if rule.is_allowing else (place_codes >= 0) & ~is_inside
        if isinstance(rule, WithInstances):
            return (
                (place_codes >= 0)
                if self._is_first(rule)
                else self._counts_with(rule)[place_codes] > 0
            )
        counts = self._counts(rule)
        is_below = counts[place_codes] < self._limit(rule, counts)
        return ((place_codes >= 0) & is_below) | self._is_on()

    def joint(self, rule: Rule) -> JointRule:
        """Return a rule for all further instances of the request at once."""
        place_codes = self.places.at(rule.level)
        if isinstance(rule, WithInstances) and self._is_first(rule):
            return OnePlace(place_codes)
        if isinstance(rule, AtMost) and rule.is_group:
            return RoomOfPlaces(place_codes, rule.limit - self._counts(rule))
        if isinstance(rule, Spread):
            counts = self._counts(rule)
            return EvenPlaces(place_codes, counts, self._compared(rule), rule.max_skew)
        return JointRule(np.where(self.of(rule), 0, NOT_ALLOWED))

    def _numbers(self, rule: InPlaces) -> list[int]:
        numbers = (self.places.find(rule.level, name) for name in rule.places)
        return [number for number in numbers if number is not None]

    def _is_first(self, rule: WithInstances) -> bool:
        """Return whether a rule is about the server group, which is on no host yet.

        A member on a host without a place counts, too: the place of the other members
        is then unknown, but none of them is the first one.
        """
        if not rule.is_group:
            return False
        uuids = (rule.instances - self._nowhere).union(self._hosts.placed)
        uuids -= {self._instance or ""}
        return not (self._located.keys() & uuids or self._hosts.count_by_host(uuids))

    def _counts_with(self, rule: WithInstances) -> Counts:
        """Return how many of a rule's instances each place has.

        As long as the table knows no member of a group, its members follow the located
        member with the lowest UUID.
        """
        located = rule.instances & self._located.keys()
        if not (rule.is_group and located):
            return self._counts(rule)
        rule_without_located = dataclasses.replace(
            rule, instances=rule.instances - located
        )
        counts = self._counts(rule_without_located)
        if counts.any():
            return counts
        return self.places.count(rule.level, {min(located)})

    def _counts(self, rule: WithInstances | AtMost | Spread) -> Counts:
        uuids = rule.instances
        if rule.is_group:
            uuids = uuids.union(self._hosts.placed)
        return self.places.count(rule.level, uuids - {self._instance or ""})

    def _limit(self, rule: AtMost | Spread, counts: Counts) -> int:
        """Return the number of instances at which a place is full."""
        if isinstance(rule, AtMost):
            return rule.limit
        compared = counts[self._compared(rule)]
        return (int(compared.min()) if len(compared) else 0) + rule.max_skew

    def _is_on(self) -> Mask:
        """Return which hosts have reported the instance, shape (n_hosts,).

        The host that the decision has chosen for the instance does not count.
        """
        if self._instance in self._hosts.placed:
            return np.zeros(len(self._hosts), np.bool_)
        return self._hosts.has_reported(self._instance or "")

    def knows(self, rule: WithInstances) -> bool:
        """Return whether the place of an instance is known, or none is needed."""
        return rule.is_group or bool(self._counts_with(rule).any())

    def is_without_host(self, rule: InPlaces) -> bool:
        """Return whether a rule names places of which none has a host at all."""
        if not rule.is_allowing:
            return False
        places = Places(self._hosts.whole(), self._levels)
        place_codes = places.at(rule.level)
        codes = np.unique(place_codes[place_codes >= 0]).tolist()
        return rule.places.isdisjoint(places.name(rule.level, code) for code in codes)

    # -- reasons -----------------------------------------------------------------------

    def finding(self, rule: Rule, index: int) -> Finding:
        """Return the level, what a rule requires, and what a host has instead."""
        level, code = rule.level, int(self.places.at(rule.level)[index])
        name = self.places.name(level, code)
        place_of_host = f"{level} {name}" if code >= 0 else name
        if isinstance(rule, InPlaces):
            places = listed(sorted(rule.places), _SHOWN)
            needed = places if rule.is_allowing else f"not {places}"
            return level, f"{needed} ({rule.hint})", place_of_host
        if isinstance(rule, WithInstances):
            counts = self._counts_with(rule)
            names_with_instances = [
                self.places.names(level)[i] for i in np.flatnonzero(counts)
            ]
            places = listed(sorted(names_with_instances), _SHOWN)
            needed = places or f"an instance whose {level} is known"
            return level, f"{needed} ({rule.hint})", place_of_host
        return level, *self._of_number(rule, code, self._counts(rule), place_of_host)

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
        required = f"fewer than {self._limit(rule, counts)} {what} ({rule.hint})"
        return required, f"{here} has {n_here} {what}" if code >= 0 else here

    # -- instances that were placed concurrently ---------------------------------------

    def resolution(self, rules: Collection[Rule], index: int, uuid: str) -> Resolution:
        """Return whether an instance may keep a host beside the located instances.

        If several instances break a rule, as few as possible move: those with the
        highest UUIDs. Only located instances move, not those that the table knows.
        """
        return max(
            (self._resolution(rule, index, uuid) for rule in rules),
            default=Resolution.KEEP,
        )

    def _resolution(self, rule: Rule, index: int, uuid: str) -> Resolution:
        if isinstance(rule, InPlaces):
            return Resolution.KEEP
        code = int(self.places.at(rule.level)[index])
        rivals = [
            rival
            for rival in rule.instances & self._located.keys()
            if self.places.count(rule.level, {rival})[code] > 0
        ]
        if isinstance(rule, WithInstances):
            return self._resolution_with(rule, index, uuid, rivals)
        if self.of(rule)[index]:
            return Resolution.KEEP
        counts = self._counts(rule)
        n_too_many = int(counts[code]) + 1 - self._limit(rule, counts)
        return _resolution(uuid, rivals, n_too_many)

    def _resolution_with(
        self, rule: WithInstances, index: int, uuid: str, here: Collection[str]
    ) -> Resolution:
        """Return the resolution by a rule that places all members in one place."""
        if self._is_with_known(rule):
            code = int(self.places.at(rule.level)[index])
            is_with_known = self._counts_of_known(rule)[code] > 0
            return Resolution.KEEP if is_with_known else Resolution.MOVE
        elsewhere = (rule.instances & self._located.keys()).difference(here)
        return _resolution(uuid, elsewhere, len(elsewhere))

    def _is_with_known(self, rule: WithInstances) -> bool:
        """Return whether a rule follows instances that do not move for it."""
        return not rule.is_group or bool(self._counts_of_known(rule).any())

    def _counts_of_known(self, rule: WithInstances) -> Counts:
        """Return how many instances each place has that do not move for a rule.

        None of the request's own instances is followed before it may keep its host.
        """
        if not rule.is_group:
            return self._counts(rule)
        own_instances = {self._instance or "", *self._hosts.placed}
        known_instances = rule.instances - self._located.keys() - own_instances
        return self.places.count(rule.level, known_instances)

    def is_split(self, rule: WithInstances) -> bool:
        """Return whether the located instances of a rule have no place in common."""
        if self._is_with_known(rule):
            return False
        located = rule.instances & self._located.keys()
        counts = [self.places.count(rule.level, {uuid}) > 0 for uuid in located]
        return bool(counts) and not np.logical_and.reduce(counts).any()


def _resolution(uuid: str, rivals: Collection[str], n_moving: int) -> Resolution:
    """Return whether an instance moves: the `n_moving` with the highest UUIDs do."""
    if n_moving < 1:
        return Resolution.KEEP
    n_higher = sum(rival > uuid for rival in rivals)
    return Resolution.MOVE if n_higher < n_moving else Resolution.WAIT


# -- reasons for end users: no place is named but those of a hint that have no host ---

#: A note for where the UUIDs of server groups but the request's own are not looked up.
NO_OTHER_GROUPS: Final = "other server groups are not looked up"


def reason_of_unknown(rule: WithInstances, *, are_groups_read: bool) -> str:
    """Return why a rule rejects hosts: none of its instances is known."""
    note = "" if are_groups_read else f", and {NO_OTHER_GROUPS}"
    return f"{rule.hint}: no named instance is known{note}"


def reason_without_host(rule: InPlaces) -> str:
    """Return why a rule rejects hosts: none of its places has a host."""
    names = " or ".join(map(repr, sorted(rule.places)))
    return f"{rule.hint}: no host is in {rule.level} {names}"


def reason_of(rules: Collection[Rule]) -> str:
    """Return why one rule, or one of several, rejects hosts."""
    hints = list(dict.fromkeys(rule.hint for rule in rules))
    if len(hints) == 1:
        return f"{hints[0]}: {_of_place(next(iter(rules)))}"
    return f"the place breaks {', '.join(hints[:-1])} or {hints[-1]}"


def _of_place(rule: Rule) -> str:
    """Return why a rule rejects the place of a host."""
    level = rule.level
    if isinstance(rule, InPlaces):
        return f"in another {level}" if rule.is_allowing else f"in such a {level}"
    noun = "member of the server group" if rule.is_group else "of the named instances"
    if isinstance(rule, WithInstances):
        no_instance = f"no {noun}" if rule.is_group else f"none {noun}"
        return f"the {level} has {no_instance}"
    is_of_request = rule.is_group and not rule.instances
    members = "instances of this request" if is_of_request else "members"
    if not isinstance(rule, AtMost):
        return f"the {level} has more {members} than another"
    if rule.limit > 1:
        return f"the {level} has {rule.limit} {members}"
    if is_of_request:
        return f"the {level} has an instance of this request"
    return f"the {level} has {'a' if rule.is_group else 'one'} {noun}"
