# SPDX-License-Identifier: Apache-2.0
"""Reading the compute nodes of a cell, and what changed in them."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from .checksums import TableChecksum, bucket_of, checksum_queries, ids_of, late_ids
from .packing import LongRow, LongRows, exact, run
from .reading import LONG_TEXTS, RATIOS, ComputeService, NodeRow, read_node
from .schema import UtcMicroseconds, compute_nodes, microseconds
from .settings import Ratios
from .times import HOT_S, SKEW_S, SMALL, US_PER_S, HighWaterMark, is_recent

#: Most late rows that are selected by id.
_FEW: Final = 256
#: Rendered into the statement, as by `inline_numbers`.
_IDS: Final = sa.bindparam(
    "ids", None, sa.Integer, expanding=True, literal_execute=True
)

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A compute node's row, as a poll read it.

    Attributes
    ----------
    version_us : int or None
        Its ``updated_at``, microseconds since the epoch.
    seen_at : float
        When the poll began that first read this version, seconds since the epoch by the
        local clock.
    values : mapping or None
        Its values by `HostRecord`'s names; None once they are in the host table.
    shown_with : ComputeService or None
        The service that its row in the host table was made with; None: it has no row.
    """

    id: int
    cell_uuid: str
    uuid: str
    host: str
    nodename: str
    num_instances: int
    version_us: int | None
    seen_at: float
    values: Mapping[str, Any] | None
    shown_with: ComputeService | None = None

    @classmethod
    def of(cls, row: NodeRow, values: Mapping[str, Any], seen_at: float) -> Node:
        """Return the node of a row that was read as these values."""
        return cls(
            row.id,
            values["cell_uuid"],
            values["uuid"],
            values["host"],
            values["nodename"],
            values["num_instances"],
            row.version_us,
            seen_at,
            values,
        )

    def update_from(self, other: Node) -> bool:
        """Copy another row's state if both are of one node; return whether they are."""
        if (self.uuid, self.names) != (other.uuid, other.names):
            return False
        self.num_instances = other.num_instances
        self.version_us = other.version_us
        self.seen_at = other.seen_at
        self.values = other.values
        return True

    @property
    def names(self) -> str | tuple[str, str]:
        """Host and node name; a single string where they are equal."""
        return self.host if self.host == self.nodename else (self.host, self.nodename)

    @property
    def order(self) -> tuple[float, str, int]:
        """The sort key of several rows of one host; the highest one counts."""
        written = -math.inf if self.version_us is None else self.version_us
        return written, self.cell_uuid, self.id


def _rows_of_nodes() -> LongRows:
    """Return a query for all nodes, with the fields of `NodeRow` in order."""
    c = compute_nodes.c
    columns: dict[str, sa.ColumnElement[Any]] = {column.name: column for column in c}
    columns["version_us"] = microseconds(c.updated_at)
    columns |= {name: exact(c[name]) for name in RATIOS}
    short = [columns[name] for name in NodeRow._fields if name not in LONG_TEXTS]
    return LongRows.of(c.id, short, [c[name] for name in LONG_TEXTS])


