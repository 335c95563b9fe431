# SPDX-License-Identifier: Apache-2.0
"""Find the parts of a query to Placement that trees of providers do not meet.

Each part is checked alone. All trees are checked at once; the tree of a single host is
an array with one element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ..candidates import CandidatesQuery
from ..placement.constraints import Constraint, ConstraintKind, Params, constraints
from ..placement.providers import (
    InventoryRecord,
    Matches,
    ProviderQuery,
    ProviderView,
)
from ..placement.providers.interned import INVENTORY
from ..placement.providers.inventories import InventoryColumn
from ..placement.providers.slots import Slot, find_slots

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
#: Rows of root providers, ascending.
Roots = npt.NDArray[np.int32]

#: An inventory that fits any amount of a query.
_ROOMY: Final = InventoryRecord(total=0x7FFFFFFF)
#: The suffix under which a group is checked alone.
_ALONE: Final = "_alone"
_PARTS: Final = frozenset(
    {ConstraintKind.RESOURCE, ConstraintKind.TRAIT, ConstraintKind.AGGREGATE}
)


@dataclass(frozen=True, slots=True)
class QueryPart:
    """A part of a query.

    Attributes
    ----------
    constraint : Constraint or None
        The part. None: each part is met alone, but not all parts at once.
    group : Constraint or None
        The group with a suffix to which the part belongs; None: the part belongs to no
        such group.
    """

    constraint: Constraint | None
    group: Constraint | None = None

    @property
    def suffix(self) -> str:
        """The suffix of the part's group; empty if it has no such group."""
        return "" if self.group is None else suffix_of(self.group)


