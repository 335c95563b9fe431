# SPDX-License-Identifier: Apache-2.0
"""Polling of one table for the rows that changed.

1. The database counts the rows and sums their checksums. If both equal those of the
   rows read before, no row has changed.
2. Otherwise the rows are read that are not older than the newest known one.
3. If the sums still differ, ids and checksums of all rows are compared, and the rows
   that differ are read: rows that were deleted, were committed late, or were written by
   a host whose clock is behind.

Rows that have just changed are always read again: they may change again with the
same time. A full comparison reads all rows, and finds what the checksums miss.

Times of rows are compared with each other. The local clock serves only to ignore times
in the future.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from .times import US_PER_S, UtcMicroseconds, microseconds

#: Seconds in which a row may change again with the same time: times may be whole
#: seconds, and the row is committed later.
_HOT_S: Final = 3.0
#: Seconds of clock skew that are allowed for rows written before the first poll.
_SKEW_S: Final = 7.0
#: Parameters of one statement; SQLite takes at most 32,766.
_CHUNK: Final = 1000
#: Rows that one statement reads, so that none exceeds [moorage] cell_timeout.
_PAGE: Final = 20_000
#: A prime, and the number of different weights of ids: sums of checksums are int64.
_MODULUS: Final = 2**31 - 1
_WEIGHTS: Final = 1009

T = TypeVar("T")
N = TypeVar("N", int, sa.ColumnElement[int])
#: The rows that changed, by id; None: deleted.
ChangedRows = dict[int, sa.Row[Any] | None]


def checksum_of(row_id: N, number: N) -> N:
    """Return the checksum of a row: `number`, weighted by the row's id."""
    return number % _MODULUS * (row_id % _WEIGHTS + 1)


@dataclasses.dataclass(frozen=True, slots=True)
class TableQueries:
    """The queries to poll a table.

    The queries for rows select id, checksum and time (microseconds since the epoch, or
    None) first. Their parameters: ``mark``, ``since`` and ``now`` are times, ``ids`` is
    a list of ids.

    Attributes
    ----------
    every : sqlalchemy.Select
        All live rows.
    late : sqlalchemy.Select
        The rows that were written at ``mark`` or later.
    by_id : sqlalchemy.Select
        The rows with these ids.
    total : sqlalchemy.Select
        The number of polled rows, and the sum of their checksums.
    checksums : sqlalchemy.Select
        The ids and checksums of polled rows.
    newest : sqlalchemy.Select
        The time of the newest row, live or not, that is not later than ``now``.
    """

    every: sa.Select[Any]
    late: sa.Select[Any]
    by_id: sa.Select[Any]
    total: sa.Select[Any]
    checksums: sa.Select[Any]
    newest: sa.Select[Any]

    @classmethod
    def of(
        cls,
        table: sa.Table,
        number: sa.ColumnElement[int],
        columns: Iterable[sa.ColumnElement[Any]],
        live: sa.ColumnElement[bool],
        *,
        is_windowed: bool = False,
    ) -> TableQueries:
        """Return the queries for the rows of a table that match a condition.

        Parameters
        ----------
        number : column expression
            An integer that changes with the row, neither negative nor NULL.
        live : column expression
            The condition for rows to be returned.
        is_windowed : bool
            Whether polls read only the rows written since a time, live or not.
        """
        c = table.c
        checksum = checksum_of(c.id, number).label("checksum")
        updated_us = microseconds(c.updated_at).label("version_us")
        rows = sa.select(c.id, checksum, updated_us, *columns)
        polled = live
        if is_windowed:
            polled = c.updated_at >= sa.bindparam("since", type_=UtcMicroseconds)
        is_late = c.updated_at >= sa.bindparam("mark", type_=UtcMicroseconds)
        sums: list[sa.ColumnElement[Any]] = [sa.func.count(), sa.func.sum(checksum)]
        by_id = rows.where(c.id.in_(sa.bindparam("ids", expanding=True)))
        return cls(
            every=rows.where(live),
            late=rows.where(polled, is_late),
            by_id=by_id if is_windowed else by_id.where(live),
            total=sa.select(*sums).where(polled),
            checksums=sa.select(c.id, checksum).where(polled),
            newest=sa.select(microseconds(sa.func.max(c.updated_at))).where(
                c.updated_at <= sa.bindparam("now", type_=UtcMicroseconds)
            ),
        )