class Nodes:
    """The rows of ``compute_nodes``."""

    _c = compute_nodes.c
    _live = _c.deleted == 0
    _query = _rows_of_nodes().where(_live)
    #: The row's time; for rows without one, whether the compute has reported.
    _number = sa.func.coalesce(
        microseconds(_c.updated_at), sa.case((_c.free_disk_gb.is_(None), 0), else_=1)
    )
    # Of the rows without a time, only new ones and those that have reported.
    _is_late = sa.or_(
        _c.updated_at >= sa.bindparam("mark", type_=UtcMicroseconds),
        _c.updated_at.is_(None)
        & (_c.free_disk_gb.is_not(None) | (_c.id > sa.bindparam("highest"))),
    )
    sums = checksum_queries(_c.id, _number, _live, late=_is_late)
    _late = _query.where(
        sa.or_(_is_late, _c.id.in_(sa.bindparam("again", expanding=True)))
    )
    _by_id = _query.where(_c.id.in_(_IDS))
    _numbers = sa.select(_c.id, _number).where(
        _live, _c.id.between(sa.bindparam("first"), sa.bindparam("last"))
    )

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._cell_uuid = cell_uuid
        self._ratios = ratios
        #: A hash of each row that was read.
        self._known: dict[int, int] = {}
        #: Rows that may change again with the same time, and since when.
        self._hot: dict[int, float] = {}
        #: Rows that may change without ever having a time.
        self._timeless: set[int] = set()
        self._highest = 0
        self._mark = HighWaterMark()
        self._checksum = TableChecksum()
        #: Error messages of invalid rows, by id.
        self.row_errors: dict[int, str] = {}

    @property
    def is_small(self) -> bool:
        """Whether the table is read whole at each poll."""
        return len(self._known) <= SMALL

    def begin(self, now: float) -> dict[str, int]:
        """Begin or restart a poll; return the parameters of `sums`."""
        self._hot = {i: at for i, at in self._hot.items() if is_recent(at, now)}
        return {"mark": self._mark.us, "highest": self._highest}

    def read_changes(
        self,
        connection: sa.Connection,
        now: float,
        *,
        in_full: bool,
        total: Sequence[Any] | None = None,
    ) -> dict[int, Node | None]:
        """Return what changed since the last call.

        Parameters
        ----------
        in_full : bool
            Compare every row.
        total : sequence, optional
            The result of `sums.total`, if it was already queried.
        """
        asked = self.begin(now)
        n_known = len(self._known)
        n_again = len(self._hot) + len(self._timeless)
        if in_full or self.is_small or 2 * n_again > n_known:
            return self._whole(connection, now)
        total = total or run(connection, self.sums.total, asked).one()
        again = self._hot.keys() | self._timeless
        wanted = again
        if not self._checksum.matches(total):
            wanted = again.union(late_ids(total))
        changes: dict[int, Node | None] = {}
        if len(wanted) > max(_FEW, len(again)):
            rows = self._late.read(connection, {**asked, "again": list(again)})
            changes = self._read_rows(rows, now)
        elif wanted:
            are_few = len(wanted) <= _FEW
            rows = self._by_id.read(connection, {"ids": list(wanted)}, are_few=are_few)
            changes = self._read_rows(rows, now)
        if not self._checksum.matches(total):
            buckets = connection.execute(self.sums.by_bucket)
            for bucket in self._checksum.differing(buckets.all()):
                changes.update(self._compare(connection, bucket, now))
        return changes

    def _whole(self, connection: sa.Connection, now: float) -> dict[int, Node | None]:
        seen: set[int] = set()
        changes = self._read_rows(self._query.read(connection), now, seen)
        changes.update(self._drop(self._known.keys() - seen))
        return changes

    def _compare(
        self, connection: sa.Connection, bucket: int, now: float
    ) -> dict[int, Node | None]:
        first, last = ids_of(bucket)
        query = connection.execute(self._numbers, {"first": first, "last": last})
        theirs: dict[int, int] = dict(query.all())
        ours = {i for i in self._known if bucket_of(i) == bucket}
        changes = self._drop(ours - theirs.keys())
        changed = [i for i, v in theirs.items() if not self._checksum.has(i, v)]
        if changed:
            rows = self._by_id.read(connection, {"ids": changed}, are_few=True)
            changes.update(self._read_rows(rows, now))
        return changes

    def _drop(self, ids: Collection[int]) -> dict[int, Node | None]:
        for row_id in ids:
            del self._known[row_id]
            self._hot.pop(row_id, None)
            self._timeless.discard(row_id)
            self._checksum.drop(row_id)
            self.row_errors.pop(row_id, None)
        return dict.fromkeys(ids)

    def _read_rows(
        self,
        rows: Iterable[LongRow],
        now: float,
        seen: set[int] | None = None,
    ) -> dict[int, Node | None]:
        """Return the nodes of the rows that have changed."""
        changes: dict[int, Node | None] = {}
        is_new = not self._known  # otherwise the next poll would read all again
        for content, columns, texts in rows:
            row_id = columns[0]
            if seen is not None:
                seen.add(row_id)
            if self._known.get(row_id) == content:
                continue
            self._known[row_id] = content
            row = NodeRow(*columns, *texts)
            self._remember(row, now, is_new=is_new)
            try:
                values = read_node(row, self._cell_uuid, self._ratios)
            except ValueError as e:
                self._log_row_error(row, e)  # and keep its last state
                continue
            self.row_errors.pop(row_id, None)
            changes[row_id] = None if values is None else Node.of(row, values, now)
        return changes

    def _remember(self, row: NodeRow, now: float, *, is_new: bool) -> None:
        """Remember a row's time, and whether it must be read again."""
        row_id, version_us = row.id, row.version_us
        self._highest = max(self._highest, row_id)
        is_reported = row.free_disk_gb is not None
        number = int(is_reported) if version_us is None else version_us
        self._checksum.put(row_id, number)
        self._mark.observe(version_us, now)
        self._timeless.discard(row_id)
        if version_us is not None:
            if not is_new or version_us / US_PER_S > now - HOT_S - SKEW_S:
                self._hot[row_id] = now
        elif is_reported:
            self._timeless.add(row_id)

    def _log_row_error(self, row: NodeRow, error: ValueError) -> None:
        text = f"compute node {row.hypervisor_hostname} (uuid {row.uuid}): {error}"
        if self.row_errors.get(row.id) != text:
            self.row_errors[row.id] = text
            LOG.error(
                "Cell %s has an invalid row; its host keeps its last state or is left "
                "out: %s",
                self._cell_uuid,
                text,
            )
