# SPDX-License-Identifier: Apache-2.0
"""The names behind ids: resource classes, traits and aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa

from ...polling.times import microseconds
from .schema import placement_aggregates, resource_classes, traits


class NameTable:
    """One table of ids and names, read again when it changes.

    Queries return a set of ids as text, such as ``3,14``: one row for each provider,
    not one for each member. Equal texts give the same set.

    Attributes
    ----------
    by_id : mapping
        {id: name}.
    """

    def __init__(self, table: sa.Table, name: str) -> None:
        columns = table.c
        self.by_id: Mapping[int, str] = {}
        self._name = columns[name]
        self._state = sa.select(
            sa.func.count(),
            sa.cast(sa.func.coalesce(sa.func.sum(columns.id), 0), sa.BigInteger),
            microseconds(sa.func.max(columns.created_at)),
        ).select_from(table)
        self._every = sa.select(columns.id, self._name)
        self._read_state: tuple[object, ...] | None = None
        self._sets: dict[str, frozenset[str]] = {}

    def read(self, connection: sa.Connection) -> bool:
        """Read the names if they have changed; return whether they have."""
        state = tuple(connection.execute(self._state).one())
        if state == self._read_state:
            return False
        # Placement compares aggregates' UUIDs case-sensitively, on MariaDB, too.
        self.by_id = {row[0]: row[1] for row in connection.execute(self._every)}
        self._read_state, self._sets = state, {}
        return True

    def set_of(self, ids: str | None) -> frozenset[str]:
        """Return the names of ids, given as text with commas between them."""
        if not ids:
            return frozenset()
        names = self._sets.get(ids)
        if names is None:
            names = frozenset(self.by_id[int(row_id)] for row_id in ids.split(","))
            self._sets[ids] = names
        return names


class Names:
    """All names that Placement knows."""

    def __init__(self) -> None:
        self.classes: Final = NameTable(resource_classes, "name")
        self.traits: Final = NameTable(traits, "name")
        self.aggregates: Final = NameTable(placement_aggregates, "uuid")

    def read(self, connection: sa.Connection) -> bool:
        """Read the names that changed; return whether classes or traits did."""
        self.aggregates.read(connection)
        classes_changed = self.classes.read(connection)
        return self.traits.read(connection) or classes_changed
