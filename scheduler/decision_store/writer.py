# SPDX-License-Identifier: Apache-2.0
"""Write decisions in the background, in batches, and remove old ones."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ..background_writer import BackgroundWriter
from ..database import StoreDatabase, StoreUnavailable
from ..drivers.record import DecisionRecord, Outcome
from ..waiting import Spawner
from .codec import encode
from .schema import DECISIONS, KEYS, OUTCOMES, Ids, first_id_at, keys_of
from .views import insert_view, remove_views, remove_views_before

LOG = logging.getLogger(__name__)

#: Maximum records that wait to be encoded, of about 20 kB each: they are all that is
#: recorded in a few seconds at the highest rate of requests.
_MAX_QUEUED: Final = 2000
#: The length of the queue at which the writer wakes before its interval ends.
_WAKE_AT: Final = 500
#: Maximum encoded decisions, of about 2 kB each, that wait for an unavailable store.
_MAX_PENDING: Final = 10_000
#: Maximum decisions that one transaction writes.
_MAX_BATCH: Final = 200
#: Maximum decisions that one transaction removes.
_MAX_REMOVED: Final = 500
#: Maximum views that wait to be encoded: each holds the arrays of a whole cloud.
_MAX_VIEWS: Final = 2
#: Calls of `write`, one a second if all is well, between removals of old decisions.
_PRUNE_INTERVAL: Final = 300
#: Maximum attempts to write a batch, whose used ids are replaced after each.
_MAX_ATTEMPTS: Final = 3


@dataclasses.dataclass(slots=True)
class _Row:
    """An encoded decision, as it is stored."""

    id: int
    decided_at: float
    outcome: int
    keys: frozenset[int]
    record: bytes

    @classmethod
    def of(cls, record: DecisionRecord, ids: Ids) -> _Row:
        outcome = OUTCOMES.index(record.outcome or Outcome.FAILED)
        keys = frozenset(keys_of(record))
        at = record.started_at
        return cls(ids.next(at), at, outcome, keys, encode(record))


class DecisionWriter(BackgroundWriter):
    """Write decisions; while the store is unavailable, keep the newest in memory.

    Parameters
    ----------
    prepare : callable
        Creates the tables; called before each write until it has succeeded.
    max_age_s : float
        The age at which decisions are removed; 0: never.
    max_decisions : int
        Maximum number of stored decisions: beyond it, the oldest are removed. 0: no
        maximum.
    max_views : int
        Maximum number of stored views: beyond it, the oldest are removed.

    Attributes
    ----------
    n_written : int
        Decisions that were stored. `n_dropped` counts the others: the queue was full, a
        decision could not be encoded, or the store was unavailable until the end.
    """

    def __init__(
        self,
        database: StoreDatabase,
        prepare: Callable[[], None],
        *,
        max_age_s: float,
        max_decisions: int,
        max_views: int,
        clock: Callable[[], float],
        spawner: Spawner,
    ) -> None:
        super().__init__("decisions", database.close, clock=clock, spawner=spawner)
        self._database = database
        self._prepare = prepare
        self._max_age_s = max_age_s
        self._max_decisions = max_decisions
        self._max_views = max_views
        self._ids = Ids()
        self._queue: collections.deque[DecisionRecord] = collections.deque()
        self._queue_lock = spawner.lock()
        #: The id of each queued view, and the function that encodes it. A view that
        #: cannot be written is lost.
        self._views: collections.deque[tuple[int, Callable[[], bytes]]]
        self._views = collections.deque(maxlen=_MAX_VIEWS)
        self._pending: collections.deque[_Row] = collections.deque()
        self._n_writes_until_prune = 0
        self.n_written = 0

    def add(self, record: DecisionRecord) -> None:
        """Queue a complete record; if the queue is full, drop its oldest."""
        # A copy: the caller removes the request from the original record.
        queued = copy.copy(record)
        with self._queue_lock:
            self._queue.append(queued)
            n_queued = len(self._queue)
            is_full = n_queued > _MAX_QUEUED
            if is_full:
                self._queue.popleft()
                self.n_dropped += 1
        if n_queued == _WAKE_AT:
            self._wake.set()
        if is_full and not self.failure:
            self.mark_failed("the queue is full: the database hangs, or is too slow.")

    def add_view(self, encode: Callable[[], bytes]) -> str:
        """Queue a view, which is encoded in the thread that writes; return its id."""
        id_ = self._ids.next(self._clock())
        self._views.append((id_, encode))
        return str(id_)

    def stop(self) -> None:
        """Write what is queued, if the store answers, and stop."""
        if self._task is None and self._queue:
            self.flush()
        super().stop()
        if n_lost := len(self._queue) + len(self._pending):
            self.n_dropped += n_lost
            LOG.warning("%d decisions were not stored: %s", n_lost, self.failure)

    def each_interval(self) -> None:
        """Encode the queued records: encoded, they need a tenth of the memory."""
        self._encode_queue()

    def _encode_queue(self) -> None:
        with self._queue_lock:
            queued, self._queue = self._queue, collections.deque()
        for record in queued:
            try:
                row = _Row.of(record, self._ids)
            except Exception:  # one record is lost, and the others are written
                LOG.exception("Decision %s cannot be stored", record.request_id)
                self.n_dropped += 1
                continue
            self._pending.append(row)
            if len(self._pending) > _MAX_PENDING:
                self._pending.popleft()
                self.n_dropped += 1

    def write(self) -> None:
        """Write what is queued, and remove old decisions."""
        self._encode_queue()
        is_idle = not self._pending and not self._views
        if is_idle and not self.failure and self._n_writes_until_prune:
            self._n_writes_until_prune -= 1
            return
        self._prepare()
        # Views first: then the view of each stored decision can be read.
        self._write_views()
        while batch := list(itertools.islice(self._pending, _MAX_BATCH)):
            self._write_batch(batch)
            for _ in batch:
                self._pending.popleft()
            self.n_written += len(batch)
        self._prune_if_due()

    def _write_views(self) -> None:
        while self._views:
            id_, encode = view = self._views[0]
            try:
                data = encode()
            except Exception:  # one view is lost; decisions and other views are written
                LOG.exception("A view of decisions cannot be stored")
            else:
                with self._database.writing() as connection:
                    insert_view(connection, id_, data)
                    remove_views(connection, self._max_views)
            # A newer view may have replaced this one in the queue.
            if self._views[0] is view:
                self._views.popleft()

    def _write_batch(self, batch: Sequence[_Row]) -> None:
        """Write some decisions, those whose earlier write had no answer once only."""
        for n_remaining in reversed(range(_MAX_ATTEMPTS)):
            try:
                with self._database.writing() as connection:
                    _insert(connection, batch)
                return
            except StoreUnavailable as e:
                is_id_used = isinstance(e.__cause__, sa.exc.IntegrityError)
                if not is_id_used or not n_remaining:
                    raise
            batch = self._missing(batch)
            if not batch:
                return

    def _missing(self, batch: Sequence[_Row]) -> list[_Row]:
        """Return those that are not stored, with new ids if theirs are of others."""
        query = sa.select(DECISIONS.c.id, DECISIONS.c.record)
        query = query.where(DECISIONS.c.id.in_([row.id for row in batch]))
        with self._database.reading() as connection:
            stored = connection.execute(query)
            record_of = {id_: bytes(record) for id_, record in stored}
        missing = [row for row in batch if record_of.get(row.id) != row.record]
        for row in missing:
            if row.id in record_of:
                row.id = self._ids.next(row.decided_at)
        return missing

    # -- old decisions -----------------------------------------------------------------

    def _prune_if_due(self) -> None:
        if self._n_writes_until_prune:
            self._n_writes_until_prune -= 1
            return
        self._n_writes_until_prune = _PRUNE_INTERVAL
        if self._max_age_s:
            first_kept_id = first_id_at(self._clock() - self._max_age_s)
            self._remove_before(first_kept_id)
            with self._database.writing() as connection:
                remove_views_before(connection, first_kept_id)
        if self._max_decisions and (excess := self._n_excess()):
            self._remove_before(self._id_at(excess))

    def _n_excess(self) -> int:
        """Return by how many decisions the store exceeds `max_decisions`."""
        with self._database.reading() as connection:
            # Counting by the smallest index reads no rows, which are large.
            count = sa.select(sa.func.count(DECISIONS.c.outcome))
            return max(0, int(connection.scalar(count) or 0) - self._max_decisions)

    def _id_at(self, n_older: int) -> int:
        """Return the id of the decision that has `n_older` older ones; 0: none has."""
        with self._database.reading() as connection:
            ids = sa.select(DECISIONS.c.id).order_by(DECISIONS.c.id)
            return int(connection.scalar(ids.offset(n_older).limit(1)) or 0)

    def _remove_before(self, first_kept_id: int) -> None:
        query = sa.select(DECISIONS.c.id).where(DECISIONS.c.id < first_kept_id)
        # Sorted: two processes that lock rows in one order cannot deadlock.
        query = query.order_by(DECISIONS.c.id).limit(_MAX_REMOVED).with_for_update()
        while True:
            with self._database.writing() as connection:
                ids = connection.scalars(query).all()
                for column in (KEYS.c.decision_id, DECISIONS.c.id):
                    connection.execute(sa.delete(column.table).where(column.in_(ids)))
            if len(ids) < _MAX_REMOVED:
                return


def _insert(connection: Connection, rows: Sequence[_Row]) -> None:
    connection.execute(
        sa.insert(DECISIONS),
        [{"id": row.id, "outcome": row.outcome, "record": row.record} for row in rows],
    )
    # Sorted: writers that lock pages of the index in one order cannot deadlock.
    keys = sorted((key, row.id) for row in rows for key in row.keys)
    if keys:
        connection.execute(
            sa.insert(KEYS), [{"key": key, "decision_id": id_} for key, id_ in keys]
        )
