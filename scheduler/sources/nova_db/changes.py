# SPDX-License-Identifier: Apache-2.0
"""What one cell's database holds, and what changed of it since it was read last.

A look at a cell costs what changed, not what is there:

1. a few sums tell whether anything changed (`signatures`);
2. if so, rows whose ``updated_at`` is NULL, or not before the highest one seen, are
   read;
3. if the sums still differ, those of buckets of ids tell which rows to compare one by
   one: rows whose time went back, of a host whose clock is wrong, or that are gone.

Rows that changed some moments ago are read in any case: they may change again and have
the same time, as MariaDB keeps whole seconds. Instances may be committed late: the sums
are those of the last minute's, which only moves on as the rows' clocks do.

Times of rows are compared with each other, never trusted against our clock. A small
table is read whole: that costs less than to ask. All of a look reads one snapshot where
the database has them; instances are read first where it has none, so that a compute
node's row is never older than the instances that are seen with it.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from ...hosts import HostRecord
from .reading import Row, Service, read_node, read_service
from .schema import Moment, compute_nodes, instances, microseconds, services
from .settings import Ratios
from .signatures import (
    Signatures,
    bucket_of,
    ids_of,
    sum_queries,
)

LOG = logging.getLogger(__name__)

_US_PER_S: Final = 1_000_000
#: Rows of a table up to which it is read whole at each look.
SMALL: Final = 64
#: Instances take little of a row's width.
SMALL_INSTANCES: Final = 256
#: Seconds for which a row's second may go on: the writer's second, and its commit.
_HOT_S: Final = 3.0
#: Seconds by which clocks may differ, of rows that were written before we came.
_SKEW_S: Final = 7.0
#: Seconds by which an instance's row may be committed later than another's, and by
#: which conductors' clocks may differ; a later one is found by the comparison.
_INSTANCES_OVERLAP_S: Final = 60.0
#: Numbers in one statement: SQLite takes no more than 32,766 parameters.
_CHUNK: Final = 1000

T = TypeVar("T")


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
    record : HostRecord or None
        All that it says; None while the host table has it.
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
    record: HostRecord | None
    shown_with: Service | None = None

    @classmethod
    def of(
        cls, row_id: int, record: HostRecord, version_us: int | None, seen_at: float
    ) -> Node:
        """Return the node that a record tells of."""
        return cls(
            id=row_id,
            cell_uuid=record.cell_uuid,
            uuid=record.uuid,
            host=record.host,
            nodename=record.nodename,
            num_instances=record.num_instances,
            version_us=version_us,
            seen_at=seen_at,
            record=record,
        )

    @property
    def names(self) -> str | tuple[str, str]:
        """Host and node name; that of both where it is one."""
        return self.host if self.host == self.nodename else (self.host, self.nodename)

    @property
    def order(self) -> tuple[float, str, int]:
        """What two rows of one host are ordered by; the highest counts."""
        written = -math.inf if self.version_us is None else self.version_us
        return written, self.cell_uuid, self.id


@dataclasses.dataclass(slots=True)
class CellChanges:
    """What a look at a cell found.

    Attributes
    ----------
    began_at : float
        When the look began, seconds since the epoch.
    is_whole : bool
        All that the cell has; what is not in here is not there.
    nodes, services : mapping
        By id; None: gone, or of no use.
    instances : mapping
        The UUIDs of all instances of a service host, by host.
    """

    began_at: float
    is_whole: bool
    nodes: Mapping[int, Node | None]
    services: Mapping[int, Service | None]
    instances: Mapping[str, frozenset[str]]


class CellReader:
    """What was read of one cell's database; used by one thread at a time.

    After a failure a new one has to be made: what this one knows may never have been
    handed on.
    """

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._nodes = _Nodes(cell_uuid, ratios)
        self._services = _Services()
        self._instances = _Instances()
        self._is_new = True

    @property
    def troubles(self) -> tuple[str, ...]:
        """The rows that cannot be understood, with what is wrong."""
        return tuple(self._nodes.troubles.values())

    def read(
        self, connection: sa.Connection, began_at: float, *, in_full: bool = False
    ) -> CellChanges:
        """Return what changed since the last time; everything, the first time.

        Parameters
        ----------
        began_at : float
            Now, seconds since the epoch.
        in_full : bool
            Compare every row, also where nothing says that it changed.
        """
        is_new, self._is_new = self._is_new, False
        compares = in_full or is_new
        return CellChanges(
            began_at=began_at,
            is_whole=is_new,
            instances=self._instances.look(connection, began_at, in_full=compares),
            services=self._services.look(connection, began_at, in_full=compares),
            nodes=self._nodes.look(connection, began_at, in_full=compares),
        )


class _Mark:
    """The highest time of a table's rows that is not ahead of our clock."""

    def __init__(self) -> None:
        self.us = 0

    def note(self, moment_us: int | None, now: float) -> None:
        # Else one host whose clock is ahead would hide the others' changes.
        if moment_us is not None and self.us < moment_us <= now * _US_PER_S:
            self.us = moment_us


