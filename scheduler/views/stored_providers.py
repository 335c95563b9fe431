# SPDX-License-Identifier: Apache-2.0
"""Write Placement's providers in memory as frames, and read them from frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..placement.providers import (
    INVENTORY,
    InventoryRows,
    ProviderColumns,
    ProviderTable,
    ProviderView,
)
from .frames import (
    Frame,
    UnreadableView,
    array_data,
    checked,
    read_array,
    read_indices,
)

PROVIDERS: Final = "providers"
INVENTORIES: Final = "inventories"


def frames_of_providers(view: ProviderView) -> Iterator[Frame]:
    """Yield the frames of a view of the providers; the rows keep their order."""
    state, trees = view.state, view.state.trees
    for name, (sets, indices) in {
        "traits": (trees.traits, trees.trait_sets),
        "aggregates": (trees.aggregates, trees.aggregate_sets),
    }.items():
        present, inverse = np.unique(indices, return_inverse=True)
        names = [sorted(sets[index]) for index in present.tolist()]
        yield Frame(PROVIDERS, name, [names, array_data(inverse.astype(np.int32))])
    yield Frame(PROVIDERS, "uuids", trees.uuids.tolist())
    yield Frame(PROVIDERS, "parents", array_data(trees.parents))
    yield Frame(PROVIDERS, "generations", array_data(state.generations))
    known_names = [sorted(view.known_traits), sorted(view.known_classes)]
    yield Frame(PROVIDERS, "known", known_names)
    for name, column in state.inventories.items():
        data = [
            array_data(column.rows),
            # Written as it is in memory: in the machine's byte order, little-endian.
            column.distinct.values[column.kinds].tobytes(),
            array_data(column.used),
            column.distinct.is_mysql,
        ]
        yield Frame(INVENTORIES, name, data)


class ProvidersReader:
    """Collects the frames of the providers."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}
        self._inventories: dict[str, Any] = {}

    def add(self, frame: Frame) -> bool:
        """Take a frame; return whether it belongs to the providers."""
        if frame.kind == PROVIDERS:
            self._parts[frame.name] = frame.data
        elif frame.kind == INVENTORIES:
            self._inventories[frame.name] = frame.data
        else:
            return False
        return True

    def view(self) -> ProviderView | None:
        """Return the providers; None: the view has none.

        Raises
        ------
        UnreadableView
        """
        return checked(self._view, None) if self._parts else None

    def _view(self, _nothing: None) -> ProviderView:
        parts = self._parts
        uuids = [str(uuid) for uuid in parts["uuids"]]
        n_rows = len(uuids)
        traits, trait_sets = _sets(*parts["traits"])
        aggregates, aggregate_sets = _sets(*parts["aggregates"])
        parents = read_indices(parts["parents"], n_rows, least=-1)
        if not len(parents) == len(trait_sets) == len(aggregate_sets) == n_rows:
            raise UnreadableView("it is damaged: providers without all of their parts")
        inventories = {
            str(name): _inventories(data, n_rows)
            for name, data in self._inventories.items()
        }
        columns = ProviderColumns(
            uuids,
            parents,
            read_array(parts["generations"], np.int64, n_rows),
            traits,
            trait_sets,
            aggregates,
            aggregate_sets,
            inventories,
        )
        is_mysql = any(bool(data[3]) for data in self._inventories.values())
        table = ProviderTable(columns, is_mysql=is_mysql)
        known_traits, known_classes = parts["known"]
        table.set_names(
            traits=map(str, known_traits), resource_classes=map(str, known_classes)
        )
        view = table.view()
        view.state.trees.roots  # noqa: B018 - ValueError for a provider above itself
        return view


def _sets(names: Any, indices: object) -> tuple[list[frozenset[str]], Any]:  # noqa: ANN401 - untrusted
    sets = [frozenset(map(str, set_)) for set_ in names]
    return sets, read_indices(indices, len(sets))


def _inventories(data: Any, n_rows: int) -> InventoryRows:  # noqa: ANN401 - untrusted
    rows = read_indices(data[0], n_rows)
    if (np.diff(rows) <= 0).any():
        raise UnreadableView("it is damaged: inventories are not in order")
    values = np.frombuffer(data[1], INVENTORY).copy()
    if len(values) != len(rows) or (values["step_size"] < 1).any():
        raise UnreadableView("it is damaged: an inventory is invalid")
    return InventoryRows(rows, values, read_array(data[2], np.int64, len(rows)))
