# SPDX-License-Identifier: Apache-2.0
"""How far is the host from what a request prefers to be near to, or far from?"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import numpy as np
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from ..scheduler.locality import Distances, Places, PlacesUsed, per_place
from ..scheduler.locality.hints import soft_rules
from ..scheduler.request import Request
from ..scheduler.request.locality import HOST, SoftRule, Target
from .base import BaseHostWeigher, Weights


class LocalityWeigher(BaseHostWeigher):
    """Weigh by distances to what hints and soft groups of the request name.

    A host's weight is the sum of its distances to everything that the request prefers
    to be far from, minus the sum of its distances to everything that the request
    prefers to be near to.
    """

    MULTIPLIER = "weight_multiplier"
    MULTIPLIER_GROUP = "locality"
    MULTIPLIER_KEY = "locality_weight_multiplier"

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        options = conf.locality
        self._levels = tuple(dict.fromkeys(options.levels))
        self._rules: Sequence[SoftRule] | None = None if self._levels else ()
        self._distances = Distances.read(
            self._levels, options.distances, options.distance_file
        )

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return the weigher with the soft rules of a request."""
        if not self._levels:
            return self
        prepared = copy.copy(self)
        rules = soft_rules(Request.of(spec_obj), self._levels)
        prepared._rules = rules  # noqa: SLF001 - a copy of this weigher
        return prepared

    @property
    def is_idle(self) -> bool:
        """Whether the request has no soft rule."""
        return self._rules is not None and not self._rules

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the signed sum of distances for each host, shape (n_hosts,)."""
        rules = self._rules_of(spec_obj)
        total = np.zeros(len(hosts))
        if rules:
            instance_uuid = (
                spec_obj.instance_uuid if "instance_uuid" in spec_obj else ""
            )
            nearness = _Nearness(
                hosts, Places(hosts, self._levels), self._distances, instance_uuid
            )
            for rule in rules:
                total += nearness.of(rule) * (-1.0 if rule.is_near else 1.0)
        return total

    def joint_wishes(self, hosts: HostBatch, spec_obj: RequestSpec) -> list[PlacesUsed]:
        """Return the wishes that the instances use few, or many, places or hosts.

        The wishes are those of soft groups; distances do not count.
        """
        if not (rules := [r for r in self._rules_of(spec_obj) if r.is_group]):
            return []
        places, weights = Places(hosts, self._levels), self.multipliers(hosts)
        wishes = []
        for rule in rules:
            place_codes = hosts.codes("host")
            if rule.level:
                # A host without a place shares one with no other host.
                places_at_level = places.at(rule.level)
                own_place_codes = len(places.names(rule.level)) + place_codes
                place_codes = np.where(
                    places_at_level >= 0, places_at_level, own_place_codes
                )
            place_weights = per_place(
                place_codes, -weights if rule.is_near else weights
            )
            wishes.append(PlacesUsed(place_codes, place_weights))
        return wishes

    def _rules_of(self, spec_obj: RequestSpec) -> Sequence[SoftRule]:
        if self._rules is not None:
            return self._rules
        return soft_rules(Request.of(spec_obj), self._levels)


class _Nearness:
    """Computes the distances of a batch's hosts to what soft rules name."""

    def __init__(
        self, hosts: HostBatch, places: Places, distances: Distances, own: str
    ) -> None:
        self._hosts = hosts
        self._places = places
        self._distances = distances
        self._own = own

    def of(self, rule: SoftRule) -> Weights:
        """Return the sum of the distances to a rule's targets, shape (n_hosts,)."""
        if rule.targets:
            return self._to_closest(rule.targets)
        if rule.place is not None:
            lengths = self._to_place(rule.level, rule.place)
            return self._none() if lengths is None else lengths
        instances = rule.instances
        if rule.is_group:
            instances = instances.union(self._hosts.placed)
        by_host = self._hosts.count_by_host(instances - {self._own})
        targets = self._places.targets_of_hosts(by_host)
        if rule.level:
            return self._to_group(by_host, targets, self._first(rule))
        total = self._none()
        for host, target in targets.items():
            total += by_host[host] * self._to_host(host, target)
        return total

    def _first(self, rule: SoftRule) -> int:
        return self._places.levels.index(rule.level)

    def _to_closest(self, targets: Iterable[Target]) -> Weights:
        """Return the distance to the closest of some places and hosts, (n_hosts,).

        The distance is 0 if no host is in any of the places.
        """
        lengths_of = (self._to_place(level, name) for level, name in targets)
        known_lengths = [lengths for lengths in lengths_of if lengths is not None]
        return np.minimum.reduce(known_lengths) if known_lengths else self._none()

    def _to_place(self, level: str, name: str) -> Weights | None:
        """Return the distance to a place, or to a host; None: no host is in it."""
        target = self._places.around(level, name)
        if target is None:
            return None
        if level == HOST:
            return self._to_host(name, target)
        return self._outside(target, self._places.levels.index(level))

    def _to_host(self, host: str, target: Sequence[int]) -> Weights:
        lengths = self._distances.to_target(self._places, target, 0)
        lengths[self._hosts.matches("host", [host])] = 0.0
        return lengths

    def _none(self) -> Weights:
        return np.zeros(len(self._hosts))

    def _to_group(
        self,
        by_host: Mapping[str, int],
        targets: Mapping[str, tuple[int, ...]],
        first: int,
    ) -> Weights:
        """Return the sum of distances to the members of a group, shape (n_hosts,).

        For members in the same place, the distance is computed once. For a member on a
        host without a place, the distance is 0 on that host only.
        """
        n_members_of_target: Counter[tuple[int, ...]] = Counter()
        total = self._none()
        for host, target in targets.items():
            if target[first] >= 0:
                n_members_of_target[target] += by_host[host]
                continue
            lengths = self._distances.to_target(self._places, target, first)
            lengths[self._hosts.matches("host", [host])] = 0.0
            total += by_host[host] * lengths
        for target, n_members in n_members_of_target.items():
            total += n_members * self._outside(target, first)
        return total

    def _outside(self, target: Sequence[int], first: int) -> Weights:
        """Return the distance to a place, 0 inside the place, shape (n_hosts,)."""
        lengths = self._distances.to_target(self._places, target, first)
        lengths[self._places.at(self._places.levels[first]) == target[first]] = 0.0
        return lengths
