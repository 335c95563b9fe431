# SPDX-License-Identifier: Apache-2.0
"""One consistent view of all providers, which answers queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .matches import Matches
from .query import ProviderQuery, QueryNotCovered
from .rules import Rules
from .search import Search
from .slots import Slot, find_slots
from .state import ProviderState


@dataclass(frozen=True, slots=True, eq=False)
class ProviderView:
    """The providers at one moment. It does not change, and threads may share it.

    Attributes
    ----------
    state : ProviderState
    known_traits, known_classes : frozenset of str
        Names that Placement knows, even if no provider has them.
    """

    state: ProviderState
    known_traits: frozenset[str]
    known_classes: frozenset[str]

    def match(self, query: ProviderQuery) -> Matches:
        """Return which trees have candidates for a query.

        Raises
        ------
        QueryNotCovered
            The query names a trait or a resource class that Placement may not know.
        """
        self._require_known(query)
        slots = find_slots(self.state, query)
        if slots is None:
            return self._matches([], None)
        rules = Rules(self.state, query, slots)
        return self._matches(slots, Search(self.state, slots, rules))

    def _matches(self, slots: list[Slot], search: Search | None) -> Matches:
        roots, n_options = np.empty(0, np.int32), np.empty((0, 0), np.int64)
        if search is not None:
            roots, n_options = search.roots()
        return Matches(self.state, slots, roots, n_options, search)

    def _require_known(self, query: ProviderQuery) -> None:
        traits = query.root_required | query.root_forbidden
        classes = frozenset[str]()
        for group in query.groups:
            traits = traits.union(group.forbidden, *group.required)
            classes |= group.amounts.keys()
        unknown = (traits - self.known_traits) | (classes - self.known_classes)
        if unknown:
            raise QueryNotCovered(f"unknown names: {', '.join(sorted(unknown))}")
