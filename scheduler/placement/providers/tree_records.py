# SPDX-License-Identifier: Apache-2.0
"""The providers of one host, and the sharing providers it may use, as records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .records import InventoryRecord, ProviderRecord
from .state import ProviderState
from .view import ProviderView


def tree_records(view: ProviderView, uuid: str) -> list[ProviderRecord]:
    """Return a tree's providers, its root first, then the providers that share with it.

    Parameters
    ----------
    uuid : str
        The UUID of the root; the result is empty if no root has this UUID.
    """
    trees = view.state.trees
    root = trees.find(uuid)
    if root < 0 or trees.parents[root] >= 0:
        return []
    members = trees.members(np.array([root], np.int32)).tolist()
    shared_roots, sharing = trees.shared
    rows = [root, *(row for row in members if row != root)]
    rows += sorted(set(sharing[shared_roots == root].tolist()) - set(rows))
    records = [_record(view.state, row) for row in rows]
    record_uuids = {record.uuid for record in records}
    # A sharing provider becomes a root: the rest of its own tree is left out.
    return [
        record
        if record.parent_uuid in record_uuids
        else replace(record, parent_uuid=None)
        for record in records
    ]


def _record(state: ProviderState, row: int) -> ProviderRecord:
    trees, parent = state.trees, int(state.trees.parents[row])
    inventories, used = {}, {}
    for name, column in state.inventories.items():
        positions, _ = column.positions(np.array([row], np.int32))
        for position in positions.tolist():
            values = column.distinct.values[column.kinds[position]]
            inventories[name] = InventoryRecord(*values.item())
            used[name] = int(column.used[position])
    return ProviderRecord(
        trees.uuids[row],
        None if parent < 0 else trees.uuids[parent],
        int(state.generations[row]),
        inventories,
        used,
        trees.traits[int(trees.trait_sets[row])],
        trees.aggregates[int(trees.aggregate_sets[row])],
    )
