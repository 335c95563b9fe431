# SPDX-License-Identifier: Apache-2.0
"""The table of resource providers: loaded, updated, and read through views."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

import numpy as np
import os_resource_classes
import os_traits

from .interned import InternedSets, Rows
from .inventories import InventoryColumn
from .records import InventoryRows, ProviderColumns, ProviderRecord, inventory_rows
from .state import ProviderState
from .trees import ProviderTrees
from .view import ProviderView

#: A column is compacted once it has more distinct inventories than this number plus
#: twice its providers: the size of a storage pool may change with each report.
_MIN_DISTINCT: Final = 1000
_EMPTY_ROW = ProviderRecord("")


class ProviderTable:
    """Placement's resource providers, in memory; thread-safe.

    Readers take a view. A change copies each array that it affects, so that it is
    cheaper to change many providers at once. An unknown provider raises KeyError,
    except in `add_used`.

    Parameters
    ----------
    columns : ProviderColumns, optional
    is_mysql : bool
        Whether Placement's database is MariaDB or MySQL, which keep ratios in 32 bits.
    """

    def __init__(
        self, columns: ProviderColumns | None = None, *, is_mysql: bool = False
    ) -> None:
        self._lock = threading.Lock()
        self._is_mysql = is_mysql
        self._known_traits = frozenset[str](os_traits.get_traits())
        self._known_classes = frozenset[str](os_resource_classes.STANDARDS)
        self.load(columns or ProviderColumns.of([]))

    @classmethod
    def of_view(cls, view: ProviderView) -> Self:
        """Return a table with the providers of a view, whose arrays it shares."""
        table = cls()
        table._state = view.state
        table._row_of = dict(view.state.trees.row_of)
        uuids = view.state.trees.uuids.tolist()
        table._empty_rows = [row for row, uuid in enumerate(uuids) if not uuid]
        table.set_names(traits=view.known_traits, resource_classes=view.known_classes)
        return table

    def view(self) -> ProviderView:
        """Return all providers as they are now."""
        with self._lock:
            return ProviderView(self._state, self._known_traits, self._known_classes)

    def add_names(
        self, *, traits: Iterable[str] = (), resource_classes: Iterable[str] = ()
    ) -> None:
        """Add names that Placement knows; `load` and `put` add those of providers."""
        with self._lock:
            self._known_traits = self._known_traits.union(traits)
            self._known_classes = self._known_classes.union(resource_classes)

    def set_names(
        self, *, traits: Iterable[str], resource_classes: Iterable[str]
    ) -> None:
        """Replace the names that Placement knows; they include those of providers."""
        with self._lock:
            self._known_traits = frozenset(traits)
            self._known_classes = frozenset(resource_classes)

    def load(self, columns: ProviderColumns) -> None:
        """Replace all providers."""
        self.add_names(
            traits=frozenset[str]().union(*columns.traits),
            resource_classes=columns.inventories,
        )
        row_of = {uuid: row for row, uuid in enumerate(columns.uuids)}
        inventories = {
            name: _with_rows(self._empty_column(), rows)
            for name, rows in columns.inventories.items()
        }
        trees = _trees(columns, row_of)
        with self._lock:
            self._row_of = row_of
            self._empty_rows: list[int] = []
            self._state = ProviderState(trees, inventories, columns.generations)

    def put(self, records: Iterable[ProviderRecord]) -> None:
        """Add or replace providers; a parent must be in the table or the records."""
        latest = list({record.uuid: record for record in records}.values())
        self.add_names(
            traits=frozenset[str]().union(*(record.traits for record in latest)),
            resource_classes={name for record in latest for name in record.inventories},
        )
        with self._lock:
            new_uuids = {record.uuid for record in latest} - self._row_of.keys()
            for record in latest:
                if record.parent_uuid and record.parent_uuid not in new_uuids:
                    self._row_of[record.parent_uuid]  # KeyError before any change
            self._write(self._rows_for(latest), latest)

    def remove(self, uuids: Iterable[str]) -> None:
        """Remove providers; their children must be removed before or with them."""
        with self._lock:
            rows = [self._row_of[uuid] for uuid in uuids]
            for uuid in self._state.trees.uuids[rows]:
                del self._row_of[uuid]
            self._empty_rows += rows
            self._write(np.array(rows, np.int32), [_EMPTY_ROW] * len(rows))

    def update(
        self,
        *,
        used: Mapping[str, Mapping[str, int]] | None = None,
        generations: Mapping[str, int] | None = None,
    ) -> None:
        """Replace usages and generations of providers, all at once.

        Parameters
        ----------
        used : mapping, optional
            {resource class: {provider UUID: used}}. A provider without an inventory of
            the class is skipped.
        generations : mapping, optional
            {provider UUID: generation}.
        """
        with self._lock:
            new_generations = self._state.generations
            if generations:
                new_generations = new_generations.copy()
                rows = [self._row_of[uuid] for uuid in generations]
                new_generations[rows] = list(generations.values())
            inventories = dict(self._state.inventories)
            for name, amounts in (used or {}).items():
                used_rows = np.array([self._row_of[uuid] for uuid in amounts], np.int32)
                values = np.array(list(amounts.values()), np.int64)
                inventories[name] = self._state.column(name).with_used(
                    used_rows, values
                )
            self._state = replace(
                self._state, inventories=inventories, generations=new_generations
            )

    def add_used(self, amounts: Mapping[str, Mapping[str, int]]) -> None:
        """Add to usages, which do not become negative.

        Parameters
        ----------
        amounts : mapping
            {resource class: {provider UUID: amount}}. An unknown provider, or one
            without an inventory of the class, is skipped.
        """
        with self._lock:
            inventories = dict(self._state.inventories)
            for name, by_uuid in amounts.items():
                column = self._state.column(name)
                known_uuids = [uuid for uuid in by_uuid if uuid in self._row_of]
                rows = np.array([self._row_of[uuid] for uuid in known_uuids], np.int32)
                positions, indices = column.positions(rows)
                if not len(indices):
                    continue
                added = np.array(
                    [by_uuid[known_uuids[i]] for i in indices.tolist()], np.int64
                )
                used = np.maximum(column.used[positions] + added, 0)
                inventories[name] = column.with_used(rows[indices], used)
            self._state = replace(self._state, inventories=inventories)

    def _rows_for(self, records: Sequence[ProviderRecord]) -> Rows:
        """Return the rows of records; new ones get empty rows, or rows at the end."""
        n_rows = self._state.trees.n_rows
        for record in records:
            if record.uuid not in self._row_of:
                row = self._empty_rows.pop() if self._empty_rows else n_rows
                n_rows = max(n_rows, row + 1)
                self._row_of[record.uuid] = row
        return np.array([self._row_of[record.uuid] for record in records], np.int32)

    def _write(self, rows: Rows, records: Sequence[ProviderRecord]) -> None:
        """Replace rows by records; called with the lock held."""
        state = self._state
        n_new = max(0, rows.max(initial=-1) + 1 - state.trees.n_rows)
        generations = np.concatenate([state.generations, np.zeros(n_new, np.int64)])
        generations[rows] = [record.generation for record in records]
        trees = _with_records(state.trees, n_new, rows, records)
        if not n_new and _are_equal(trees, state.trees, rows):
            trees = state.trees  # keeps the properties that it has cached
        added_inventories = inventory_rows(records, rows.tolist())
        inventories = {
            name: column.without(rows) for name, column in state.inventories.items()
        }
        for name, class_inventories in added_inventories.items():
            column = inventories.get(name) or self._empty_column()
            inventories[name] = _with_rows(column, class_inventories)
        self._state = ProviderState(trees, inventories, generations)

    def _empty_column(self) -> InventoryColumn:
        return InventoryColumn.empty(is_mysql=self._is_mysql)


def _trees(columns: ProviderColumns, row_of: dict[str, int]) -> ProviderTrees:
    traits, aggregates = InternedSets(), InternedSets()
    trait_indices = [traits.intern(names) for names in columns.traits]
    aggregate_indices = [aggregates.intern(uuids) for uuids in columns.aggregates]
    return ProviderTrees(
        np.array(columns.uuids, np.object_),
        columns.parents,
        np.array(trait_indices, np.int32)[columns.trait_sets],
        np.array(aggregate_indices, np.int32)[columns.aggregate_sets],
        traits,
        aggregates,
        row_of,
    )


def _are_equal(one: ProviderTrees, other: ProviderTrees, rows: Rows) -> bool:
    """Return whether two versions of the trees have the same values in `rows`."""
    return all(
        np.array_equal(getattr(one, name)[rows], getattr(other, name)[rows])
        for name in ("uuids", "parents", "trait_sets", "aggregate_sets")
    )


def _with_rows(column: InventoryColumn, added: InventoryRows) -> InventoryColumn:
    """Return a column with further inventories; compact it before, if necessary."""
    if len(column.distinct.values) > _MIN_DISTINCT + 2 * len(column.rows):
        column = column.compacted()
    kinds = column.distinct.intern(added.values)
    return column.with_rows(added.rows, kinds, added.used)


def _with_records(
    trees: ProviderTrees, n_new: int, rows: Rows, records: Sequence[ProviderRecord]
) -> ProviderTrees:
    """Return trees with `n_new` more rows, in which records replace `rows`."""
    no_rows = np.zeros(n_new, np.int32)
    uuids = np.concatenate([trees.uuids, np.empty(n_new, np.object_)])
    parents = np.concatenate([trees.parents, no_rows])
    trait_sets = np.concatenate([trees.trait_sets, no_rows])
    aggregate_sets = np.concatenate([trees.aggregate_sets, no_rows])
    uuids[rows] = [record.uuid for record in records]
    parents[rows] = [
        trees.row_of[record.parent_uuid] if record.parent_uuid else -1
        for record in records
    ]
    trait_sets[rows] = [trees.traits.intern(record.traits) for record in records]
    aggregate_sets[rows] = [
        trees.aggregates.intern(record.aggregates) for record in records
    ]
    return replace(
        trees,
        uuids=uuids,
        parents=parents,
        trait_sets=trait_sets,
        aggregate_sets=aggregate_sets,
    )
