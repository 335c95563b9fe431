# SPDX-License-Identifier: Apache-2.0
"""The providers of one host as records, with those that share with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .records import InventoryRecord, ProviderRecord
from .state import ProviderState
from .view import ProviderView


def tree_records(view: ProviderView, uuid: str) -> list[ProviderRecord]:
    """Return the providers of one tree, its root first, then those that share with it.

    Parameters
    ----------
    uuid : str
        The root's. Without such a root there are none.
    """
    trees = view.state.trees
    root = trees.find(uuid)
    if root < 0 or trees.parents[root] >= 0:
        return []
    members = trees.members(np.array([root], np.int32)).tolist()
    anchors, sharing = trees.shared
    rows = [root, *(row for row in members if row != root)]
    rows += sorted(set(sharing[anchors == root].tolist()) - set(rows))
    records = [_record(view.state, row) for row in rows]
    known = {record.uuid for record in records}
    # A sharing provider becomes a root: the rest of its own tree is left out.
    return [
        record if record.parent_uuid in known else replace(record, parent_uuid=None)
        for record in records
    ]


def _record(state: ProviderState, row: int) -> ProviderRecord:
    trees, parent = state.trees, int(state.trees.parents[row])
    inventories, used = {}, {}
    for name, column in state.inventories.items():
        at, _ = column.positions(np.array([row], np.int32))
        for position in at.tolist():
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
