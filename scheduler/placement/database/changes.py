# SPDX-License-Identifier: Apache-2.0
"""Reading what changed in Placement's database since the last poll.

Placement changes neither generation nor ``updated_at`` of a provider when usage is
deleted or moved away, and when aggregates are set below microversion 1.19. A poll finds
such changes by comparing ranges of providers in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from ...polling.polled_table import PolledTable, chunks
from ..providers import ProviderColumns, ProviderRecord, ProviderView
from .names import Names
from .queries import BY_UUID, N_WEIGHTS, OF_RANGE, PROVIDERS, USAGE_SUM
from .reading import ProviderRow, read_columns, read_records
from .schema import check_version

#: If more providers changed than this share and this number, all are read.
_MANY_SHARE: Final = 0.2
_MANY: Final = 1000
#: The most providers whose usage is compared at once.
_RANGE: Final = 2000


@dataclass(slots=True)
class ProviderChanges:
    """What a reading found.

    Attributes
    ----------
    columns : ProviderColumns, optional
        All providers, which replace those in the table.
    records : list of ProviderRecord
        Providers that may have changed, without duplicates.
    removed : set of str
        UUIDs of providers that do not exist any more.
    names : Names, optional
        Given if trait names or resource classes changed.
    """

    columns: ProviderColumns | None = None
    records: list[ProviderRecord] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    names: Names | None = None


class ChangeReader:
    """Read Placement's database; used by one thread at a time.

    A reader must be replaced after a failure: what it read may not have been applied.
    A new reader compares all providers with the table that it is given.

    Parameters
    ----------
    known : mapping
        {id: UUID} of the providers in the table: a provider that was deleted and
        created again has another id, and perhaps the same generation.
    """

    def __init__(self, known: Mapping[int, str]) -> None:
        self._known = known
        self._names = Names()
        self._polled = PolledTable(PROVIDERS, is_complete=True)
        self._uuid_of: dict[int, str] = {}
        self._ids: npt.NDArray[np.int64] | None = None
        self._next = 0
        self._is_new = True

    @property
    def uuids(self) -> Mapping[int, str]:
        """{id: UUID} of all providers that were read; it does not change."""
        return self._uuid_of

    # -- what is read ------------------------------------------------------------------

    def poll(
        self,
        connection: sa.Connection,
        view: ProviderView,
        began_at: float,
        *,
        uuids: Collection[str],
        share: float,
    ) -> ProviderChanges:
        """Return what changed since the last call.

        Parameters
        ----------
        began_at : float
            Now, seconds since the epoch.
        uuids
            Providers to read in any case.
        share : float
            The share of providers to be compared, 0 to 1.
        """
        is_new, self._is_new = self._is_new, False
        if is_new:
            check_version(connection)
        changes = ProviderChanges()
        if self._names.read(connection):
            changes.names = self._names
        rows = self._read_rows(connection, view, began_at, changes, is_new=is_new)
        if is_new:
            all_rows = list(rows.values())
            rows = {i: row for i, row in rows.items() if self._differs(view, row)}
        is_empty = is_new and not view.state.trees.row_of
        if is_empty or len(rows) > max(_MANY, _MANY_SHARE * len(self._uuid_of)):
            if not is_new:
                all_rows = list(connection.execute(PROVIDERS.every))
            changes.columns = read_columns(connection, all_rows, self._names)
            return changes
        rows |= self._rows_by_uuid(connection, set(uuids) - _uuids(rows))
        differing = self._compare(connection, view, 1.0 if is_new else share)
        differing_uuids = {self._uuid_of[i] for i in differing if i not in rows}
        rows |= self._rows_by_uuid(connection, differing_uuids)
        changes.records = self._records(connection, rows)
        return changes

    def refresh(
        self, connection: sa.Connection, view: ProviderView, uuids: Collection[str]
    ) -> ProviderChanges | None:
        """Return these providers' present records; None: only a poll can read them."""
        rows = self._rows_by_uuid(connection, uuids)
        trees = view.state.trees
        if self._is_new or len(rows) < len(set(uuids)):
            return None
        for row_id, row in rows.items():
            table_row = trees.find(row.uuid)
            parent = (
                None
                if table_row < 0 or trees.parents[table_row] < 0
                else trees.parents[table_row]
            )
            known_parent = None if parent is None else trees.uuids[parent]
            if table_row < 0 or self._uuid_of.get(row_id) != row.uuid:
                return None
            if self._uuid_of.get(row.parent_provider_id or 0) != known_parent:
                return None
        try:
            return ProviderChanges(records=self._records(connection, rows))
        except KeyError:  # a trait, class or aggregate is new
            return None

    # -- rows of providers -------------------------------------------------------------

    def _read_rows(
        self,
        connection: sa.Connection,
        view: ProviderView,
        began_at: float,
        changes: ProviderChanges,
        *,
        is_new: bool,
    ) -> dict[int, ProviderRow]:
        """Return the rows that changed, by id; update the UUIDs by id of all."""
        polled = self._polled.read(connection, began_at, in_full=is_new)
        deleted = [row_id for row_id, row in polled.items() if row is None]
        if any(
            row is None or self._uuid_of.get(i) != row.uuid for i, row in polled.items()
        ):
            self._uuid_of = dict(self._uuid_of)
        possibly_removed = set(view.state.trees.row_of) if is_new else set[str]()
        possibly_removed.update(
            self._uuid_of.pop(row_id) for row_id in deleted if row_id in self._uuid_of
        )
        rows: dict[int, Any] = {i: row for i, row in polled.items() if row is not None}
        for row_id, row in rows.items():
            previous = self._uuid_of.get(row_id)
            if previous is not None and previous != row.uuid:  # SQLite reuses ids
                possibly_removed.add(previous)
            if previous != row.uuid:
                self._ids = None
            self._uuid_of[row_id] = row.uuid
        if deleted:
            self._ids = None
        if possibly_removed:
            changes.removed = possibly_removed.difference(self._uuid_of.values())
        return rows

    def _differs(self, view: ProviderView, row: ProviderRow) -> bool:
        """Return whether a provider's id, generation or parent differs in the table."""
        trees = view.state.trees
        table_row = trees.find(row.uuid)
        if table_row < 0 or view.state.generations[table_row] != (row.generation or 0):
            return True
        if self._known.get(row.id) != row.uuid:
            return True
        parent = int(trees.parents[table_row])
        known_parent = trees.uuids[parent] if parent >= 0 else None
        return bool(known_parent != self._uuid_of.get(row.parent_provider_id or 0))

    def _rows_by_uuid(
        self, connection: sa.Connection, uuids: Iterable[str]
    ) -> dict[int, ProviderRow]:
        rows: dict[int, ProviderRow] = {}
        for chunk in chunks(uuids):
            polled = connection.execute(BY_UUID, {"uuids": chunk}).all()
            rows.update((row.id, row) for row in polled)
        return rows

    def _records(
        self, connection: sa.Connection, rows: Mapping[int, ProviderRow]
    ) -> list[ProviderRecord]:
        if not rows:
            return []
        return read_records(connection, list(rows.values()), self._uuid_of, self._names)

    # -- ranges ------------------------------------------------------------------------

    def _compare(
        self, connection: sa.Connection, view: ProviderView, share: float
    ) -> set[int]:
        """Return the ids of providers in the next ranges that differ from the table."""
        if self._ids is None:
            self._ids = np.array(sorted(self._uuid_of), np.int64)
        n_left = min(len(self._ids), int(np.ceil(len(self._ids) * share)))
        differing = set[int]()
        while n_left > 0:
            self._next %= len(self._ids)
            ids = self._ids[self._next : self._next + min(n_left, _RANGE)]
            differing |= self._differing(connection, view, ids)
            self._next += len(ids)
            n_left -= len(ids)
        return differing

    def _differing(
        self, connection: sa.Connection, view: ProviderView, ids: npt.NDArray[np.int64]
    ) -> set[int]:
        """Return the ids in a range whose usage or aggregates differ from the table."""
        limits = {"first": int(ids[0]), "last": int(ids[-1])}
        trees = view.state.trees
        rows = np.array([trees.find(self._uuid_of[i]) for i in ids.tolist()], np.int32)
        known_indices = np.flatnonzero(rows >= 0)  # new providers are read in any case
        differing = set[int]()
        used = _used_by(view, rows[known_indices])
        expected = sum(
            int(np.dot(amounts, ids[known_indices[indices]] % N_WEIGHTS + 1))
            for indices, amounts in used.values()
        )
        if connection.execute(USAGE_SUM, limits).scalar() != expected:
            usages = connection.execute(OF_RANGE.usages, limits)
            differing |= self._differing_usages(usages, used, ids[known_indices])
        aggregate_ids = dict(
            map(tuple, connection.execute(OF_RANGE.aggregates, limits).all())
        )
        for row_id, row in zip(
            ids[known_indices].tolist(), rows[known_indices].tolist(), strict=True
        ):
            names = self._names.aggregates.set_of(aggregate_ids.get(row_id))
            if trees.aggregates[int(trees.aggregate_sets[row])] != names:
                differing.add(row_id)
        return differing

    def _differing_usages(
        self,
        usages: Iterable[Iterable[Any]],
        used: Mapping[str, tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]],
        ids: npt.NDArray[np.int64],
    ) -> set[int]:
        """Return the ids whose usage differs; `used` has indices into `ids`."""
        known_usages = {
            (row_id, name): amount
            for name, (indices, amounts) in used.items()
            for row_id, amount in zip(
                ids[indices].tolist(), amounts.tolist(), strict=True
            )
            if amount
        }
        by_id = self._names.classes.by_id
        known_ids = set(ids.tolist())
        polled_usages = {
            (provider_id, by_id[class_id]): amount
            for provider_id, class_id, amount in map(tuple, usages)
            if amount
        }
        differing = itertools.chain(
            (
                key
                for key, amount in polled_usages.items()
                if known_usages.get(key) != amount
            ),
            known_usages.keys() - polled_usages.keys(),
        )
        return {row_id for row_id, _ in differing if row_id in known_ids}


def _used_by(
    view: ProviderView, rows: npt.NDArray[np.int32]
) -> dict[str, tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]]:
    """Return rows' usages by resource class: indices into `rows`, and amounts."""
    return dict(_usages(view, rows))


def _usages(
    view: ProviderView, rows: npt.NDArray[np.int32]
) -> Iterator[tuple[str, tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]]]:
    for name, column in view.state.inventories.items():
        positions, indices = column.positions(rows)
        if len(indices):
            yield name, (indices.astype(np.intp), column.used[positions])


def _uuids(rows: Mapping[int, ProviderRow]) -> set[str]:
    return {row.uuid for row in rows.values()}
