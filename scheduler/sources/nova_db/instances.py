# SPDX-License-Identifier: Apache-2.0
"""Which instances are on which service host of a cell, and what changed of that."""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from .packing import packed, unpacked
from .schema import Moment, instances, microseconds
from .signatures import sum_queries
from .times import HOT_S, US_PER_S
from .window import Window

#: Instances take little of a row's width: so many are read whole at each look.
SMALL: Final = 256
#: Numbers in one statement: SQLite takes no more than 32,766 parameters.
_CHUNK: Final = 1000

_NO_UUIDS: Final[frozenset[str]] = frozenset()

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
        _c.host,
        sa.func.count(),
        sa.func.sum(_c.id),
        sa.func.sum(sa.cast(_c.id, sa.BigInteger) * sa.cast(_c.id, sa.BigInteger)),
    ).where(_live).group_by(_c.host)  # fmt: skip

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, str]] = {}
        self._of_host: dict[str, frozenset[str]] = {}
        self._window = Window()
        self._is_read = False

    @property
    def is_small(self) -> bool:
        """Whether the table is read whole at each look."""
        return len(self._known) <= SMALL

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
    ) -> dict[str, frozenset[str]]:
        """Return what changed since the last time, once it began; see `Nodes.look`."""
        if not self._is_read or self.is_small:
            hosts = self._whole(connection, now)
        else:
            hosts = self._changed(connection, now, total)
            if in_full:
                hosts |= self._compare(connection)
        return {**(self._of_host if in_full else {}), **self._told(hosts)}

    def _told(self, hosts: Iterable[str]) -> dict[str, frozenset[str]]:
        return {host: self._of_host.get(host, frozenset()) for host in hosts}

    def _whole(self, connection: sa.Connection, now: float) -> set[str]:
        self._is_read = True
        latest = sa.select(sa.func.max(instances.c.updated_at)).where(
            instances.c.updated_at <= int(now * US_PER_S)
        )
        window = self._window
        window.clear()
        window.note_time(connection.execute(latest).scalar(), now)
        window.begin(now)
        rows = unpacked(connection, self._every, {"since": window.since_us})
        window.fill(((row[0], row[4]) for row in rows), now)
        gone = self._known.keys() - {row[0] for row in rows} if self._known else ()
        return self._keep(rows) | self._drop(gone)

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
            window.clear()
            hosts |= self._take(unpacked(connection, self._late, asked), now)
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
            rows = unpacked(connection, self._on_hosts, {"hosts": some})
            there, here = {row[0] for row in rows}, set(some)
            before = [i for i, (_, host) in self._known.items() if host in here]
            hosts |= self._drop([i for i in before if i not in there])
            hosts |= self._keep(rows)
        return hosts

    def _put(self, rows: Mapping[int, tuple[str, str]]) -> set[str]:
        """Return the hosts whose instances change by that."""
        moves = _Moves()
        come, known = moves.come, self._known
        for row_id, now in rows.items():
            before = known.get(row_id)
            if before == now:
                continue
            if before is not None:
                moves.gone[before[1]].add(before[0])
            come[now[1]].add(now[0])
        known.update(rows)
        return moves.make(self._of_host)

    def _drop(self, ids: Iterable[int]) -> set[str]:
        moves = _Moves()
        for row_id in ids:
            before = self._known.pop(row_id, None)
            if before is not None:
                moves.gone[before[1]].add(before[0])
        return moves.make(self._of_host)


class _Moves:
    """Instances that leave hosts and come to others, by host."""

    def __init__(self) -> None:
        self.gone: defaultdict[str, set[str]] = defaultdict(set)
        self.come: defaultdict[str, set[str]] = defaultdict(set)

    def make(self, of_host: dict[str, frozenset[str]]) -> set[str]:
        hosts = self.gone.keys() | self.come.keys()
        gone, come = self.gone.get, self.come.get
        for host in hosts:
            before = of_host.get(host, _NO_UUIDS)
            left = before - gone(host, _NO_UUIDS) | come(host, _NO_UUIDS)
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
