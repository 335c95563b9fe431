# SPDX-License-Identifier: Apache-2.0
"""Find the parts of a query to Placement that one host's providers do not meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..candidates import CandidatesQuery
from ..placement.constraints import Constraint, ConstraintKind
from ..placement.providers import (
    InventoryRecord,
    Matches,
    ProviderColumns,
    ProviderRecord,
    ProviderTable,
    QueryNotCovered,
)
from .query_checks import QueryChecks, QueryPart, tree_of
from .reasons import CheckStage, HostReason


class HostTree:
    """Checks a host's providers, and providers that share with it, against a query.

    Parameters
    ----------
    records : sequence of ProviderRecord
        The root first; at least one.
    aggregate_names : mapping
        Texts for aggregates by UUID; an aggregate without one is shown as its UUID.
    """

    def __init__(
        self, records: Sequence[ProviderRecord], aggregate_names: Mapping[str, str]
    ) -> None:
        self._records = records
        self._root = records[0]
        self._names = aggregate_names
        self._view = ProviderTable(ProviderColumns.of(records)).view()
        trees = self._view.state.trees
        #: The providers of the host's own tree; the other records share with it.
        self._own = [
            record for record in records if trees.roots[trees.find(record.uuid)] == 0
        ]

    def match(self, query: CandidatesQuery) -> Matches:
        """Return the candidates for a query that the tree meets."""
        return self._checks(query).match(query.params)

    def _checks(self, query: CandidatesQuery) -> QueryChecks:
        tree = tree_of(query) if self._is_named(query) else None
        return QueryChecks(self._view, np.zeros(1, np.int32), tree)

    def _is_named(self, query: CandidatesQuery) -> bool:
        """Return whether a query is about this tree only."""
        return tree_of(query) in {record.uuid for record in self._own}

    def reasons(self, query: CandidatesQuery) -> list[HostReason]:
        """Return each part of a query that the tree does not meet alone.

        If the tree meets each part alone but not all parts at once, that is the only
        reason. If the query names another tree, that is a reason, and the parts are
        checked as if the query named no tree.
        """
        reasons = []
        if tree_of(query) and not self._is_named(query):
            reason_text = "the flavor or a device names the tree of another provider"
            reasons.append(
                _reason("in_tree", reason_text, tree_of(query), self._root.uuid)
            )
        try:
            unmet = self._checks(query).unmet(query)
        except QueryNotCovered as e:
            return [_reason("query", f"Placement would refuse the query: {e}")]
        return [*reasons, *(self._reason(part, query) for part, _ in unmet)]

    def _reason(self, part: QueryPart, query: CandidatesQuery) -> HostReason:
        constraint = part.constraint
        if constraint is None:
            return _reason(
                "providers", "no set of its providers meets all parts at once"
            )
        if constraint.kind is ConstraintKind.GROUP:
            text = f"no single provider has all of it ({_label(constraint)})"
            return _reason(constraint.description, text)
        if constraint.needs_candidates:
            return _reason(constraint.kind, f"not met: {constraint.description}")
        [(_, value)] = constraint.params
        is_own = part.group is None and self._is_named(query)
        if constraint.kind is ConstraintKind.RESOURCE:
            reason = self._resource_reason(
                value, self._own if is_own else self._records
            )
        elif part.group is None and constraint.kind is ConstraintKind.AGGREGATE:
            reason = self._sharing_reason(query, value) or self._unmet_reason(
                constraint, value
            )
        else:
            reason = self._unmet_reason(constraint, value)
        if part.group is None:
            return reason
        return replace(reason, reason=f"{reason.reason} ({_label(part.group)})")

    def _resource_reason(
        self, pair: str, records: Sequence[ProviderRecord]
    ) -> HostReason:
        """Return how much of a class these providers have, and why it is too little."""
        name, _, amount = pair.partition(":")
        having = [r for r in records if name in r.inventories]
        if not having:
            text = "the host has none"
            if any(name in r.inventories for r in self._records):
                text = (
                    "the host has none of its own, and Placement grants none of a "
                    "sharing provider to a request that names a host (in_tree)"
                )
            return _reason(name, text, amount, "no inventory")
        roomiest = max(having, key=lambda record: _free(record, name))
        inventory = roomiest.inventories[name]
        used = roomiest.used.get(name, 0)
        free = f"{max(0, _free(roomiest, name))} free of {_capacity(inventory)}"
        text, limit = "not enough left", ""
        if int(amount) > _capacity(inventory):
            text = "more than its capacity"
        elif broken := _broken_unit(inventory, int(amount)):
            text, limit = broken
        return _reason(name, text, amount, f"{free}, {used} used{limit}")

    def _sharing_reason(self, query: CandidatesQuery, value: str) -> HostReason | None:
        """Return the reason if a sharing provider breaks a rule of aggregates.

        None: the host itself breaks the rule.

        Placement applies the aggregates of a query to each provider that serves it.
        """
        is_forbidden = value.startswith("!")
        aggregates = value.removeprefix("!").removeprefix("in:").split(",")
        if self._root.aggregates.isdisjoint(aggregates) is not is_forbidden:
            return None
        pairs = dict(query.params).get("resources", "").split(",")
        requested_classes = {pair.partition(":")[0] for pair in pairs}
        classes = requested_classes.difference(
            *(record.inventories for record in self._own)
        )
        sharing = [r for r in self._records if classes & r.inventories.keys()]
        where = "in a forbidden aggregate" if is_forbidden else "not in the aggregate"
        return _reason(
            "aggregate",
            f"the provider that shares {', '.join(sorted(classes))} with it is {where}",
            f"{'outside ' if is_forbidden else ''}{self._listed(aggregates)}",
            self._listed({uuid for r in sharing for uuid in r.aggregates}),
        )

    def _unmet_reason(self, part: Constraint, value: str) -> HostReason:
        if part.kind is ConstraintKind.AGGREGATE:
            is_forbidden = value.startswith("!")
            aggregates = value.removeprefix("!").removeprefix("in:").split(",")
            text = (
                "in a forbidden aggregate" if is_forbidden else "not in the aggregate"
            )
            required = f"{'outside ' if is_forbidden else ''}{self._listed(aggregates)}"
            return _reason(
                "aggregate", text, required, self._listed(self._root.aggregates)
            )
        if value.startswith("!"):
            name = value[1:]
            return _reason(name, "it has a forbidden trait", f"not {name}", name)
        names = value.removeprefix("in:").replace(",", " or ")
        return _reason(names, "it lacks the trait", names, "not among its traits")

    def _listed(self, uuids: Iterable[str]) -> str:
        names = sorted(self._names.get(uuid, uuid) for uuid in uuids)
        return " or ".join(names) or "none"


def _reason(
    check: str, reason: str, required: str | None = None, available: str | None = None
) -> HostReason:
    return HostReason(CheckStage.PLACEMENT, check, reason, required, available)


def _label(group: Constraint) -> str:
    """Return the name of a group with a suffix."""
    return group.description.partition(" (")[0]


def _capacity(inventory: InventoryRecord) -> int:
    return int((inventory.total - inventory.reserved) * inventory.allocation_ratio)


def _free(record: ProviderRecord, name: str) -> int:
    return _capacity(record.inventories[name]) - record.used.get(name, 0)


def _broken_unit(inventory: InventoryRecord, amount: int) -> tuple[str, str] | None:
    """Return how an amount breaks a unit of an inventory, and the unit; or None."""
    if amount > inventory.max_unit:
        unit = f"; at most {inventory.max_unit} for one instance (max_unit)"
        return "more than one instance may have", unit
    if amount < inventory.min_unit:
        unit = f"; at least {inventory.min_unit} for one instance (min_unit)"
        return "less than one instance must have", unit
    if amount % inventory.step_size:
        unit = f"; in steps of {inventory.step_size} (step_size)"
        return "not a multiple of what is allocated", unit
    return None
