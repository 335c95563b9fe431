# SPDX-License-Identifier: Apache-2.0
"""What a `ProviderTable` is filled with: records of providers, or columns of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .interned import INVENTORY, Int64s, Rows


class InventoryRecord(NamedTuple):
    """One inventory; the defaults are Placement's."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 0x7FFFFFFF
    step_size: int = 1
    allocation_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class ProviderRecord:
    """One resource provider.

    Attributes
    ----------
    parent_uuid : str, optional
        None: the provider is the root of its tree.
    inventories, used : mapping
        By resource class; a class without an entry in `used` has the usage 0.
    aggregates : frozenset of str
        UUIDs of the aggregates that the provider is in.
    """

    uuid: str
    parent_uuid: str | None = None
    generation: int = 0
    inventories: Mapping[str, InventoryRecord] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class InventoryRows:
    """The inventories of one resource class.

    Attributes
    ----------
    rows : ndarray of int32, shape (n,), ascending
        Positions of the providers in `ProviderColumns.uuids`.
    values : ndarray of dtype `INVENTORY`, shape (n,)
    used : ndarray of int64, shape (n,)
    """

    rows: Rows
    values: npt.NDArray[np.void]
    used: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class ProviderColumns:
    """All providers of a cloud, for loading at once.

    A table whose providers of one tree stand together, the root first, answers faster.

    Attributes
    ----------
    uuids : sequence of str, length n
    parents : ndarray of int32, shape (n,)
        The parent's position in `uuids`; -1 for a root.
    generations : ndarray of int64, shape (n,)
    traits, aggregates : sequence of frozenset of str
        Distinct sets of names.
    trait_sets, aggregate_sets : ndarray of int32, shape (n,)
        Each provider's index in `traits`, and in `aggregates`.
    inventories : mapping
        {resource class: InventoryRows}.
    """

    uuids: Sequence[str]
    parents: Rows
    generations: Int64s
    traits: Sequence[frozenset[str]]
    trait_sets: Rows
    aggregates: Sequence[frozenset[str]]
    aggregate_sets: Rows
    inventories: Mapping[str, InventoryRows]

    @classmethod
    def of(cls, records: Iterable[ProviderRecord]) -> ProviderColumns:
        """Return the columns of records, whose parents are among them."""
        records = list(records)
        row_of = {record.uuid: i for i, record in enumerate(records)}
        parents = [
            row_of[record.parent_uuid] if record.parent_uuid else -1
            for record in records
        ]
        traits, trait_sets = _distinct([record.traits for record in records])
        aggregates, aggregate_sets = _distinct(
            [record.aggregates for record in records]
        )
        return cls(
            list(row_of),
            np.array(parents, np.int32),
            np.array([record.generation for record in records], np.int64),
            traits,
            trait_sets,
            aggregates,
            aggregate_sets,
            inventory_rows(records, range(len(records))),
        )


def _distinct(sets: list[frozenset[str]]) -> tuple[list[frozenset[str]], Rows]:
    """Return the distinct sets, and the index of each of `sets` among them."""
    index: dict[frozenset[str], int] = {}
    indices = [index.setdefault(names, len(index)) for names in sets]
    return list(index), np.array(indices, np.int32)


def inventory_rows(
    records: Sequence[ProviderRecord], rows: Iterable[int]
) -> dict[str, InventoryRows]:
    """Return the inventories of records, whose rows are `rows`, by resource class."""
    by_class: dict[str, list[tuple[int, InventoryRecord, int]]] = {}
    for row, record in zip(rows, records, strict=True):
        for name, inventory in record.inventories.items():
            entry = row, inventory, record.used.get(name, 0)
            by_class.setdefault(name, []).append(entry)
    return {
        name: InventoryRows(
            np.array([row for row, _, _ in entries], np.int32),
            np.array([tuple(inventory) for _, inventory, _ in entries], INVENTORY),
            np.array([used for _, _, used in entries], np.int64),
        )
        for name, entries in by_class.items()
    }