class PolledTable:
    """The rows of a table, of which a poll returns those that changed.

    Parameters
    ----------
    queries : TableQueries
    is_complete : bool
        Whether the checksums cover all columns. If not, rows that have just changed
        are read again by each poll.
    window_s : float, optional
        For `is_windowed` queries: the length of the window, in seconds before the
        newest row. None: polls cover all rows.
    """

    def __init__(
        self,
        queries: TableQueries,
        *,
        is_complete: bool = False,
        window_s: float | None = None,
    ) -> None:
        self._queries = queries
        self._is_complete = is_complete
        self._window_us = None if window_s is None else int(window_s * US_PER_S)
        self._is_read = False
        #: A hash, and the checksum, of each row by id.
        self._hashes: dict[int, int] = {}
        self._checksums: dict[int, int] = {}
        self._sum = 0
        #: Rows that may change again with the same time, and when each was read.
        self._hot: dict[int, float] = {}
        #: The newest time that is not in the future, and the start of the window.
        self._mark_us = 0
        self._since_us: int | None = None

    @property
    def rows_to_reread(self) -> set[int]:
        """The ids of the rows that the next poll reads again."""
        return set(self._hot)

    def read(
        self, connection: sa.Connection, now: float, *, in_full: bool
    ) -> ChangedRows:
        """Return the rows that changed since the last call.

        Parameters
        ----------
        now : float
            When the poll began, seconds since the epoch.
        in_full : bool
            Read all rows and compare them.
        """
        if in_full:
            return self._read_all(connection, now)
        return self._read_changes(connection, now)

    def _read_all(self, connection: sa.Connection, now: float) -> ChangedRows:
        rows = connection.execute(self._queries.every).all()
        for row in rows:
            self._observe(row.version_us, now)
        if self._window_us is not None:  # the newest rows may be deleted ones
            latest = {"now": int(now * US_PER_S)}
            newest = connection.execute(self._queries.newest, latest).scalar()
            self._observe(newest, now)
        self._begin(now)
        deleted_ids = self._hashes.keys() - {row[0] for row in rows}
        changes = self._drop(deleted_ids)
        changes.update(self._changed(rows, now))
        self._is_read = True
        return changes

    def _read_changes(self, connection: sa.Connection, now: float) -> ChangedRows:
        ids_to_reread = self.rows_to_reread  # taken before they expire
        self._begin(now)
        values = {"mark": self._mark_us, "since": self._since_us}
        count, checksum = connection.execute(self._queries.total, values).one()
        total = int(count), int(checksum or 0)  # the sum of no rows is NULL
        changes: ChangedRows = {}
        if total != self._total:
            rows = connection.execute(self._queries.late, values).all()
            changes.update(self._changed(rows, now))
            ids_to_reread.difference_update(row[0] for row in rows)
        changes.update(self._read_by_id(connection, ids_to_reread, now))
        if total != self._total:
            pairs = connection.execute(self._queries.checksums, values).all()
            stored_checksums: dict[int, int] = dict(map(tuple, pairs))
            known_checksums = self._checksums
            ids = stored_checksums.keys() | known_checksums.keys()
            differing = [
                i for i in ids if stored_checksums.get(i) != known_checksums.get(i)
            ]
            self._drop(known_checksums.keys() - stored_checksums.keys())
            changes.update(self._read_by_id(connection, differing, now))
        return changes

    def _begin(self, now: float) -> None:
        """Expire rows that are no longer hot, and move the window."""
        # abs: a clock that was set back must not keep rows hot.
        recent = {i: at for i, at in self._hot.items() if abs(now - at) < _HOT_S}
        self._hot = recent
        if self._window_us is not None:
            self._since_us = max(0, self._mark_us - self._window_us)

    @property
    def _total(self) -> tuple[int, int]:
        return len(self._checksums), self._sum

    def _observe(self, version_us: int | None, now: float) -> None:
        # A time in the future, by a host with a fast clock, would hide other changes.
        if version_us is not None and self._mark_us < version_us <= now * US_PER_S:
            self._mark_us = version_us

    def _read_by_id(
        self, connection: sa.Connection, ids: Iterable[int], now: float
    ) -> ChangedRows:
        changes: ChangedRows = {}
        for chunk in chunks(ids):
            rows = connection.execute(self._queries.by_id, {"ids": chunk}).all()
            changes.update(self._drop(set(chunk).difference(row[0] for row in rows)))
            changes.update(self._changed(rows, now))
        return changes

    def _changed(self, rows: Iterable[sa.Row[Any]], now: float) -> ChangedRows:
        """Return the rows whose content has changed, and remember their content."""
        changes: ChangedRows = {}
        recent_us = (now - _HOT_S - _SKEW_S) * US_PER_S
        for row in rows:
            row_id, checksum, version_us = row.id, row.checksum, row.version_us
            if self._is_before_window(version_us):
                changes[row_id] = row
                continue
            content = hash(repr(row))  # not hash(row), as hash(-1) == hash(-2)
            if self._hashes.get(row_id) == content:
                continue
            self._hashes[row_id] = content
            self._sum += checksum - self._checksums.get(row_id, 0)
            self._checksums[row_id] = checksum
            self._observe(version_us, now)
            if not self._is_complete and (
                self._is_read or (version_us or 0) > recent_us
            ):
                self._hot[row_id] = now
            changes[row_id] = row
        return changes

    def _is_before_window(self, version_us: int | None) -> bool:
        since_us = self._since_us
        return since_us is not None and (version_us is None or version_us < since_us)

    def _drop(self, ids: Iterable[int]) -> ChangedRows:
        """Forget rows; return them as deleted rows."""
        dropped: ChangedRows = dict.fromkeys(ids)
        for row_id in dropped:
            self._hashes.pop(row_id, None)
            self._sum -= self._checksums.pop(row_id, 0)
            self._hot.pop(row_id, None)
        return dropped


def chunks(values: Iterable[T]) -> Iterator[list[T]]:
    """Yield the values in lists that fit one statement."""
    iterator = iter(values)
    while chunk := list(itertools.islice(iterator, _CHUNK)):
        yield chunk


def pages(
    connection: sa.Connection, query: sa.Select[Any], row_id: sa.Column[int]
) -> Iterator[Any]:
    """Yield a query's rows by ascending id, read page by page.

    Parameters
    ----------
    row_id
        The column ``id``, which the query selects.
    """
    last = -1
    ordered = query.order_by(row_id).limit(_PAGE)
    while True:
        rows = connection.execute(ordered.where(row_id > last)).all()
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[-1].id