class QueryChecks:
    """Checks trees of providers against parts of queries.

    Parameters
    ----------
    roots : ndarray of int32, shape (n_roots,), ascending
        The rows of the trees' root providers in the view.
    tree : str, optional
        The provider that queries name (``in_tree``); `roots` has only its tree. In this
        case, providers that share resources with the tree serve nothing of the group
        without a suffix. None: ``in_tree`` of a query is ignored.
    """

    def __init__(
        self, view: ProviderView, roots: Roots, tree: str | None = None
    ) -> None:
        self._view = view
        self._roots = roots
        self._tree = [] if tree is None else [("in_tree", tree)]

    def match(self, params: Params) -> Matches:
        """Return the matches of a whole query, of all trees of the view.

        Raises
        ------
        QueryNotCovered
            Placement would refuse the query.
        """
        return self._match([*without_tree(params), *self._tree], self._view)

    def is_met(self, params: Params) -> Mask:
        """Return which trees meet a whole query, shape (n_roots,).

        Sharing providers may serve a part, but not a whole query, for a tree.

        Raises
        ------
        QueryNotCovered
            Placement would refuse the query.
        """
        return self._trees_meeting([*without_tree(params), *self._tree], is_whole=True)

    def unmet(self, query: CandidatesQuery) -> list[tuple[QueryPart, Mask]]:
        """Return the parts that some trees do not meet alone, and which trees.

        Trees that meet the whole query meet each part. A tree that meets each part
        alone, but not all at once, is reported with ``QueryPart(None)`` only.

        Returns
        -------
        list of (QueryPart, ndarray of bool, shape (n_roots,))

        Raises
        ------
        QueryNotCovered
            Placement would refuse the query.
        """
        params = without_tree(query.params)
        failing = ~self.is_met(params)
        unmet = []
        explained = np.zeros(len(self._roots), np.bool_)
        for part, fails in self._failing(constraints(params)) if failing.any() else ():
            fails = fails & failing
            if fails.any():
                explained |= fails
                unmet.append((part, fails))
        if (failing & ~explained).any():
            unmet.append((QueryPart(None), failing & ~explained))
        return unmet

    def _trees_meeting(
        self, params: Params, *, is_roomy: bool = False, is_whole: bool = False
    ) -> Mask:
        matches = self._match(params, self._roomy if is_roomy else self._view)
        roots = matches.roots[matches.is_allocating()] if is_whole else matches.roots
        return np.isin(self._roots, roots)

    def _match(self, params: Params, view: ProviderView) -> Matches:
        query = ProviderQuery.parse(params)
        return with_names_of(view, query).match(query)

    @cached_property
    def _roomy(self) -> ProviderView:
        return with_unlimited_room(self._view)

    # -- parts -------------------------------------------------------------------------

    def _failing(
        self, query_constraints: Sequence[Constraint]
    ) -> Iterator[tuple[QueryPart, Mask]]:
        parts = [
            constraint for constraint in query_constraints if constraint.kind in _PARTS
        ]
        for part, fails in self._failing_parts(parts, suffix=""):
            yield QueryPart(part), fails
        of_groups = np.zeros(len(self._roots), np.bool_)
        for group in query_constraints:
            if group.kind is ConstraintKind.GROUP:
                for failing_part in self._failing_group(group):
                    of_groups |= failing_part[1]
                    yield failing_part
        # A tree that fails a group alone fails relations between groups, too.
        for relation in query_constraints:
            if relation.needs_candidates and not of_groups.all():
                yield (
                    QueryPart(relation),
                    ~self._trees_meeting(relation.params) & ~of_groups,
                )

    def _failing_group(self, group: Constraint) -> Iterator[tuple[QueryPart, Mask]]:
        parts = constraints(group.params)
        has_resources = any(p.kind is ConstraintKind.RESOURCE for p in parts)
        fails = np.ones(len(self._roots), np.bool_)
        if has_resources:
            params = [(f"{name}{_ALONE}", value) for name, value in group.params]
            fails = ~self._trees_meeting(params)
        explained = np.zeros_like(fails)
        for part, fails_part in self._failing_parts(parts, _ALONE):
            explained |= fails_part
            yield QueryPart(part, group), fails_part & fails
        if has_resources:
            yield QueryPart(group), fails & ~explained

    def _failing_parts(
        self, parts: Sequence[Constraint], suffix: str
    ) -> Iterator[tuple[Constraint, Mask]]:
        held: list[tuple[str, Mask]] | None = None
        for part in parts:
            [(name, value)] = part.params
            if part.kind is ConstraintKind.RESOURCE:
                params = [(f"{name}{suffix}", value), *self._tree_of(suffix)]
                yield part, ~self._trees_meeting(params)
                continue
            held = self._held_resources(parts, suffix) if held is None else held
            yield part, ~self._trees_having(part, held, suffix)

    def _tree_of(self, suffix: str) -> list[tuple[str, str]]:
        """Return the parameter that confines a group to a tree, if there is one."""
        return [] if suffix else self._tree

    def _held_resources(
        self, parts: Sequence[Constraint], suffix: str
    ) -> list[tuple[str, Mask]]:
        """Return the resources of a group of whose classes trees have any inventory.

        Returns
        -------
        list of (resources, ndarray of bool, shape (n_roots,))
            Each tree is in one mask.
        """
        values = [
            part.params[0][1] for part in parts if part.kind is ConstraintKind.RESOURCE
        ]
        has = np.zeros((len(self._roots), len(values)), np.bool_)
        for i, value in enumerate(values):
            has[:, i] = self._has_class(value.split(":")[0], suffix)
        kinds, kind_of = np.unique(has, axis=0, return_inverse=True)
        return [
            (
                ",".join(
                    value
                    for value, is_held in zip(values, kind, strict=True)
                    if is_held
                ),
                kind_of.reshape(-1) == i,
            )
            for i, kind in enumerate(kinds)
        ]

    def _has_class(self, name: str, suffix: str) -> Mask:
        """Return which trees have an inventory of a class, or share one."""
        roots = [slot.roots for slot in self._slots_of(name, suffix)]
        return np.isin(self._roots, np.concatenate([self._roots[:0], *roots]))

    def available(self, name: str, required: int, suffix: str) -> Int64s:
        """Return how much of a class one provider of each tree can allocate now.

        The largest amount up to `required` that an inventory allows; shape (n_roots,).
        `suffix` is that of the group; it decides whether sharing providers count.
        """
        state = self._view.state
        largest = np.zeros(state.trees.n_rows, np.int64)
        column = state.column(name)
        for slot in self._slots_of(name, suffix):
            indices = np.searchsorted(column.rows, slot.providers)
            values = column.distinct.values[column.kinds[indices]]
            amounts = np.minimum(column.free(slot.providers), values["max_unit"])
            amounts = np.clip(amounts, 0, required)
            amounts -= amounts % values["step_size"]
            amounts[amounts < values["min_unit"]] = 0
            np.maximum.at(largest, slot.roots, amounts)
        return largest[self._roots]

    def in_aggregates(self, rows: Roots, value: str) -> Mask:
        """Return which providers meet the value of a ``member_of``, (n_rows,)."""
        return self._meets("member_of", value)[rows]

    def _slots_of(self, name: str, suffix: str) -> list[Slot]:
        """Return the providers that could serve a class with unlimited inventories."""
        params = [("resources", f"{name}:1"), *self._tree_of(suffix)]
        query = ProviderQuery.parse(params)
        return find_slots(self._roomy.state, query) or []

    def _trees_having(
        self, part: Constraint, held: Sequence[tuple[str, Mask]], suffix: str
    ) -> Mask:
        """Return which trees meet a trait or aggregate with a group's resources.

        Inventories count as unlimited. In a tree without these resources, any provider
        may meet the trait or aggregate.
        """
        [(name, value)] = part.params
        if part.kind is ConstraintKind.TRAIT and part.must_match_root:
            return self._meets(name, value)[self._roots]
        has = np.zeros(len(self._roots), np.bool_)
        for resources, in_mask in held:
            if not resources:
                has |= in_mask & self._any_of_tree(self._meets(name, value))
                continue
            # One provider serves a group with a suffix, and may lack some classes.
            for resource in resources.split(",") if suffix else [resources]:
                has |= in_mask & self._trees_meeting(
                    [
                        (f"resources{suffix}", resource),
                        (f"{name}{suffix}", value),
                        *self._tree_of(suffix),
                    ],
                    is_roomy=True,
                )
        return has

    def _meets(self, name: str, value: str) -> Mask:
        """Return which providers meet a trait or aggregate parameter, (n_rows,)."""
        trees = self._view.state.trees
        names = value.removeprefix("!").removeprefix("in:").split(",")
        has = (
            trees.has_trait(names) if name == "required" else trees.in_aggregate(names)
        )
        return ~has if value.startswith("!") else has

    def _any_of_tree(self, mask: Mask) -> Mask:
        """Return which trees have a provider in a mask, or share with one."""
        trees = self._view.state.trees
        has = np.zeros(trees.n_rows, np.bool_)
        has[trees.roots[mask & (trees.uuids != "")]] = True
        anchors, sharing = trees.shared
        has[anchors[mask[sharing]]] = True
        return has[self._roots]


