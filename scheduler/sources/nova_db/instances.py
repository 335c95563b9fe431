# SPDX-License-Identifier: Apache-2.0
"""Which instances are on which service host of a cell, and what changed of that."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from .packing import packed, unpacked
from .residents import Residents
from .schema import Moment, instances, microseconds
from .signatures import sum_queries
from .times import HOT_S, US_PER_S
from .window import Window

#: Instances take little of a row's width: so many are read whole at each look.
SMALL: Final = 256
#: Numbers in one statement: SQLite takes no more than 32,766 parameters.
_CHUNK: Final = 1000

#: Seconds within which each host's instances are compared, some hosts at each look:
#: what changed and kept its time, or was committed minutes late, is found so.
_ROUND_S: Final = 10.0
#: Seconds between two looks that compare: those before decisions may be many more.
_TURN_S: Final = 0.9

T = TypeVar("T")
#: The columns of a row that are read.
Row = Iterable[Any]


class Instances:
    """The rows of ``instances``: which are on which service host."""

    _c = instances.c
    _live = (_c.deleted == 0) & _c.host.is_not(None)
    #: When a row was written, twice, and whether it is deleted: that comes later and
    #: leaves the time as it was.
    _number = 2 * microseconds(_c.updated_at) + sa.case((_c.deleted == 0, 0), else_=1)
    _is_late = _c.updated_at >= sa.bindparam("since", type_=Moment)
    _state = packed(_c.id, _c.id, _c.uuid, _c.host, _c.deleted, _number)
    _every = _state.where(sa.or_(_live, _is_late))
    _late = _state.where(_is_late)
    _by_id = _state.where(_c.id.in_(sa.bindparam("ids", expanding=True)))
    _on_hosts = _state.where(_live, _c.host.in_(sa.bindparam("hosts", expanding=True)))
    sums = sum_queries(_c.id, _number, _is_late)
    _by_host = sa.select(
        sa.func.count(),
        sa.func.sum(_c.id),
        sa.func.sum(sa.cast(_c.id, sa.BigInteger) * sa.cast(_c.id, sa.BigInteger)),
        _c.host,
    ).where(_live).group_by(_c.host)  # fmt: skip
    #: Without the squares, which take as long again.
    _of_hosts = (
        sa.select(sa.func.count(), sa.func.sum(_c.id), _c.host)
        .where(_live, _c.host.in_(sa.bindparam("hosts", expanding=True)))
        .group_by(_c.host)
    )

    def __init__(self) -> None:
        self._residents = Residents()
        self._window = Window()
        self._is_read = False
        #: Hosts whose turn to be compared is yet to come, and when the last ones' was.
        self._turns: list[str] = []
        self._n_turns = 0
        self._turned_at = 0.0

    @property
    def is_small(self) -> bool:
        """Whether the table is read whole at each look."""
        return len(self._residents) <= SMALL

    def begin(self, now: float) -> dict[str, int]:
        """Begin a look; return the values that `sums` needs."""
        self._window.begin(now)
        return {"since": self._window.since_us}

    def look(
        self,
        connection: sa.Connection,
        now: float,
        *,
        in_full: bool,
        total: Sequence[Any] | None = None,
        hosts: Callable[[], Iterable[str]] = tuple,
    ) -> dict[str, frozenset[str]]:
        """Return what changed since the last time, once it began; see `Nodes.look`.

        Parameters
        ----------
        hosts : callable
            Returns hosts that may have instances, besides those that are known to.
        """
        if not self._is_read or self.is_small:
            changed = self._whole(connection, now)
        else:
            changed = self._changed(connection, now, total)
            if in_full:
                changed |= self._compare_all(connection)
            else:
                changed |= self._compare_some(connection, now, hosts)
        every = self._residents.hosts if in_full else {}
        return {**every, **self._residents.of_hosts(changed)}

    def _whole(self, connection: sa.Connection, now: float) -> set[str]:
        self._is_read, self._turned_at = True, now
        latest = sa.select(sa.func.max(instances.c.updated_at)).where(
            instances.c.updated_at <= int(now * US_PER_S)
        )
        window = self._window
        window.clear()
        window.note_time(connection.execute(latest).scalar(), now)
        window.begin(now)
        rows = unpacked(connection, self._every, {"since": window.since_us})
        window.fill(((row[0], row[4]) for row in rows), now)
        gone = set(self._residents.ids).difference(row[0] for row in rows)
        return self._keep(rows) | self._residents.drop(gone)

    def _changed(
        self, connection: sa.Connection, now: float, total: Sequence[Any] | None
    ) -> set[str]:
        window = self._window
        asked = {"since": window.since_us}
        total = total or connection.execute(self.sums.total, asked).one()
        hosts: set[str] = set()
        again = window.again()
        if len(again) > max(SMALL, window.n_rows // 2):
            rows = unpacked(connection, self._late, asked)
            hosts |= self._take(rows, now)
            again = list(set(again).difference(row[0] for row in rows))
        for some in chunks(again):
            rows = unpacked(connection, self._by_id, {"ids": some})
            hosts |= self._take(rows, now)
        if not window.agrees(total) and window.n_rows > SMALL:
            newest = max(window.since_us, window.mark.us - int(HOT_S * US_PER_S))
            rows = unpacked(connection, self._late, {"since": newest})
            hosts |= self._take(rows, now)
        if not window.agrees(total):
            before = window.clear()
            rows = unpacked(connection, self._late, asked)
            hosts |= self._take(rows, now)
            # Rows that are there no more, or have an earlier time now.
            hosts |= self._follow(connection, before.difference(row[0] for row in rows))
        return hosts

    def _take(self, rows: Iterable[Row], now: float) -> set[str]:
        for row_id, _, _, _, number in rows:
            if number is not None:
                self._window.note(row_id, number, now)
        return self._keep(rows)

    def _keep(self, rows: Iterable[Row]) -> set[str]:
        """Return the hosts whose instances change by these rows."""
        there: dict[int, tuple[str, str]] = {}
        gone: list[int] = []
        intern = sys.intern  # one object for a host's name
        for row_id, uuid, host, deleted, _ in rows:
            if deleted == 0 and host is not None:
                there[row_id] = (uuid, intern(host))
            else:
                gone.append(row_id)
        return self._residents.put(there) | self._residents.drop(gone)

    def _follow(self, connection: sa.Connection, ids: Iterable[int]) -> set[str]:
        """Read rows by their ids; those that are not there are gone."""
        hosts: set[str] = set()
        for some in chunks(ids):
            rows = unpacked(connection, self._by_id, {"ids": some})
            gone = set(some).difference(row[0] for row in rows)
            hosts |= self._keep(rows) | self._residents.drop(gone)
        return hosts

    def _compare_some(
        self,
        connection: sa.Connection,
        now: float,
        hosts: Callable[[], Iterable[str]],
    ) -> set[str]:
        """Compare the hosts whose turn it is, each within `_ROUND_S`."""
        passed_s = abs(now - self._turned_at)
        if passed_s < _TURN_S:
            return set()
        self._turned_at = now
        if not self._turns:
            self._turns = sorted(self._residents.hosts.keys() | set(hosts()))
            self._n_turns = len(self._turns)
        n_due = math.ceil(self._n_turns * min(1.0, passed_s / _ROUND_S))
        due, self._turns = self._turns[:n_due], self._turns[n_due:]
        changed: set[str] = set()
        for some in chunks(due):
            theirs = connection.execute(self._of_hosts, {"hosts": some})
            changed |= self._compare(connection, theirs, some)
        return changed

    def _compare_all(self, connection: sa.Connection) -> set[str]:
        theirs = connection.execute(self._by_host)
        return self._compare(connection, theirs, self._residents.hosts)

    def _compare(
        self,
        connection: sa.Connection,
        theirs: Iterable[Sequence[Any]],
        hosts: Iterable[str],
    ) -> set[str]:
        """Read the instances of hosts again that have others than those known.

        Parameters
        ----------
        theirs : iterable of row
            What the database has of these hosts, and perhaps of more.
        """
        sums = {host: tuple(map(int, its)) for *its, host in theirs}
        known = self._residents
        differing = {
            host
            for host in sums.keys() | set(hosts)
            if not known.agrees(host, sums.get(host))
        }
        changed: set[str] = set()
        for some in chunks(sorted(differing)):
            before = known.ids_on(set(some))
            rows = unpacked(connection, self._on_hosts, {"hosts": some})
            changed |= self._keep(rows)
            changed |= self._follow(
                connection, set(before).difference(row[0] for row in rows)
            )
        return changed


def chunks(values: Iterable[T]) -> Iterator[list[T]]:
    """Yield the values in lists that fit one statement."""
    iterator = iter(values)
    while some := list(itertools.islice(iterator, _CHUNK)):
        yield some