class _Nodes:
    """The rows of ``compute_nodes``."""

    _c = compute_nodes.c
    _live = _c.deleted == 0
    # Whole numbers: some drivers take longer to read a time than all the rest of a row.
    _version_us = microseconds(_c.updated_at).label("version_us")
    _query = sa.select(
        _version_us,
        *(c for c in _c if c.name not in ("updated_at", "deleted", "mapped")),
    ).where(_live)
    _sum_queries = sum_queries(_c.id, microseconds(_c.updated_at), _live)
    # Of the rows without a time only those that are new, or tell something by now.
    _late = _query.where(
        sa.or_(
            _c.updated_at >= sa.bindparam("mark", type_=Moment),
            _c.updated_at.is_(None)
            & (_c.free_disk_gb.is_not(None) | (_c.id > sa.bindparam("highest"))),
            _c.id.in_(sa.bindparam("again", expanding=True)),
        )
    )
    _by_id = _query.where(_c.id.in_(sa.bindparam("ids", expanding=True)))
    _reported = _by_id.where(_c.free_disk_gb.is_not(None))
    _versions = sa.select(_c.id, _version_us).where(
        _live, _c.id.between(sa.bindparam("first"), sa.bindparam("last"))
    )

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._cell_uuid = cell_uuid
        self._ratios = ratios
        #: A hash of each row that was read.
        self._known: dict[int, int] = {}
        #: Rows that may change again without a new time, and since when they are so.
        self._hot: dict[int, float] = {}
        #: Rows that may change and never have a time; those of computes that never
        #: reported are of no use until they do.
        self._timeless: set[int] = set()
        self._unreported: set[int] = set()
        self._highest = 0
        self._mark = _Mark()
        self._sums = Signatures()
        #: By id, of the rows that cannot be understood.
        self.troubles: dict[int, str] = {}

    def look(
        self, connection: sa.Connection, now: float, *, in_full: bool
    ) -> dict[int, Node | None]:
        self._hot = {i: at for i, at in self._hot.items() if _is_recent(at, now)}
        n_known = len(self._known)
        n_again = len(self._hot) + len(self._timeless)
        if in_full or n_known <= SMALL or 2 * n_again > n_known:
            return self._whole(connection, now)
        total = connection.execute(self._sum_queries.total).one()
        again = [*self._hot, *self._timeless]
        changes: dict[int, Node | None] = {}
        if not self._sums.agrees(total):
            values = {"mark": self._mark.us, "highest": self._highest, "again": again}
            changes = self._take(connection.execute(self._late, values), now)
        else:
            if again:
                rows = connection.execute(self._by_id, {"ids": again})
                changes = self._take(rows, now)
            if self._unreported:
                ids = list(self._unreported)
                rows = connection.execute(self._reported, {"ids": ids})
                changes.update(self._take(rows, now))
        if not self._sums.agrees(total):
            told = connection.execute(self._sum_queries.by_bucket)
            for bucket in self._sums.differing(told.all()):
                changes.update(self._compare(connection, bucket, now))
        return changes

    def _whole(self, connection: sa.Connection, now: float) -> dict[int, Node | None]:
        seen: set[int] = set()
        changes = self._take(connection.execute(self._query), now, seen)
        changes.update(self._drop(self._known.keys() - seen))
        return changes

    def _compare(
        self, connection: sa.Connection, bucket: int, now: float
    ) -> dict[int, Node | None]:
        first, last = ids_of(bucket)
        query = connection.execute(self._versions, {"first": first, "last": last})
        theirs: dict[int, int | None] = dict(query.all())
        ours = {i for i in self._known if bucket_of(i) == bucket}
        changes = self._drop(ours - theirs.keys())
        changed = [i for i, v in theirs.items() if not self._sums.has(i, v)]
        if changed:
            rows = connection.execute(self._by_id, {"ids": changed})
            changes.update(self._take(rows, now))
        return changes

    def _drop(self, ids: Collection[int]) -> dict[int, Node | None]:
        for row_id in ids:
            del self._known[row_id]
            self._hot.pop(row_id, None)
            self._timeless.discard(row_id)
            self._unreported.discard(row_id)
            self._sums.drop(row_id)
            self.troubles.pop(row_id, None)
        return dict.fromkeys(ids)

    def _take(
        self, rows: Iterable[Row], now: float, seen: set[int] | None = None
    ) -> dict[int, Node | None]:
        """Return the nodes of the rows that are not as they were."""
        changes: dict[int, Node | None] = {}
        is_new = not self._known  # else all would be read again by the next look
        for row in rows:
            row_id, version_us, content = row.id, row.version_us, hash(tuple(row))
            if seen is not None:
                seen.add(row_id)
            if self._known.get(row_id) == content:
                continue
            self._known[row_id] = content
            self._highest = max(self._highest, row_id)
            self._sums.put(row_id, version_us)
            self._mark.note(version_us, now)
            self._timeless.discard(row_id)
            self._unreported.discard(row_id)
            if version_us is not None:
                if not is_new or version_us / _US_PER_S > now - _HOT_S - _SKEW_S:
                    self._hot[row_id] = now
            elif row.free_disk_gb is None:
                self._unreported.add(row_id)
            else:
                self._timeless.add(row_id)
            try:
                record = read_node(row, self._cell_uuid, self._ratios)
            except ValueError as e:
                self._tell(row, e)  # and keep its last state
                continue
            self.troubles.pop(row_id, None)
            changes[row_id] = (
                None if record is None else Node.of(row_id, record, version_us, now)
            )
        return changes

    def _tell(self, row: Row, error: ValueError) -> None:
        told = f"compute node {row.hypervisor_hostname} (uuid {row.uuid}): {error}"
        if self.troubles.get(row.id) != told:
            self.troubles[row.id] = told
            LOG.error(
                "Cell %s has a row that cannot be understood; its host stays as it was "
                "or is left out: %s",
                self._cell_uuid,
                told,
            )


