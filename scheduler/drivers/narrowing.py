# SPDX-License-Identifier: Apache-2.0
"""Narrow the query for Placement to the places that a request's rules allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ...filters import BaseHostFilter
from ...filters.locality import LocalityFilter
from ..hosts import HostAggregate, HostTable
from ..locality import Places, place_of
from ..placement.query import Requirements
from ..request import Request
from ..request.locality import InPlaces, Rule, WithInstances


def narrow_to_places(
    request: Request,
    table: HostTable,
    levels: Sequence[str],
    filters: Collection[BaseHostFilter],
    requirements: Requirements,
) -> None:
    """Require the aggregates of the places that a rule names or implies.

    nova mirrors its host aggregates to Placement, of a service host with several nodes
    (Ironic) only for the first one. For rules that cannot be expressed so the query has
    no limit, as for nova's hints about other instances.
    """
    is_applied = any(isinstance(each, LocalityFilter) for each in filters)
    if not is_applied or request.skips_filters:
        return
    rules = request.locality_rules(levels)
    if not rules:
        return
    aggregates = _Aggregates(table, levels)
    for rule in rules:
        if uuids := aggregates.of_rule(rule):
            requirements.member_of.append(uuids)
        else:
            requirements.is_limited = False


class _Aggregates:
    """The aggregates that make up places."""

    def __init__(self, table: HostTable, levels: Sequence[str]) -> None:
        self._hosts = table.batch()
        self._places = Places(self._hosts, levels)
        found: defaultdict[tuple[str, str], list[HostAggregate]] = defaultdict(list)
        for each in table.aggregates:
            if place := place_of(each):
                found[place].append(each)
        self._found: Mapping[tuple[str, str], list[HostAggregate]] = found
        #: Aggregates of Placement only, of which each node is a member by itself.
        self._of_nodes: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for one in table.placement_places:
            self._of_nodes[one.place].add(one.aggregate)

    def of_rule(self, rule: Rule) -> frozenset[str]:
        """Return aggregates of which a host must be in one; empty: this is unknown."""
        if isinstance(rule, InPlaces) and rule.is_allowing:
            return self._of_places(rule.level, rule.places)
        if isinstance(rule, WithInstances) and not rule.is_group:
            counts = self._places.count(rule.level, rule.instances)
            names = self._places.names(rule.level)
            with_some = [names[i] for i in np.flatnonzero(counts)]
            return self._of_places(rule.level, with_some)
        return frozenset()

    def _of_places(self, level: str, names: Collection[str]) -> frozenset[str]:
        if self._places.has_reported(level):
            return frozenset()  # aggregates do not have all hosts of the places
        found = [each for name in names for each in self._found.get((level, name), ())]
        hosts = frozenset[str]().union(*(each.hosts for each in found))
        if self._have_several_nodes(hosts):
            return frozenset()
        of_nodes = (self._of_nodes.get((level, name), ()) for name in names)
        return frozenset(each.uuid for each in found).union(*of_nodes)

    def _have_several_nodes(self, hosts: Collection[str]) -> bool:
        """Return whether one of these service hosts has more than one compute node."""
        codes = self._hosts.codes("host")[self._hosts.matches("host", hosts)]
        return bool(len(codes)) and int(np.bincount(codes).max()) > 1
