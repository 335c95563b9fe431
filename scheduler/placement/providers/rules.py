# SPDX-License-Identifier: Apache-2.0
"""What the providers of one candidate must meet together, beyond each slot's own rules.

- ``group_policy=isolate``: groups with a suffix have different providers.
- Amounts of one class that several slots take from one provider must fit as a sum.
- ``same_subtree``: one provider is an ancestor of all others, or all are the same.
- Each trait that the group "" requires: one of the group's providers has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .interned import Int64s, Mask, Rows
from .query import ProviderQuery
from .slots import Slot
from .state import ProviderState


class Rules:
    """The rules of one query; the order of its slots decides when a rule is checked.

    Attributes
    ----------
    classes : dict
        {resource class: [indices of its slots]}, if several slots request the class.
    suffixed : list of int
        Indices of the slots that must have different providers; empty if none must.
    subtrees : list of list of int
        Indices of the slots of each same_subtree, two at least.
    required : list of ndarray of bool, shape (n_rows,)
        Which providers have each trait, or any-of set, that the group "" requires.
    n_unsuffixed : int
        How many slots the group "" has; they are the first.
    """

    def __init__(
        self, state: ProviderState, query: ProviderQuery, slots: Sequence[Slot]
    ) -> None:
        self._state = state
        self._slots = slots
        self.n_unsuffixed = sum(not slot.suffix for slot in slots)
        suffixed = list(range(self.n_unsuffixed, len(slots)))
        is_isolated = query.is_isolated and len(suffixed) > 1
        self.suffixed = suffixed if is_isolated else []
        slots_by_class: dict[str, list[int]] = {}
        for i, slot in enumerate(slots):
            for name in slot.amounts:
                slots_by_class.setdefault(name, []).append(i)
        self.classes = {
            name: indices
            for name, indices in slots_by_class.items()
            if len(indices) > 1
        }
        subtrees = [
            [i for i in suffixed if slots[i].suffix in suffixes]
            for suffixes in query.same_subtrees
        ]
        self.subtrees = [subtree for subtree in subtrees if len(subtree) > 1]
        self.required = [
            state.trees.has_trait(any_of)
            for group in query.groups
            if not group.suffix
            for any_of in group.required
        ]

    def allow(self, chosen: Sequence[Rows]) -> Mask:
        """Return which partial candidates the rules allow that involve the last slot.

        Parameters
        ----------
        chosen : sequence of ndarray of int32, shape (n_partial,)
            The providers of the first slots.
        """
        last = len(chosen) - 1
        is_allowed = np.ones(len(chosen[last]), np.bool_)
        if last in self.suffixed:
            for i in range(self.n_unsuffixed, last):
                is_allowed &= chosen[i] != chosen[last]
        for name, slots in self.classes.items():
            if last in slots:
                is_allowed &= self._fits(name, [i for i in slots if i < last], chosen)
        for slots in self.subtrees:
            if last == slots[-1]:
                is_allowed &= self._is_subtree([chosen[i] for i in slots])
        if last == self.n_unsuffixed - 1:
            for has_trait in self.required:
                is_allowed &= np.logical_or.reduce(
                    [has_trait[providers] for providers in chosen]
                )
        return is_allowed

    def _fits(self, name: str, before: list[int], chosen: Sequence[Rows]) -> Mask:
        """Return where the last slot's provider has room for all slots it fills."""
        last = len(chosen) - 1
        amount = self._slots[last].amounts[name]
        total: Int64s = np.full(len(chosen[last]), amount, np.int64)
        for i in before:
            total += (chosen[i] == chosen[last]) * self._slots[i].amounts[name]
        fits: Mask = total == amount
        repeated = np.flatnonzero(~fits)
        column = self._state.column(name)
        fits[repeated] = column.has_room(chosen[last][repeated], total[repeated])
        return fits

    def _is_subtree(self, chosen: list[Rows]) -> Mask:
        """Return where one provider is an ancestor of all others, or equal to them."""
        is_within = self._state.trees.is_within
        is_subtree: Mask = np.zeros(len(chosen[0]), np.bool_)
        for top in chosen:
            is_below = [is_within(rows, top) for rows in chosen if rows is not top]
            is_subtree |= np.logical_and.reduce(is_below)
        return is_subtree