def _is_recent(at: float, now: float) -> bool:
    return abs(now - at) < _HOT_S


class _Services:
    """The rows of ``services`` of computes.

    All that is read of a row is in its sums: a change is found whatever its time says.
    """

    _c = services.c
    _live = (_c.deleted == 0) & (_c.binary == "nova-compute")
    # Whole numbers: some drivers take longer to read a time than all the rest of a row.
    _seen_us = sa.func.coalesce(
        microseconds(_c.last_seen_up), microseconds(_c.created_at)
    )
    _query = sa.select(
        _c.id,
        _c.host,
        _c.disabled,
        _c.forced_down,
        _seen_us.label("seen_us"),
        _c.version,
    ).where(_live)
    _late = _query.where(
        sa.or_(
            _c.updated_at >= sa.bindparam("mark", type_=Moment),
            _c.updated_at.is_(None),
        )
    )
    _latest = sa.select(sa.func.max(_c.updated_at)).where(
        _live, _c.updated_at <= sa.bindparam("now", type_=Moment)
    )
    # Times are whole seconds or as good as never equal: small numbers do not make up
    # for a difference between them.
    _sum_queries = sum_queries(
        _c.id,
        sa.func.coalesce(_seen_us, 0)
        + sa.case((_c.disabled.is_(True), 1), else_=0)
        + sa.case((_c.forced_down.is_(True), 2), else_=0)
        + 4 * sa.func.coalesce(_c.version, 0),
        _live,
    )

    def __init__(self) -> None:
        self._known: dict[int, Service | None] = {}
        self._mark = _Mark()
        self._sums = Signatures()

    def look(
        self, connection: sa.Connection, now: float, *, in_full: bool
    ) -> dict[int, Service | None]:
        if in_full or len(self._known) <= SMALL:
            self._note(connection, now)
            return self._compare(connection, None)
        total = connection.execute(self._sum_queries.total).one()
        changes: dict[int, Service | None] = {}
        if not self._sums.agrees(total):
            rows = connection.execute(self._late, {"mark": self._mark.us})
            changes = self._take(rows)
            self._note(connection, now)
        if not self._sums.agrees(total):
            told = connection.execute(self._sum_queries.by_bucket)
            for bucket in self._sums.differing(told.all()):
                changes.update(self._compare(connection, bucket))
        return changes

    def _note(self, connection: sa.Connection, now: float) -> None:
        latest = connection.execute(self._latest, {"now": int(now * _US_PER_S)})
        self._mark.note(latest.scalar(), now)

    def _compare(
        self, connection: sa.Connection, bucket: int | None
    ) -> dict[int, Service | None]:
        """Read a bucket's rows, or all."""
        query, ours = self._query, set(self._known)
        if bucket is not None:
            query = query.where(services.c.id.between(*ids_of(bucket)))
            ours = {i for i in ours if bucket_of(i) == bucket}
        rows = connection.execute(query).all()
        changes = self._take(rows)
        gone = ours.difference(row.id for row in rows)
        for row_id in gone:
            del self._known[row_id]
            self._sums.drop(row_id)
        changes.update(dict.fromkeys(gone))
        return changes

    def _take(self, rows: Iterable[Row]) -> dict[int, Service | None]:
        changes: dict[int, Service | None] = {}
        for row in rows:
            service = read_service(row)
            if row.id not in self._known or self._known[row.id] != service:
                self._known[row.id] = changes[row.id] = service
                self._sums.put(row.id, _number(row))
        return changes