def suffix_of(group: Constraint) -> str:
    """Return the suffix of a group's constraint."""
    return group.description.partition(" (")[0].removeprefix("group ")


def tree_of(query: CandidatesQuery) -> str | None:
    """Return the provider whose tree has to serve a query's group without a suffix."""
    return dict(query.params).get("in_tree")


def without_tree(params: Params) -> list[tuple[str, str]]:
    """Return a query's parameters without the tree that it names, and any limit."""
    return [param for param in params if param[0] not in ("in_tree", "limit")]


def with_names_of(view: ProviderView, query: ProviderQuery) -> ProviderView:
    """Return a view that knows all names in a query.

    Otherwise a trait that no provider has would be an error, not only missing.
    """
    names = _names_of(query)
    return replace(
        view,
        known_traits=view.known_traits | names["traits"],
        known_classes=view.known_classes | names["classes"],
    )


def _names_of(query: ProviderQuery) -> Mapping[str, frozenset[str]]:
    traits = query.root_required | query.root_forbidden
    classes = frozenset[str]()
    for group in query.groups:
        traits = traits.union(group.forbidden, *group.required)
        classes |= group.amounts.keys()
    return {"traits": traits, "classes": classes}


def with_unlimited_room(view: ProviderView) -> ProviderView:
    """Return providers with unlimited inventories, to check traits without amounts."""
    state = view.state
    inventories = {
        name: _with_room(column) for name, column in state.inventories.items()
    }
    return replace(view, state=replace(state, inventories=inventories))


def _with_room(column: InventoryColumn) -> InventoryColumn:
    distinct = column.distinct.emptied()
    [kind] = distinct.intern(np.array([tuple(_ROOMY)], INVENTORY))
    return InventoryColumn(
        distinct,
        column.rows,
        np.full_like(column.kinds, kind),
        np.zeros_like(column.used),
    )
