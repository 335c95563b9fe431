# SPDX-License-Identifier: Apache-2.0
"""Polling one cell's database for what changed since the last poll.

A poll reads one snapshot where the database supports it. Where it does not, instances
are read before compute nodes, so that a node's row is never older than the instances
read with it.

There are too many instances for sums over all of them at each poll. A poll covers the
recently written rows, by nova's index on ``updated_at``. An instance may be committed
late, or be deleted without a new time: every ten seconds, the instances are also
compared host by host, which finds such changes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import sqlalchemy as sa

from ...hosts import Launch, Launches
from ...polling.polled_table import (
    ChangedRows,
    PolledTable,
    TableQueries,
    checksum_of,
    chunks,
)
from ...polling.times import US_PER_S, microseconds
from .nodes import Node, Nodes
from .reading import Ratios
from .schema import instances
from .services import ComputeService, polled_services, read_services

#: Seconds by which a row may be committed after another row with a later time, plus the
#: skew of conductors' clocks; the comparison of hosts finds rows committed even later.
_WINDOW_S: Final = 60.0
#: Seconds between comparisons of all hosts.
_COMPARE_S: Final = 10.0

#: What `read_launch` reads. An instance counts from its creation: nova writes another
#: launched_at at each resize.
LAUNCH_COLUMNS: Final = (
    microseconds(instances.c.created_at).label("created_us"),
    instances.c.project_id,
    instances.c.vcpus,
    instances.c.memory_mb,
    instances.c.image_ref,
)

_NO_UUIDS: Final[frozenset[str]] = frozenset()

_C: Final = instances.c
_LIVE: Final = (_C.deleted == 0) & _C.host.is_not(None)


#: Twice the row's time, plus 1 if the row is deleted: a deletion keeps the time.
_NUMBER: Final = 2 * microseconds(_C.updated_at) + sa.case(
    (_C.deleted == 0, 0), else_=1
)
_LOCATION: Final = (_C.uuid, _C.host, _C.deleted)
_QUERIES: Final = TableQueries.of(
    instances, _NUMBER, _LOCATION, _LIVE, is_windowed=True
)
_WITH_LAUNCHES: Final = TableQueries.of(
    instances,
    _NUMBER,
    (*_LOCATION, *LAUNCH_COLUMNS),
    _LIVE,
    is_windowed=True,
)
_ON_HOSTS: Final = _C.host.in_(sa.bindparam("hosts", expanding=True))
_ID: Final = sa.cast(_C.id, sa.BigInteger)
_BY_HOST: Final = (
    sa.select(_C.host, sa.func.count(), sa.func.sum(checksum_of(_ID, _ID)))
    .where(_LIVE)
    .group_by(_C.host)
)


class Instances:
    """Reads on which hosts the rows of a cell's ``instances`` have changed.

    Parameters
    ----------
    with_launches : bool
        Whether to read when instances were launched, too.
    """

    def __init__(self, *, with_launches: bool) -> None:
        queries = _WITH_LAUNCHES if with_launches else _QUERIES
        self._on_hosts = queries.every.where(_ON_HOSTS)
        self._table = PolledTable(queries, window_s=_WINDOW_S)
        self._with_launches = with_launches
        #: UUID, host and launch by row id, and UUIDs by host.
        self._known: dict[int, tuple[str, str, Launch | None]] = {}
        self._of_host: dict[str, frozenset[str]] = {}
        #: By UUID; an instance whose row lacks a value is missing.
        self._launch_of: dict[str, Launch] = {}
        self._compared_at: float | None = None

    @property
    def recently_written(self) -> set[str]:
        """The UUIDs of the instances whose rows have just changed."""
        ids = self._table.rows_to_reread
        return {self._known[row_id][0] for row_id in ids if row_id in self._known}

    def read_changes(
        self, connection: sa.Connection, now: float, *, in_full: bool
    ) -> Mapping[str, frozenset[str]]:
        """Return the UUIDs of all instances of the hosts where they changed, by host.

        Parameters
        ----------
        now : float
            When the poll began, seconds since the epoch.
        in_full : bool
            Compare all hosts, and return them all.
        """
        if self._compared_at is None:
            self._compared_at = now
            self._update(self._table.read(connection, now, in_full=True))
            return dict(self._of_host)
        changed = self._update(self._table.read(connection, now, in_full=False))
        # abs: a clock that was set back must not delay the comparison.
        if in_full or abs(now - self._compared_at) >= _COMPARE_S:
            self._compared_at = now
            changed |= self._compare(connection)
        hosts = changed | self._of_host.keys() if in_full else changed
        return {host: self._of_host.get(host, _NO_UUIDS) for host in hosts}

    def _update(self, rows: ChangedRows) -> set[str]:
        """Update the known instances; return the hosts where they changed."""
        departed: defaultdict[str, set[str]] = defaultdict(set)
        arrived: defaultdict[str, set[str]] = defaultdict(set)
        for row_id, row in rows.items():
            before = self._known.get(row_id)
            after = _location(row, with_launch=self._with_launches)
            if before == after:
                continue
            if before is not None:
                departed[before[1]].add(before[0])
                del self._known[row_id]
                self._launch_of.pop(before[0], None)
            if after is not None:
                arrived[after[1]].add(after[0])
                self._known[row_id] = after
                if after[2] is not None:
                    self._launch_of[after[0]] = after[2]
        changed = departed.keys() | arrived.keys()
        for host in changed:
            remaining = self._of_host.pop(host, _NO_UUIDS).difference(departed[host])
            if uuids := remaining | arrived[host]:
                self._of_host[host] = uuids
        return changed

    def _compare(self, connection: sa.Connection) -> set[str]:
        """Read the instances of the hosts whose number or checksum differs."""
        known: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for row_id, (_, host, _) in self._known.items():
            count, total = known[host]
            known[host] = count + 1, total + checksum_of(row_id, row_id)
        stored = {
            host: (count, int(total))
            for host, count, total in connection.execute(_BY_HOST)
        }
        hosts = stored.keys() | known.keys()
        differing = {host for host in hosts if stored.get(host) != known.get(host)}
        rows: ChangedRows = dict.fromkeys(self._ids_on(differing))
        for chunk in chunks(differing):
            instance_rows = connection.execute(self._on_hosts, {"hosts": chunk})
            rows.update((row.id, row) for row in instance_rows)
        return self._update(rows)

    def _ids_on(self, hosts: Collection[str]) -> Iterable[int]:
        return [i for i, (_, host, _) in self._known.items() if host in hosts]

    def launches(self, hosts: Iterable[str]) -> Mapping[str, Launches | None] | None:
        """Return the launches on hosts; None for a host: one is unknown.

        None: launches are not read.
        """
        if not self._with_launches:
            return None
        launches: dict[str, Launches | None] = {}
        for host in hosts:
            uuids = self._of_host.get(host, _NO_UUIDS)
            known = [self._launch_of[uuid] for uuid in uuids if uuid in self._launch_of]
            is_whole = len(known) == len(uuids)
            launches[host] = tuple(sorted(known)) if is_whole else None
        return launches


def _location(
    row: sa.Row[Any] | None, *, with_launch: bool
) -> tuple[str, str, Launch | None] | None:
    """Return an instance's UUID, host and launch; None: it is on no host."""
    if row is None or row.deleted or row.host is None:
        return None
    launch = read_launch(row) if with_launch else None
    return row.uuid, sys.intern(row.host), launch  # one object for equal names


