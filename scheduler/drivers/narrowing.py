# SPDX-License-Identifier: Apache-2.0
"""Narrow the query for Placement to the places that a request's rules allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ...filters import BaseHostFilter
from ...filters.locality import LocalityFilter
from ..hosts import HostTable
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

    nova mirrors its host aggregates to Placement. For rules that cannot be expressed so
    the query has no limit, as for nova's hints about other instances.
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
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for each in table.aggregates:
            if place := place_of(each):
                found[place].add(each.uuid)
        for one in table.placement_places:
            found[one.place].add(one.aggregate)
        self._found: Mapping[tuple[str, str], set[str]] = found

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
        return frozenset(
            uuid for name in names for uuid in self._found.get((level, name), ())
        )