def _number(row: Row) -> int:
    """Return what the database adds up of a service."""
    flags = bool(row.disabled) + 2 * bool(row.forced_down)
    return int(row.seen_us or 0) + flags + 4 * int(row.version or 0)


class _Instances:
    """The rows of ``instances``: which are on which service host."""

    _c = instances.c
    _live = (_c.deleted == 0) & _c.host.is_not(None)
    _query = sa.select(_c.id, _c.uuid, _c.host).where(_live)
    #: When a row was written, twice, and whether it is deleted: that comes later and
    #: leaves the time as it was.
    _number = 2 * microseconds(_c.updated_at) + sa.case((_c.deleted == 0, 0), else_=1)
    _is_late = _c.updated_at >= sa.bindparam("since", type_=Moment)
    _state = sa.select(_c.id, _c.uuid, _c.host, _c.deleted, _number.label("number"))
    _late = _state.where(_is_late)
    _by_id = _state.where(_c.id.in_(sa.bindparam("ids", expanding=True)))
    _late_sums = sum_queries(_c.id, _number, _is_late).total
    _by_host = sa.select(
        _c.host,
        sa.func.count(),
        sa.func.sum(_c.id),
        sa.func.sum(sa.cast(_c.id, sa.BigInteger) * sa.cast(_c.id, sa.BigInteger)),
    ).where(_live).group_by(_c.host)  # fmt: skip

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, str]] = {}
        self._of_host: dict[str, frozenset[str]] = {}
        self._window = _Window()
        self._is_read = False

    def look(
        self, connection: sa.Connection, now: float, *, in_full: bool
    ) -> dict[str, frozenset[str]]:
        if not self._is_read or len(self._known) <= SMALL_INSTANCES:
            hosts = self._whole(connection, now)
        else:
            hosts = self._changed(connection, now)
            if in_full:
                hosts |= self._compare(connection)
        return {**(self._of_host if in_full else {}), **self._told(hosts)}

    def _told(self, hosts: Iterable[str]) -> dict[str, frozenset[str]]:
        return {host: self._of_host.get(host, frozenset()) for host in hosts}

    def _whole(self, connection: sa.Connection, now: float) -> set[str]:
        self._is_read = True
        latest = sa.select(sa.func.max(instances.c.updated_at)).where(
            instances.c.updated_at <= int(now * _US_PER_S)
        )
        window = self._window
        window.clear()
        window.note_time(connection.execute(latest).scalar(), now)
        window.begin(now)
        # Before the rows: they may be newer where there are no snapshots, never older.
        asked = {"since": window.since_us}
        window.take(connection.execute(self._late_sums, asked).one(), now)
        before = set(self._known)
        rows = connection.execute(self._query).all()
        intern = sys.intern  # one object for a host's name
        hosts = self._put({row_id: (uuid, intern(host)) for row_id, uuid, host in rows})
        return hosts | self._drop(before.difference(row[0] for row in rows))

    def _changed(self, connection: sa.Connection, now: float) -> set[str]:
        window = self._window
        window.begin(now)
        asked = {"since": window.since_us}
        total = connection.execute(self._late_sums, asked).one()
        hosts: set[str] = set()
        for some in chunks(window.again()):
            rows = connection.execute(self._by_id, {"ids": some})
            hosts |= self._take(rows, now)
        if not window.agrees(total) and window.n_rows > SMALL_INSTANCES:
            newest = max(window.since_us, window.mark.us - int(_HOT_S * _US_PER_S))
            rows = connection.execute(self._late, {"since": newest})
            hosts |= self._take(rows, now)
        if not window.agrees(total):
            window.clear()
            hosts |= self._take(connection.execute(self._late, asked), now)
        return hosts

    def _take(self, rows: Iterable[Row], now: float) -> set[str]:
        there: dict[int, tuple[str, str]] = {}
        gone: list[int] = []
        for row_id, uuid, host, deleted, number in rows:
            if number is not None:
                self._window.note(row_id, int(number), now)
            if deleted == 0 and host is not None:
                there[row_id] = (uuid, sys.intern(host))
            else:
                gone.append(row_id)
        return self._put(there) | self._drop(gone)

    def _compare(self, connection: sa.Connection) -> set[str]:
        """Read the hosts again whose instances are not those that we know."""
        ours: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for row_id, (_, host) in self._known.items():
            sums = ours[host]
            sums[0] += 1
            sums[1] += row_id
            sums[2] += row_id * row_id
        theirs = {
            host: [int(n), int(total), int(squares)]
            for host, n, total, squares in connection.execute(self._by_host)
        }
        differing = {
            host
            for host in theirs.keys() | ours.keys()
            if theirs.get(host) != ours.get(host)
        }
        hosts: set[str] = set()
        for some in chunks(sorted(differing)):
            query = self._query.where(instances.c.host.in_(some))
            rows = connection.execute(query).all()
            there = {row_id: (uuid, sys.intern(host)) for row_id, uuid, host in rows}
            here = set(some)
            before = [i for i, (_, host) in self._known.items() if host in here]
            hosts |= self._drop([i for i in before if i not in there])
            hosts |= self._put(there)
        return hosts

    def _put(self, rows: Mapping[int, tuple[str, str]]) -> set[str]:
        """Return the hosts whose instances change by that."""
        moves = _Moves()
        for row_id, (uuid, host) in rows.items():
            before = self._known.get(row_id)
            if before == (uuid, host):
                continue
            if before is not None:
                moves.gone[before[1]].add(before[0])
            moves.come[host].add(uuid)
            self._known[row_id] = (uuid, host)
        return moves.make(self._of_host)

    def _drop(self, ids: Iterable[int]) -> set[str]:
        moves = _Moves()
        for row_id in ids:
            before = self._known.pop(row_id, None)
            if before is not None:
                moves.gone[before[1]].add(before[0])
        return moves.make(self._of_host)


