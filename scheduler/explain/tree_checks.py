# SPDX-License-Identifier: Apache-2.0
"""Which parts of a query to Placement one host's providers do not meet, each alone."""

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
from .query_checks import QueryChecks, QueryPart
from .reasons import CheckStage, HostReason


class HostTree:
    """A host's providers, and those that share with it, against parts of a query.

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
        view = ProviderTable(ProviderColumns.of(records)).view()
        self._checks = QueryChecks(view, np.zeros(1, np.int32))

    def match(self, query: CandidatesQuery) -> Matches:
        """Return the candidates for a query that the tree meets."""
        return self._checks.match(query.params)

    def reasons(self, query: CandidatesQuery) -> list[HostReason]:
        """Return each part of a query that the tree does not meet alone.

        If it meets each alone but not all at once, that is the only reason. The tree
        that a query names is not a part: see `Request.destination`.
        """
        try:
            return [self._reason(part) for part, _ in self._checks.unmet(query)]
        except QueryNotCovered as e:
            return [_reason("query", f"Placement would refuse the query: {e}")]

    def _reason(self, part: QueryPart) -> HostReason:
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
        found = (
            self._lacking(value)
            if constraint.kind is ConstraintKind.RESOURCE
            else self._missing(constraint, value)
        )
        if part.group is None:
            return found
        return replace(found, reason=f"{found.reason} ({_label(part.group)})")

    def _lacking(self, pair: str) -> HostReason:
        name, _, amount = pair.partition(":")
        having = [r for r in self._records if name in r.inventories]
        if not having:
            return _reason(name, "the host has none", amount, "no inventory")
        best = max(having, key=lambda record: _free(record, name))
        inventory = best.inventories[name]
        used = best.used.get(name, 0)
        free = f"{max(0, _free(best, name))} free of {_capacity(inventory)}"
        text, limit = "not enough left", ""
        if int(amount) > _capacity(inventory):
            text = "more than its capacity"
        if broken := _broken_unit(inventory, int(amount)):
            text, limit = broken
        return _reason(name, text, amount, f"{free}, {used} used{limit}")

    def _missing(self, part: Constraint, value: str) -> HostReason:
        if part.kind is ConstraintKind.AGGREGATE:
            is_out = value.startswith("!")
            wanted = value.removeprefix("!").removeprefix("in:").split(",")
            text = "in a forbidden aggregate" if is_out else "not in the aggregate"
            required = f"{'outside ' if is_out else ''}{self._listed(wanted)}"
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
    """Return what a group with a suffix is called."""
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
