# SPDX-License-Identifier: Apache-2.0
"""Reading which instances are on which service host of a cell, and what changed."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from .checksums import checksum_queries
from .instances_by_host import InstancesByHost
from .packing import packed, unpacked
from .recent_instances import RecentInstances
from .schema import UtcMicroseconds, instances, microseconds
from .times import HOT_S, US_PER_S

#: Most instances of a table that is read whole at each poll; their rows are short.
SMALL: Final = 256
#: Parameters of one statement; SQLite takes at most 32,766.
_CHUNK: Final = 1000

#: Seconds within which each host's instances are compared, some hosts at each poll. It
#: finds rows that changed with the same time, or were committed minutes late.
_COMPARE_ALL_S: Final = 10.0
#: Least seconds between polls that compare; decisions may poll much more often.
_COMPARE_EVERY_S: Final = 0.9

T = TypeVar("T")
#: The columns read of a row.
Row = Iterable[Any]


class Instances:
    """The rows of ``instances``, by service host."""

    _c = instances.c
    _live = (_c.deleted == 0) & _c.host.is_not(None)
    #: Twice the row's time, plus whether it is deleted: deletion does not update the
    #: time.
    _number = 2 * microseconds(_c.updated_at) + sa.case((_c.deleted == 0, 0), else_=1)
    _is_late = _c.updated_at >= sa.bindparam("since", type_=UtcMicroseconds)
    _state = packed(_c.id, _c.id, _c.uuid, _c.host, _c.deleted, _number)
    _every = _state.where(sa.or_(_live, _is_late))
    _late = _state.where(_is_late)
    _by_id = _state.where(_c.id.in_(sa.bindparam("ids", expanding=True)))
    _on_hosts = _state.where(_live, _c.host.in_(sa.bindparam("hosts", expanding=True)))
    sums = checksum_queries(_c.id, _number, _is_late)
    _by_host = sa.select(
        sa.func.count(),
        sa.func.sum(_c.id),
        sa.func.sum(sa.cast(_c.id, sa.BigInteger) * sa.cast(_c.id, sa.BigInteger)),
        _c.host,
    ).where(_live).group_by(_c.host)  # fmt: skip
    #: Without the squares, which double the cost.
    _of_hosts = (
        sa.select(sa.func.count(), sa.func.sum(_c.id), _c.host)
        .where(_live, _c.host.in_(sa.bindparam("hosts", expanding=True)))
        .group_by(_c.host)
    )

    def __init__(self) -> None:
        self._known = InstancesByHost()
        self._recent = RecentInstances()
        self._is_read = False
        #: Hosts still to be compared in this round, and when the last ones were.
        self._due_hosts: list[str] = []
        self._n_hosts = 0
        self._compared_at = 0.0

    @property
    def is_small(self) -> bool:
        """Whether the table is read whole at each poll."""
        return len(self._known) <= SMALL

    def begin(self, now: float) -> dict[str, int]:
        """Begin a poll; return the parameters of `sums`."""
        self._recent.begin(now)
        return {"since": self._recent.since_us}

    def read_changes(
        self,
        connection: sa.Connection,
        now: float,
        *,
        in_full: bool,
        total: Sequence[Any] | None = None,
        hosts: Callable[[], Iterable[str]] = tuple,
    ) -> dict[str, frozenset[str]]:
        """Return what changed since the last call; see `Nodes.read_changes`.

        Parameters
        ----------
        hosts : callable
            Returns hosts that may have instances in addition to those known to.
        """
        if not self._is_read or self.is_small:
            changed = self._whole(connection, now)
        else:
            changed = self._changed(connection, now, total)
            if in_full:
                changed |= self._compare_all(connection)
            else:
                changed |= self._compare_some(connection, now, hosts)
        every = self._known.hosts if in_full else {}
        return {**every, **self._known.of_hosts(changed)}

    def _whole(self, connection: sa.Connection, now: float) -> set[str]:
        self._is_read, self._compared_at = True, now
        latest = sa.select(sa.func.max(instances.c.updated_at)).where(
            instances.c.updated_at <= int(now * US_PER_S)
        )
        recent = self._recent
        recent.clear()
        recent.observe_time(connection.execute(latest).scalar(), now)
        recent.begin(now)
        rows = unpacked(connection, self._every, {"since": recent.since_us})
        recent.fill(((row[0], row[4]) for row in rows), now)
        gone = set(self._known.ids).difference(row[0] for row in rows)
        return self._update_known(rows) | self._known.drop(gone)

    def _changed(
        self, connection: sa.Connection, now: float, total: Sequence[Any] | None
    ) -> set[str]:
        recent = self._recent
        asked = {"since": recent.since_us}
        total = total or connection.execute(self.sums.total, asked).one()
        hosts: set[str] = set()
        again = recent.rows_to_reread()
        if len(again) > max(SMALL, recent.n_rows // 2):
            rows = unpacked(connection, self._late, asked)
            hosts |= self._apply_rows(rows, now)
            again = list(set(again).difference(row[0] for row in rows))
        for some in chunks(again):
            rows = unpacked(connection, self._by_id, {"ids": some})
            hosts |= self._apply_rows(rows, now)
        if not recent.matches(total) and recent.n_rows > SMALL:
            newest = max(recent.since_us, recent.mark.us - int(HOT_S * US_PER_S))
            rows = unpacked(connection, self._late, {"since": newest})
            hosts |= self._apply_rows(rows, now)
        if not recent.matches(total):
            before = recent.clear()
            rows = unpacked(connection, self._late, asked)
            hosts |= self._apply_rows(rows, now)
            # Rows that were deleted, or have an earlier time now.
            hosts |= self._reread(connection, before.difference(row[0] for row in rows))
        return hosts

    def _apply_rows(self, rows: Iterable[Row], now: float) -> set[str]:
        for row_id, _, _, _, number in rows:
            if number is not None:
                self._recent.observe(row_id, number, now)
        return self._update_known(rows)

    def _update_known(self, rows: Iterable[Row]) -> set[str]:
        """Update the known rows; return the hosts whose instances changed."""
        there: dict[int, tuple[str, str]] = {}
        gone: list[int] = []
        intern = sys.intern  # one object for all occurrences of a host's name
        for row_id, uuid, host, deleted, _ in rows:
            if deleted == 0 and host is not None:
                there[row_id] = (uuid, intern(host))
            else:
                gone.append(row_id)
        return self._known.put(there) | self._known.drop(gone)

    def _reread(self, connection: sa.Connection, ids: Iterable[int]) -> set[str]:
        """Read rows by id again; those not found were deleted."""
        hosts: set[str] = set()
        for some in chunks(ids):
            rows = unpacked(connection, self._by_id, {"ids": some})
            gone = set(some).difference(row[0] for row in rows)
            hosts |= self._update_known(rows) | self._known.drop(gone)
        return hosts

    def _compare_some(
        self,
        connection: sa.Connection,
        now: float,
        hosts: Callable[[], Iterable[str]],
    ) -> set[str]:
        """Compare the next hosts, so that all are compared within `_COMPARE_ALL_S`."""
        passed_s = abs(now - self._compared_at)
        if passed_s < _COMPARE_EVERY_S:
            return set()
        self._compared_at = now
        if not self._due_hosts:
            self._due_hosts = sorted(self._known.hosts.keys() | set(hosts()))
            self._n_hosts = len(self._due_hosts)
        n_due = math.ceil(self._n_hosts * min(1.0, passed_s / _COMPARE_ALL_S))
        due, self._due_hosts = self._due_hosts[:n_due], self._due_hosts[n_due:]
        changed: set[str] = set()
        for some in chunks(due):
            theirs = connection.execute(self._of_hosts, {"hosts": some})
            changed |= self._compare(connection, theirs, some)
        return changed

    def _compare_all(self, connection: sa.Connection) -> set[str]:
        theirs = connection.execute(self._by_host)
        return self._compare(connection, theirs, self._known.hosts)

    def _compare(
        self,
        connection: sa.Connection,
        theirs: Iterable[Sequence[Any]],
        hosts: Iterable[str],
    ) -> set[str]:
        """Read the instances of the hosts whose checksum differs from the known one.

        Parameters
        ----------
        theirs : iterable of row
            The database's checksums of these hosts, and perhaps of others.
        """
        sums = {host: tuple(map(int, its)) for *its, host in theirs}
        known = self._known
        differing = {
            host
            for host in sums.keys() | set(hosts)
            if not known.matches(host, sums.get(host))
        }
        changed: set[str] = set()
        for some in chunks(sorted(differing)):
            before = known.ids_on(set(some))
            rows = unpacked(connection, self._on_hosts, {"hosts": some})
            changed |= self._update_known(rows)
            changed |= self._reread(
                connection, set(before).difference(row[0] for row in rows)
            )
        return changed


def chunks(values: Iterable[T]) -> Iterator[list[T]]:
    """Yield the values in lists that fit one statement."""
    iterator = iter(values)
    while some := list(itertools.islice(iterator, _CHUNK)):
        yield some
