# SPDX-License-Identifier: Apache-2.0
"""Read what providers have: of all as columns, or of some as records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from ...polling.polled_table import chunks
from ..providers import (
    INVENTORY,
    InventoryRecord,
    InventoryRows,
    ProviderColumns,
    ProviderRecord,
)
from .names import Names, NameTable
from .queries import OF_IDS, OF_RANGE

_Int64s = npt.NDArray[np.int64]
_INVENTORY_ROW: Final = np.dtype(
    [("provider", np.int64), ("class", np.int64), *INVENTORY.descr]
)


#: Providers that one statement reads.
_RANGE: Final = 10_000
#: A row as a tuple; mypy takes sa.Row[Any] for one of a single column.
_Row = tuple[Any, ...]


class ProviderRow(Protocol):
    """A row of ``resource_providers``."""

    @property
    def id(self) -> int:
        """Its id, which Placement's other tables refer to."""

    @property
    def uuid(self) -> str:
        """Its UUID."""

    @property
    def generation(self) -> int | None:
        """Its generation."""

    @property
    def parent_provider_id(self) -> int | None:
        """The id of its parent; None: it is a root."""

    @property
    def root_provider_id(self) -> int | None:
        """The id of the root of its tree."""


def read_columns(
    connection: sa.Connection, rows: Sequence[ProviderRow], names: Names
) -> ProviderColumns:
    """Return all providers; each tree stands together, its root first.

    Parameters
    ----------
    rows
        All rows of ``resource_providers``.
    """
    ids = np.array([row.id for row in rows], np.int64)
    roots = np.array([row.root_provider_id or row.id for row in rows], np.int64)
    order = np.lexsort((ids, ids != roots, roots))
    rows, ids = [rows[i] for i in order.tolist()], ids[order]
    position_of = {row_id: i for i, row_id in enumerate(ids.tolist())}
    parents = [
        position_of[row.parent_provider_id] if row.parent_provider_id else -1
        for row in rows
    ]
    traits = _interned(
        _every(connection, OF_RANGE.traits, ids), names.traits, position_of
    )
    aggregates = _every(connection, OF_RANGE.aggregates, ids)
    return ProviderColumns(
        [row.uuid for row in rows],
        np.array(parents, np.int32),
        np.array([row.generation or 0 for row in rows], np.int64),
        *traits,
        *_interned(aggregates, names.aggregates, position_of),
        _inventories(connection, ids, names),
    )


def _interned(
    rows: Sequence[_Row], names: NameTable, position_of: Mapping[int, int]
) -> tuple[Sequence[frozenset[str]], npt.NDArray[np.int32]]:
    """Return distinct sets of names, and the index of each provider's set.

    `position_of` has the providers' positions by id.
    """
    index: dict[frozenset[str], int] = {frozenset(): 0}
    sets = np.zeros(len(position_of), np.int32)
    for provider_id, members in rows:
        if provider_id in position_of:
            name_set = names.set_of(members)
            sets[position_of[provider_id]] = index.setdefault(name_set, len(index))
    return list(index), sets


def _inventories(
    connection: sa.Connection, ids: _Int64s, names: Names
) -> dict[str, InventoryRows]:
    rows = np.array(_every(connection, OF_RANGE.inventories, ids), _INVENTORY_ROW)
    usage_rows = _every(connection, OF_RANGE.usages, ids)
    usages = np.array(usage_rows, np.int64).reshape(-1, 3)
    return {
        names.classes.by_id[class_id]: _rows_of_class(
            ids,
            rows[rows["class"] == class_id],
            usages[usages[:, 1] == class_id],
        )
        for class_id in np.unique(rows["class"]).tolist()
    }


def _rows_of_class(
    ids: _Int64s, rows: npt.NDArray[np.void], usages: _Int64s
) -> InventoryRows:
    """Return inventories of one class, given the providers' ids by row."""
    positions, is_known = _positions(ids, rows["provider"])
    order = np.argsort(positions[is_known])
    values = np.empty(len(order), INVENTORY)
    for name in INVENTORY.names or ():
        values[name] = rows[name][is_known][order]
    used = np.zeros(len(ids), np.int64)
    used_positions, is_known_usage = _positions(ids, usages[:, 0])
    used[used_positions[is_known_usage]] = usages[is_known_usage, 2]
    sorted_rows = positions[is_known][order].astype(np.int32)
    return InventoryRows(sorted_rows, values, used[sorted_rows])


def _positions(
    ids: _Int64s, wanted: _Int64s
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return the positions of `wanted` in `ids`, and whether each is in it."""
    order = np.argsort(ids)
    indices = np.searchsorted(ids, wanted, sorter=order)
    positions = order[np.minimum(indices, len(ids) - 1)]
    return positions, ids[positions] == wanted


def read_records(
    connection: sa.Connection,
    rows: Sequence[ProviderRow],
    uuid_of: Mapping[int, str],
    names: Names,
) -> list[ProviderRecord]:
    """Return some providers.

    Parameters
    ----------
    uuid_of
        {id: UUID} of the providers and of their parents.
    """
    ids = [row.id for row in rows]
    inventories: dict[int, dict[str, InventoryRecord]] = {}
    for provider_id, class_id, *values in _some(connection, OF_IDS.inventories, ids):
        by_class = inventories.setdefault(provider_id, {})
        by_class[names.classes.by_id[class_id]] = InventoryRecord(*values)
    used: dict[int, dict[str, int]] = {}
    for provider_id, class_id, amount in _some(connection, OF_IDS.usages, ids):
        name = names.classes.by_id[class_id]
        if amount and name in inventories.get(provider_id, ()):
            used.setdefault(provider_id, {})[name] = amount
    traits: dict[int, str] = dict(_some(connection, OF_IDS.traits, ids))
    aggregates: dict[int, str] = dict(_some(connection, OF_IDS.aggregates, ids))
    return [
        ProviderRecord(
            row.uuid,
            uuid_of[row.parent_provider_id] if row.parent_provider_id else None,
            row.generation or 0,
            inventories.get(row.id, {}),
            used.get(row.id, {}),
            names.traits.set_of(traits.get(row.id)),
            names.aggregates.set_of(aggregates.get(row.id)),
        )
        for row in rows
    ]


def _every(
    connection: sa.Connection, query: sa.Select[Any], ids: _Int64s
) -> list[_Row]:
    """Return a query's rows for all ids.

    They are read range by range, so that no statement exceeds the driver's timeout.
    """
    rows: list[_Row] = []
    in_order = np.sort(ids)
    for start in range(0, len(ids), _RANGE):
        range_ids = in_order[start : start + _RANGE]
        limits = {"first": int(range_ids[0]), "last": int(range_ids[-1])}
        rows += map(tuple, connection.execute(query, limits).all())
    return rows


def _some(
    connection: sa.Connection, query: sa.Select[Any], ids: Sequence[int]
) -> Iterator[_Row]:
    """Yield a query's rows for some ids."""
    for chunk in chunks(ids):
        yield from map(tuple, connection.execute(query, {"ids": chunk}).all())
