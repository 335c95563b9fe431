# SPDX-License-Identifier: Apache-2.0
"""The compute nodes of a cell, and what changed of them."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from .packing import LongRow, LongRows, exact, run
from .reading import LONG_TEXTS, RATIOS, NodeRow, Service, read_node
from .schema import Moment, compute_nodes, microseconds
from .settings import Ratios
from .signatures import Signatures, bucket_of, ids_of, late_ids, sum_queries
from .times import HOT_S, SKEW_S, SMALL, US_PER_S, Mark, is_recent

#: Rows up to which late ones are asked for by their ids.
_FEW: Final = 256
#: Written into the statement, as by `written_out`.
_IDS: Final = sa.bindparam(
    "ids", None, sa.Integer, expanding=True, literal_execute=True
)

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A compute node's row, as a look found it.

    Attributes
    ----------
    version_us : int or None
        Its ``updated_at``, microseconds since the epoch.
    seen_at : float
        When the look began that first saw it as it is, seconds since the epoch by our
        own clock.
    told : mapping or None
        All that it says, by `HostRecord`'s names; None once the host table has it.
    shown_with : Service or None
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
    told: Mapping[str, Any] | None
    shown_with: Service | None = None

    @classmethod
    def of(cls, row: NodeRow, told: Mapping[str, Any], seen_at: float) -> Node:
        """Return the node of a row, and what is read of it."""
        return cls(
            row.id,
            told["cell_uuid"],
            told["uuid"],
            told["host"],
            told["nodename"],
            told["num_instances"],
            row.version_us,
            seen_at,
            told,
        )

    def renew(self, other: Node) -> bool:
        """Become as another is, if both are of one node; return whether they are."""
        if (self.uuid, self.names) != (other.uuid, other.names):
            return False
        self.num_instances = other.num_instances
        self.version_us = other.version_us
        self.seen_at = other.seen_at
        self.told = other.told
        return True

    @property
    def names(self) -> str | tuple[str, str]:
        """Host and node name; that of both where it is one."""
        return self.host if self.host == self.nodename else (self.host, self.nodename)

    @property
    def order(self) -> tuple[float, str, int]:
        """What two rows of one host are ordered by; the highest counts."""
        written = -math.inf if self.version_us is None else self.version_us
        return written, self.cell_uuid, self.id


def _rows_of_nodes() -> LongRows:
    """Return what selects all nodes, in the order of `NodeRow`."""
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
    #: When a row was written; of those without a time, whether they tell something.
    _number = sa.func.coalesce(
        microseconds(_c.updated_at), sa.case((_c.free_disk_gb.is_(None), 0), else_=1)
    )
    # Of the rows without a time only those that are new, or tell something by now.
    _is_late = sa.or_(
        _c.updated_at >= sa.bindparam("mark", type_=Moment),
        _c.updated_at.is_(None)
        & (_c.free_disk_gb.is_not(None) | (_c.id > sa.bindparam("highest"))),
    )
    sums = sum_queries(_c.id, _number, _live, late=_is_late)
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
        #: Rows that may change again without a new time, and since when they are so.
        self._hot: dict[int, float] = {}
        #: Rows that may change and never have a time.
        self._timeless: set[int] = set()
        self._highest = 0
        self._mark = Mark()
        self._signatures = Signatures()
        #: By id, of the rows that cannot be understood.
        self.troubles: dict[int, str] = {}

    @property
    def is_small(self) -> bool:
        """Whether the table is read whole at each look."""
        return len(self._known) <= SMALL

    def begin(self, now: float) -> dict[str, int]:
        """Begin a look, or begin it again; return the values that `sums` needs."""
        self._hot = {i: at for i, at in self._hot.items() if is_recent(at, now)}
        return {"mark": self._mark.us, "highest": self._highest}

    def look(
        self,
        connection: sa.Connection,
        now: float,
        *,
        in_full: bool,
        total: Sequence[Any] | None = None,
    ) -> dict[int, Node | None]:
        """Return what changed since the last time.

        Parameters
        ----------
        in_full : bool
            Compare every row.
        total : sequence, optional
            What the database answers to `sums.total`, where that is known.
        """
        asked = self.begin(now)
        n_known = len(self._known)
        n_again = len(self._hot) + len(self._timeless)
        if in_full or self.is_small or 2 * n_again > n_known:
            return self._whole(connection, now)
        total = total or run(connection, self.sums.total, asked).one()
        again = self._hot.keys() | self._timeless
        wanted = again
        if not self._signatures.agrees(total):
            wanted = again.union(late_ids(total))
        changes: dict[int, Node | None] = {}
        if len(wanted) > max(_FEW, len(again)):
            rows = self._late.read(connection, {**asked, "again": list(again)})
            changes = self._take(rows, now)
        elif wanted:
            are_few = len(wanted) <= _FEW
            rows = self._by_id.read(connection, {"ids": list(wanted)}, are_few=are_few)
            changes = self._take(rows, now)
        if not self._signatures.agrees(total):
            told = connection.execute(self.sums.by_bucket)
            for bucket in self._signatures.differing(told.all()):
                changes.update(self._compare(connection, bucket, now))
        return changes

    def _whole(self, connection: sa.Connection, now: float) -> dict[int, Node | None]:
        seen: set[int] = set()
        changes = self._take(self._query.read(connection), now, seen)
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
        changed = [i for i, v in theirs.items() if not self._signatures.has(i, v)]
        if changed:
            rows = self._by_id.read(connection, {"ids": changed}, are_few=True)
            changes.update(self._take(rows, now))
        return changes

    def _drop(self, ids: Collection[int]) -> dict[int, Node | None]:
        for row_id in ids:
            del self._known[row_id]
            self._hot.pop(row_id, None)
            self._timeless.discard(row_id)
            self._signatures.drop(row_id)
            self.troubles.pop(row_id, None)
        return dict.fromkeys(ids)

    def _take(
        self,
        rows: Iterable[LongRow],
        now: float,
        seen: set[int] | None = None,
    ) -> dict[int, Node | None]:
        """Return the nodes of the rows that are not as they were."""
        changes: dict[int, Node | None] = {}
        is_new = not self._known  # else all would be read again by the next look
        for content, values, texts in rows:
            row_id = values[0]
            if seen is not None:
                seen.add(row_id)
            if self._known.get(row_id) == content:
                continue
            self._known[row_id] = content
            row = NodeRow(*values, *texts)
            self._note(row, now, is_new=is_new)
            try:
                told = read_node(row, self._cell_uuid, self._ratios)
            except ValueError as e:
                self._tell(row, e)  # and keep its last state
                continue
            self.troubles.pop(row_id, None)
            changes[row_id] = None if told is None else Node.of(row, told, now)
        return changes

    def _note(self, row: NodeRow, now: float, *, is_new: bool) -> None:
        """Remember when a row was written, and whether it is to be read again."""
        row_id, version_us = row.id, row.version_us
        self._highest = max(self._highest, row_id)
        is_reported = row.free_disk_gb is not None
        number = int(is_reported) if version_us is None else version_us
        self._signatures.put(row_id, number)
        self._mark.note(version_us, now)
        self._timeless.discard(row_id)
        if version_us is not None:
            if not is_new or version_us / US_PER_S > now - HOT_S - SKEW_S:
                self._hot[row_id] = now
        elif is_reported:
            self._timeless.add(row_id)

    def _tell(self, row: NodeRow, error: ValueError) -> None:
        told = f"compute node {row.hypervisor_hostname} (uuid {row.uuid}): {error}"
        if self.troubles.get(row.id) != told:
            self.troubles[row.id] = told
            LOG.error(
                "Cell %s has a row that cannot be understood; its host stays as it was "
                "or is left out: %s",
                self._cell_uuid,
                told,
            )
