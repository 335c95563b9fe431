# SPDX-License-Identifier: Apache-2.0
"""Which parts of a query to Placement one host's providers do not meet, each alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..candidates import CandidatesQuery
from ..placement.constraints import Constraint, ConstraintKind, Params, constraints
from ..placement.providers import (
    InventoryRecord,
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
    ProviderView,
    QueryNotCovered,
)
from .reasons import CheckStage, HostReason

#: Enough for any amount that a query can have.
_ROOMY: Final = InventoryRecord(total=0x7FFFFFFF)
#: The suffix under which a group is checked alone.
_ALONE: Final = "_alone"


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
        self._table = ProviderTable(ProviderColumns.of(records))
        # Any amount of what there is: for traits and aggregates alone.
        self._roomy = ProviderTable(ProviderColumns.of(map(_with_room, records)))
        self._classes = {name for record in records for name in record.inventories}

    @property
    def view(self) -> ProviderView:
        """The providers as a view."""
        return self._table.view()

    def reasons(self, query: CandidatesQuery) -> list[HostReason]:
        """Return each part of a query that the tree does not meet alone.

        If it meets each alone but not all at once, that is the only reason. The tree
        that a query names is not a part: see `Request.destination`.
        """
        params = [each for each in query.params if each[0] != "in_tree"]
        try:
            if self._matches(params, is_whole=True):
                return []
            found = list(self._failing(constraints(params)))
        except QueryNotCovered as e:
            return [_reason("query", f"Placement would refuse the query: {e}")]
        return found or [
            _reason("providers", "no set of its providers meets all parts at once")
        ]

    def _matches(
        self, params: Params, *, is_roomy: bool = False, is_whole: bool = False
    ) -> bool:
        query = ProviderQuery.parse(params)
        table = self._roomy if is_roomy else self._table
        table.add_names(**_names_of(query))
        matches = table.view().match(query)
        # Sharing providers may serve a part, but not a whole query, for the tree.
        found = matches.uuids[matches.is_allocating()] if is_whole else matches.uuids
        return self._root.uuid in found

    def _failing(self, all_: Sequence[Constraint]) -> Iterator[HostReason]:
        own = [each for each in all_ if each.kind in _PARTS]
        yield from self._failing_parts(own, suffix="")
        groups = [each for each in all_ if each.kind is ConstraintKind.GROUP]
        of_groups = [reason for each in groups for reason in self._failing_group(each)]
        yield from of_groups
        # Groups that fail alone also fail together.
        for each in () if of_groups else all_:
            if each.needs_candidates and not self._matches(each.params):
                yield _reason(each.kind, f"not met: {each.description}")

    def _failing_parts(
        self, parts: Sequence[Constraint], suffix: str
    ) -> Iterator[HostReason]:
        held = self._held(parts)
        for part in parts:
            [(name, value)] = part.params
            if part.kind is ConstraintKind.RESOURCE:
                if not self._matches([(f"{name}{suffix}", value)]):
                    yield self._lacking(value)
            elif not self._has(part, held, suffix):
                yield self._missing(part, value)

    def _held(self, parts: Sequence[Constraint]) -> str:
        """Return the resources of a group whose classes the tree has at all."""
        values = [e.params[0][1] for e in parts if e.kind is ConstraintKind.RESOURCE]
        return ",".join(v for v in values if v.split(":")[0] in self._classes)

    def _has(self, part: Constraint, held: str, suffix: str) -> bool:
        """Return whether providers of a group's resources meet a trait or aggregate.

        As if they had any amount. Without such a provider, any of the tree counts.
        """
        [(name, value)] = part.params
        if part.kind is ConstraintKind.TRAIT and part.must_match_root:
            return _meets([self._root], name, value)
        if not held:
            return _meets(self._records, name, value)
        # One provider serves a group with a suffix, which may lack some of its classes.
        choices = held.split(",") if suffix else [held]
        return any(
            self._matches(
                [(f"resources{suffix}", each), (f"{name}{suffix}", value)],
                is_roomy=True,
            )
            for each in choices
        )

    def _failing_group(self, group: Constraint) -> Iterator[HostReason]:
        parts = constraints(group.params)
        has_resources = any(p.kind is ConstraintKind.RESOURCE for p in parts)
        alone = [(f"{name}{_ALONE}", value) for name, value in group.params]
        if has_resources and self._matches(alone):
            return
        found = list(self._failing_parts(parts, _ALONE))
        if not found and has_resources:
            text = "no single provider has all of it"
            found = [_reason(group.description, text)]
        label = group.description.partition(" (")[0]
        for each in found:
            yield replace(each, reason=f"{each.reason} ({label})")

    def _lacking(self, pair: str) -> HostReason:
        name, _, amount = pair.partition(":")
        having = [r for r in self._records if name in r.inventories]
        if not having:
            return _reason(name, "the host has none", amount, "no inventory")
        best = max(having, key=lambda record: _free(record, name))
        inventory = best.inventories[name]
        used = best.used.get(name, 0)
        free = f"{max(0, _free(best, name))} free of {_capacity(inventory)}"
        limit = _unit_limit(inventory, int(amount))
        text = "an allocation may not have this amount" if limit else "not enough left"
        if int(amount) > _capacity(inventory):
            text = "more than its capacity"
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


_PARTS: Final = frozenset(
    {ConstraintKind.RESOURCE, ConstraintKind.TRAIT, ConstraintKind.AGGREGATE}
)


def _reason(
    check: str, reason: str, required: str | None = None, available: str | None = None
) -> HostReason:
    return HostReason(CheckStage.PLACEMENT, check, reason, required, available)


def _with_room(record: ProviderRecord) -> ProviderRecord:
    roomy = dict.fromkeys(record.inventories, _ROOMY)
    return replace(record, inventories=roomy, used={})


def _names_of(query: ProviderQuery) -> dict[str, set[str]]:
    """Return what a query names: a trait that no provider here has is only missing."""
    traits = set(query.root_required | query.root_forbidden)
    classes: set[str] = set()
    for group in query.groups:
        traits = traits.union(group.forbidden, *group.required)
        classes |= group.amounts.keys()
    return {"traits": traits, "resource_classes": classes}


def _meets(records: Iterable[ProviderRecord], name: str, value: str) -> bool:
    """Return whether one of some providers meets a trait or aggregate parameter."""
    is_forbidden = value.startswith("!")
    wanted = set(value.removeprefix("!").removeprefix("in:").split(","))
    having = (r.traits if name == "required" else r.aggregates for r in records)
    return any(bool(wanted & names) is not is_forbidden for names in having)


def _capacity(inventory: InventoryRecord) -> int:
    return int((inventory.total - inventory.reserved) * inventory.allocation_ratio)


def _free(record: ProviderRecord, name: str) -> int:
    return _capacity(record.inventories[name]) - record.used.get(name, 0)


def _unit_limit(inventory: InventoryRecord, amount: int) -> str:
    """Return the limit of an inventory that an amount breaks, as text; or ""."""
    if amount > inventory.max_unit:
        return f"; at most {inventory.max_unit} at once"
    if amount < inventory.min_unit:
        return f"; at least {inventory.min_unit} at once"
    if amount % inventory.step_size:
        return f"; in steps of {inventory.step_size}"
    return ""
