# SPDX-License-Identifier: Apache-2.0
"""Which providers would serve a query if they had room: their usage may be too high."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..allocations.limits import MAX_REREAD
from ..providers import Matches, ProviderQuery, ProviderView
from ..providers.state import ProviderState

_Rows = npt.NDArray[np.int32]


def lacking_room(
    view: ProviderView, query: ProviderQuery, *, turn: int = 0
) -> list[str]:
    """Return the UUIDs of providers that lack only room for a query.

    Their trees do not match, and would if nothing were used.

    Parameters
    ----------
    turn : int
        Of more than `MAX_REREAD`, each turn has others.

    Raises
    ------
    QueryNotCovered
        As `ProviderView.match`.
    """
    empty = _empty(view).match(query)
    full = np.setdiff1d(empty.roots, view.match(query).roots)
    rows = np.unique(np.concatenate([full[:0], *_used(view.state, empty, full)]))
    if len(rows) > MAX_REREAD:
        rows = np.roll(rows, -turn * MAX_REREAD)[:MAX_REREAD]
    uuids: list[str] = view.state.trees.uuids[rows].tolist()
    return uuids


def _empty(view: ProviderView) -> ProviderView:
    """Return the same providers with nothing in use."""
    inventories = {
        name: replace(column, used=np.zeros_like(column.used))
        for name, column in view.state.inventories.items()
    }
    return replace(view, state=replace(view.state, inventories=inventories))


def _used(state: ProviderState, empty: Matches, roots: _Rows) -> Iterator[_Rows]:
    """Yield the providers in use that could serve the query in these trees."""
    for slot in empty.slots:
        providers = slot.providers[np.isin(slot.roots, roots)]
        for name in slot.amounts:
            column = state.column(name)
            at, found = column.positions(providers)
            yield providers[found[column.used[at] > 0]]
