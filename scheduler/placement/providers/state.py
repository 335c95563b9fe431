# SPDX-License-Identifier: Apache-2.0
"""The columns of all providers at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .interned import Int64s, Rows
from .inventories import InventoryColumn
from .records import InventoryRecord, ProviderRecord
from .trees import ProviderTrees


@dataclass(frozen=True, slots=True, eq=False)
class ProviderState:
    """All columns of the table; they do not change, and threads may share them.

    Attributes
    ----------
    trees : ProviderTrees
    inventories : mapping
        {resource class: InventoryColumn}.
    generations : ndarray of int64, shape (n_rows,)
    """

    trees: ProviderTrees
    inventories: Mapping[str, InventoryColumn]
    generations: Int64s

    def column(self, name: str) -> InventoryColumn:
        """Return the inventories of a resource class, empty if no provider has any."""
        return self.inventories.get(name) or InventoryColumn.empty()

    def free(self, uuid: str, name: str) -> int:
        """Return a provider's capacity - used; 0 where there is no inventory."""
        rows = np.array([self.trees.find(uuid)], np.int32)
        column = self.column(name)
        has_inventory = rows[0] >= 0 and len(column.positions(rows)[0])
        return int(column.free(rows)[0]) if has_inventory else 0

    def has_room(self, resources: Mapping[str, Mapping[str, int]]) -> bool:
        """Return whether each provider, by UUID, has the amount of each class free."""
        return all(
            self.free(uuid, name) >= amount
            for uuid, amounts in resources.items()
            for name, amount in amounts.items()
        )

    def record(self, uuid: str) -> ProviderRecord | None:
        """Return a provider; None: it is unknown. Usages of 0 are left out."""
        trees, row = self.trees, self.trees.find(uuid)
        if row < 0:
            return None
        parent = int(trees.parents[row])
        inventories: dict[str, InventoryRecord] = {}
        used: dict[str, int] = {}
        for name, column in self.inventories.items():
            position = int(np.searchsorted(column.rows, row))
            if position < len(column.rows) and column.rows[position] == row:
                values = column.distinct.values[column.kinds[position]]
                inventories[name] = InventoryRecord(*values.item())
                if amount := int(column.used[position]):
                    used[name] = amount
        return ProviderRecord(
            uuid,
            str(trees.uuids[parent]) if parent >= 0 else None,
            int(self.generations[row]),
            inventories,
            used,
            trees.traits[int(trees.trait_sets[row])],
            trees.aggregates[int(trees.aggregate_sets[row])],
        )

    def summaries(self, rows: Rows) -> dict[str, dict[str, Any]]:
        """Return Placement's ``provider_summaries`` of providers."""
        trees, uuids = self.trees, self.trees.uuids
        summaries: dict[str, dict[str, Any]] = {}
        for row, root, parent in zip(
            rows.tolist(), trees.roots[rows].tolist(), trees.parents[rows].tolist(),
            strict=True,
        ):  # fmt: skip
            summaries[uuids[row]] = {
                "resources": {},
                "traits": sorted(trees.traits[int(trees.trait_sets[row])]),
                "parent_provider_uuid": None if parent < 0 else uuids[parent],
                "root_provider_uuid": uuids[root],
            }
        for name, column in self.inventories.items():
            self._add_resources(summaries, name, column, rows)
        return summaries

    def _add_resources(
        self,
        summaries: dict[str, dict[str, Any]],
        name: str,
        column: InventoryColumn,
        rows: Rows,
    ) -> None:
        positions, indices = column.positions(rows)
        capacity = column.distinct.capacity[column.kinds[positions]]
        uuids = self.trees.uuids[np.asarray(rows)[indices]]
        for uuid, provider_capacity, used in zip(
            uuids, capacity.tolist(), column.used[positions].tolist(), strict=True
        ):
            summaries[uuid]["resources"][name] = {
                "capacity": provider_capacity,
                "used": used,
            }