class _Window:
    """The instances that were written last, among which more may turn up.

    Attributes
    ----------
    since_us : int
        Rows written from then on, microseconds since the epoch, may have come to light
        since the last look.
    """

    def __init__(self) -> None:
        self.mark = _Mark()
        self.since_us = 0
        self._marked_at = self._looked_at = 0.0
        self._numbers: dict[int, int] = {}
        #: Rows that may change again and keep their time, and since when they are so.
        self._hot: dict[int, float] = {}
        self.clear()

    @property
    def n_rows(self) -> int:
        return len(self._numbers)

    def clear(self) -> None:
        self._sums = Signatures()
        self._before = self._numbers
        self._numbers = {}
        self._taken: tuple[Any, ...] | None = None

    def take(self, total: Sequence[Any], now: float) -> None:
        """Say what the database adds up of rows that were all read, unseen by us.

        Where some may change again and keep their time, all are read by the next look.
        """
        self.clear()
        if self.mark.us / _US_PER_S < now - _HOT_S - _SKEW_S:
            self._taken = tuple(total)

    def again(self) -> list[int]:
        """Return the rows that may have changed and kept their time."""
        at = self._looked_at
        self._hot = {
            i: since for i, since in self._hot.items() if _is_recent(since, at)
        }
        return list(self._hot)

    def agrees(self, total: Sequence[Any]) -> bool:
        """Return whether the database has the rows that were read."""
        if self._taken is not None:
            return self._taken == tuple(total)
        return self._sums.agrees(total)

    def begin(self, now: float) -> None:
        """Begin a look, which leaves out what the last one saw in time.

        While nothing is written, the highest time stays behind the clock of whoever
        wrote it; how far is told by ours.
        """
        overlap_us = int(_INSTANCES_OVERLAP_S * _US_PER_S)
        passed_us = int((self._looked_at - self._marked_at) * _US_PER_S)
        is_past = passed_us > overlap_us
        self._looked_at = now
        if self._taken is not None and not is_past:
            return  # it was added up since then
        behind_us = overlap_us - max(0, passed_us)
        since_us = self.mark.us + (1 if is_past else -behind_us)
        if since_us > self.since_us:
            self.since_us = since_us
            self._forget_the_old()

    def _forget_the_old(self) -> None:
        self._taken = None
        old = [i for i, number in self._numbers.items() if number // 2 < self.since_us]
        for row_id in old:
            del self._numbers[row_id]
            self._sums.drop(row_id)

    def note(self, row_id: int, number: int, now: float) -> None:
        """Say that a row was read; `number` is what the database adds up of it."""
        self.note_time(number // 2, now)
        if number not in (self._numbers.get(row_id), self._before.get(row_id)):
            self._hot[row_id] = now
        self._numbers[row_id] = number
        self._sums.put(row_id, number)

    def note_time(self, moment_us: int | None, now: float) -> None:
        """Say that a row was written then."""
        before = self.mark.us
        self.mark.note(moment_us, now)
        if self.mark.us != before:
            self._marked_at = now


class _Moves:
    """Instances that leave hosts and come to others, by host."""

    def __init__(self) -> None:
        self.gone: defaultdict[str, set[str]] = defaultdict(set)
        self.come: defaultdict[str, set[str]] = defaultdict(set)

    def make(self, of_host: dict[str, frozenset[str]]) -> set[str]:
        hosts = self.gone.keys() | self.come.keys()
        for host in hosts:
            left = of_host.get(host, frozenset()) - self.gone[host] | self.come[host]
            if left:
                of_host[host] = left
            else:
                of_host.pop(host, None)
        return set(hosts)


def chunks(values: Iterable[T]) -> Iterator[list[T]]:
    """Yield the values in lists that fit one statement."""
    iterator = iter(values)
    while some := list(itertools.islice(iterator, _CHUNK)):
        yield some