def read_launch(row: sa.Row[Any]) -> Launch | None:
    """Return the launch in a row with `LAUNCH_COLUMNS`; None: a value is missing."""
    if None in (row.created_us, row.vcpus, row.memory_mb):
        return None
    return (
        row.created_us // US_PER_S,
        sys.intern(row.project_id or ""),
        row.vcpus,
        row.memory_mb,
        sys.intern(row.image_ref or ""),  # empty if volume-backed
    )


@dataclasses.dataclass(slots=True)
class CellChanges:
    """The changes that a poll of a cell found.

    Attributes
    ----------
    began_at : float
        When the poll began, seconds since the epoch.
    is_whole : bool
        Whether these are all rows of the cell, rather than the changed ones.
    nodes, services : mapping
        By id; None: deleted or not usable.
    instances : mapping
        The UUIDs of all instances of a service host, by host.
    recently_written : collection of str
        The UUIDs of the instances whose rows have just changed.
    launches : mapping or None
        The launches on each host of `instances`; see `Instances.launches`.
    """

    began_at: float
    is_whole: bool
    nodes: Mapping[int, Node | None]
    services: Mapping[int, ComputeService | None]
    instances: Mapping[str, frozenset[str]]
    recently_written: Collection[str] = ()
    launches: Mapping[str, Launches | None] | None = None


class CellReader:
    """Read one cell's database; used by one thread at a time.

    A reader must be replaced after a failure: what it read may not have been applied.
    """

    def __init__(
        self, cell_uuid: str, ratios: Ratios, *, with_launches: bool = False
    ) -> None:
        self._nodes = Nodes(cell_uuid, ratios)
        self._services = polled_services()
        self._instances = Instances(with_launches=with_launches)
        self._is_new = True

    @property
    def row_errors(self) -> tuple[str, ...]:
        """The errors of invalid rows."""
        return tuple(self._nodes.row_errors.values())

    def read(
        self, connection: sa.Connection, began_at: float, *, in_full: bool = False
    ) -> CellChanges:
        """Return what changed since the last call; the first call returns everything.

        Parameters
        ----------
        began_at : float
            Now, seconds since the epoch.
        in_full : bool
            Compare every row, even if its time and checksum are unchanged.
        """
        is_new, self._is_new = self._is_new, False
        in_full = in_full or is_new
        services = self._services.read(connection, began_at, in_full=in_full)
        instances = self._instances.read_changes(connection, began_at, in_full=in_full)
        return CellChanges(
            began_at=began_at,
            is_whole=is_new,
            nodes=self._nodes.read_changes(connection, began_at, in_full=in_full),
            services=read_services(services),
            instances=instances,
            recently_written=self._instances.recently_written,
            launches=self._instances.launches(instances),
        )
