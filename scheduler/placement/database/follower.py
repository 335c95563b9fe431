# SPDX-License-Identifier: Apache-2.0
"""Fill a table of resource providers from Placement's database, and follow it.

An own claim is added to the table when it is granted. A reading that began before that
may lack the claim: it does not replace the usage of the claim's providers, which are
read again. A reading that began later has the claim, and replaces the sum. If a reading
had the claim before it was counted here, usage is too high until the next reading: the
provider seems to have less room than it has, never more.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from ...clock import now_s
from ...errors import ConfigurationError, DatabaseUnavailable
from ...failures import Failure
from ...polling.polled_database import Apply, PolledDatabase, Read, SharedRefresh
from ...waiting import Spawner, SystemWaiter, Task, ThreadSpawner, Waiter
from ..candidates_source import FollowingStats
from ..providers import ProviderRecord, ProviderTable, ProviderView
from .changes import ChangeReader, ProviderChanges
from .engines import OPTION, allow_long_sets

LOG = logging.getLogger(__name__)

#: Seconds between two polls.
POLL_INTERVAL_S: Final = 1.0
#: Seconds in which all providers are compared; below the 60 s that are promised.
ROUND_S: Final = 50.0
#: Seconds between evidence and the reading that it causes: evidence comes in groups.
_GATHER_S: Final = 0.05
#: Maximum seconds that a caller of `poll` or `refresh` waits, and a caller of `load`.
#: The driver has its own timeout for a statement. A result that is late is used, too.
_MAX_WAIT_S: Final = 1.0
_LOAD_S: Final = 600.0
_STOP_S: Final = 5.0
_REMEDY: Final = "Check that it is Placement's database, and grant SELECT on its tables"

#: What a claim allocates: {provider UUID: {resource class: amount}}.
ProviderAmounts = Mapping[str, Mapping[str, int]]
#: Runs work in the thread that may use the database, and returns when it is done.
RunWork = Callable[[Callable[[], None]], None]


class _PlacementDatabase(PolledDatabase):
    """Placement's database, whose reader is replaced after each failure."""

    may_be_unavailable = False
    #: Short: Placement is queried instead until the database is read again.
    max_backoff_s = 10.0

    def __init__(
        self,
        engine: sa.Engine,
        lock: threading.RLock,
        clock: Callable[[], float],
        restore: Callable[[], None],
    ) -> None:
        super().__init__("Placement's database", lambda: engine, lock, clock)
        self._restore = restore
        self.reader = ChangeReader({})
        #: {id: UUID} of the providers that are in the table.
        self.known: Mapping[int, str] = {}

    def reset(self) -> None:
        """Compare all providers with the table at the next attempt."""
        self.reader = ChangeReader(self.known)
        self._restore()


class ProviderFollower:
    """A table of resource providers that follows Placement's database; thread-safe.

    Parameters
    ----------
    engine : sqlalchemy.Engine
        The engine of Placement's database, which is only read.
    table : ProviderTable, optional
        A new one by default. Nothing else may write to it.
    timeout_s : float
        Seconds for a reading, after which the database counts as unavailable.
    run_work : callable, optional
        By default, work is run in the caller's thread.

    Attributes
    ----------
    table : ProviderTable
    revision : int
        Rises with each change of the table.
    """

    def __init__(
        self,
        engine: sa.Engine,
        table: ProviderTable | None = None,
        *,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = now_s,
        waiter: Waiter | None = None,
        spawner: Spawner | None = None,
        run_work: RunWork | None = None,
    ) -> None:
        allow_long_sets(engine)
        is_mysql = engine.dialect.name in ("mysql", "mariadb")
        self.table = ProviderTable(is_mysql=is_mysql) if table is None else table
        self.revision = 0
        self._timeout_s = timeout_s
        self._waiter = waiter or SystemWaiter()
        self._spawner = spawner or ThreadSpawner()
        self._owns_engine = run_work is None
        self._run_work: RunWork = run_work or (lambda work: work())
        self._lock = threading.RLock()
        self._database = _PlacementDatabase(engine, self._lock, clock, self._restore)
        self._polls, self._refreshes = SharedRefresh(), SharedRefresh()
        #: UUIDs of the providers to be read, and of the providers that are being read.
        self._pending: set[str] = set()
        self._taken: set[str] = set()
        #: A number that each reading and each counted claim increases, and the number
        #: at which each provider's usage was last counted.
        self._order = 0
        self._counted: dict[str, int] = {}
        #: The `_order` of the last successful poll, and of the last successful reading.
        self._polled = self._read = 0
        self._polled_at: float | None = None
        self._n_read = self._n_failed = 0
        self._read_s = 0.0
        self._stopping = self._spawner.event()
        self._evidence = self._spawner.event()
        self._thread: Task | None = None

    # -- polling -----------------------------------------------------------------------

    def load(self) -> None:
        """Read all providers, and disconnect, so that the process may be forked.

        Raises
        ------
        DatabaseUnavailable
            The database does not answer; polls load the table once it does.
        ConfigurationError
            The database cannot be read, or its schema is unknown.
        """
        try:
            self._run(self._poll_reading, _LOAD_S, is_forced=True)
        finally:
            self._disconnect()
        with self._lock:
            if self._polled_at is None:
                is_unreachable = self._database.is_unreachable
                raise (DatabaseUnavailable if is_unreachable else ConfigurationError)(
                    self._failure()
                )

    def _disconnect(self) -> None:
        self._abandon_reading()  # it must not write to a forked process's table
        if self._owns_engine:
            self._database.engine().dispose()

    def _abandon_reading(self) -> None:
        """Use no result of the running attempt, and let it return its connection.

        The engine closes only connections that were returned.
        """
        running = self._database.attempt
        self._database.abandon()
        if running is not None:
            running.wait_until_disconnected(_STOP_S)

    def _failure(self) -> str:
        reason = self._database.reason
        if reason.startswith(OPTION):  # it describes an unknown schema
            return f"{reason}."
        url = self._database.engine().url.set(query={})
        return f"{Failure.of(OPTION, url, reason, _REMEDY)}"

    def start(self) -> None:
        """Poll in a thread from now on."""
        self._stopping.clear()
        self._thread = self._spawner.spawn(self._poll_loop, name="moorage providers")

    def stop(self) -> None:
        """Stop polling."""
        self._stopping.set()
        self._evidence.set()
        self._abandon_reading()
        if self._thread is not None:
            self._thread.join(_STOP_S)
            self._thread = None
        self._disconnect()

    def age_s(self) -> float:
        """Return the seconds since the last successful poll began; inf: none has."""
        polled_at = self._polled_at
        return math.inf if polled_at is None else self._waiter.monotonic() - polled_at

    def stats(self) -> FollowingStats:
        """Return the age of the table, and counts of readings."""
        with self._lock:
            return FollowingStats(
                self.age_s(), self._n_read, self._n_failed, self._read_s
            )

    def poll(self) -> bool:
        """Read what changed; return whether that was done within a second.

        Concurrent callers share a poll that begins after their calls.
        """
        order_at_call = self._order
        self._polls.run(lambda: self._run(self._poll_reading, _MAX_WAIT_S))
        return self._polled > order_at_call

    def refresh(self, provider_uuids: Collection[str]) -> bool:
        """Read these providers now; return whether that was done within a second.

        Concurrent callers share a reading that begins after their calls.
        """
        order_at_call = self._order
        with self._lock:
            self._pending.update(provider_uuids)
        self._refreshes.run(lambda: self._run(self._refresh_reading, _MAX_WAIT_S))
        return self._read > order_at_call

    def mark_changed(self, provider_uuids: Iterable[str]) -> None:
        """Read these providers soon, in the background."""
        with self._lock:
            self._pending.update(provider_uuids)
        self._evidence.set()

    def _poll_loop(self) -> None:
        next_poll = self._waiter.monotonic()
        while not self._stopping.is_set():
            try:
                if self._waiter.monotonic() >= next_poll:
                    next_poll = self._waiter.monotonic() + POLL_INTERVAL_S
                    # Not shared: callers of `poll` would wait for as long.
                    self._run(self._poll_reading, self._timeout_s)
                elif self._pending:
                    self.refresh(())
            except Exception:  # the thread must survive; the next poll may succeed
                LOG.exception("Polling Placement's database failed; retrying")
            if self._stopping.wait(_GATHER_S):
                return
            self._evidence.wait(max(0.0, next_poll - self._waiter.monotonic()))
            self._evidence.clear()

    # -- own claims --------------------------------------------------------------------

    def count_claim(self, requests: Iterable[ProviderAmounts]) -> None:
        """Add what claims allocate, once they are granted.

        The claim of another scheduler is counted, too, unless the table was read after
        the claim was granted: then its providers are passed to `mark_changed`.
        """
        self._count(requests, 1)

    def release(self, requests: Iterable[ProviderAmounts]) -> None:
        """Subtract what was released, once Placement has answered."""
        self._count(requests, -1)

    def _count(self, requests: Iterable[ProviderAmounts], sign: int) -> None:
        amounts: defaultdict[str, defaultdict[str, int]] = defaultdict(
            lambda: defaultdict(int)
        )
        for request in requests:
            for uuid, resources in request.items():
                for name, amount in resources.items():
                    amounts[name][uuid] += sign * amount
        uuids = {uuid for by_uuid in amounts.values() for uuid in by_uuid}
        with self._lock:
            self._order += 1
            self._counted.update(dict.fromkeys(uuids, self._order))
            self._pending |= uuids
            self.table.add_used(amounts)
            self.revision += 1

    # -- reading -----------------------------------------------------------------------

    def _run(
        self, reading: Callable[[], Read], wait_s: float, *, is_forced: bool = False
    ) -> None:
        self._run_work(lambda: self._attempt(reading, wait_s, is_forced=is_forced))

    def _attempt(
        self, reading: Callable[[], Read], wait_s: float, *, is_forced: bool
    ) -> None:
        """Wait for a reading in progress; then start one, and wait for it."""
        deadline = self._waiter.monotonic() + wait_s
        while True:
            attempt = self._database.start_attempt(reading, is_forced=is_forced)
            running = attempt or self._database.attempt
            if running is None or running.is_overdue:
                return  # the database is unavailable, and not retried yet
            if not running.wait(deadline - self._waiter.monotonic()):
                self._database.check_timeout(self._timeout_s)
                return
            if attempt is not None:
                return

    def _begin(self) -> tuple[int, set[str], ChangeReader, ProviderView]:
        """Start reading the pending providers; called with the lock held."""
        self._order += 1
        self._taken, self._pending = self._pending, set()
        return self._order, self._taken, self._database.reader, self.table.view()

    def _restore(self) -> None:
        """Count a failed reading; its providers become pending again."""
        self._n_failed += 1
        self._pending |= self._taken
        self._taken = set()

    def _poll_reading(self) -> Read:
        order, uuids, reader, view = self._begin()
        began = self._waiter.monotonic()
        elapsed_s = began - (self._polled_at if self._polled_at is not None else began)

        def read(connection: sa.Connection, began_at: float) -> Apply:
            share = min(1.0, elapsed_s / ROUND_S)
            changes = reader.poll(connection, view, began_at, uuids=uuids, share=share)

            def apply() -> None:
                self._apply(changes, order, began)
                self._polled = self._read = order
                self._polled_at = began

            return apply

        return read

    def _refresh_reading(self) -> Read:
        order, uuids, reader, view = self._begin()
        began = self._waiter.monotonic()

        def read(connection: sa.Connection, began_at: float) -> Apply:
            changes = reader.refresh(connection, view, uuids)
            if changes is None:
                changes = reader.poll(connection, view, began_at, uuids=uuids, share=0)

            def apply() -> None:
                self._apply(changes, order, began)
                self._read = order

            return apply

        return read

    # -- changes, with the lock held ---------------------------------------------------

    def _apply(self, changes: ProviderChanges, order: int, began: float) -> None:
        self._taken = set()
        self._n_read += 1
        self._read_s += self._waiter.monotonic() - began
        is_changed = changes.names is not None
        if changes.columns is not None:
            self._load(changes, order)
            is_changed = True
        elif changes.records or changes.removed:
            is_changed |= self._put(changes, order)
        if changes.names is not None:
            self.table.set_names(
                traits=changes.names.traits.by_id.values(),
                resource_classes=changes.names.classes.by_id.values(),
            )
        self._database.known = self._database.reader.uuids
        self._counted = {
            uuid: counted_at
            for uuid, counted_at in self._counted.items()
            if counted_at > order
        }
        self.revision += is_changed

    def _load(self, changes: ProviderChanges, order: int) -> None:
        """Replace the table, except usage that was counted since the reading began."""
        assert changes.columns is not None
        state = self.table.view().state
        counted_later = [
            uuid for uuid, counted_at in self._counted.items() if counted_at > order
        ]
        kept_records = [
            record for uuid in counted_later if (record := state.record(uuid))
        ]
        self.table.load(changes.columns)
        state = self.table.view().state
        loaded = {record.uuid: state.record(record.uuid) for record in kept_records}
        self.table.put(
            replace(new_record, used=record.used)
            for record in kept_records
            if (new_record := loaded[record.uuid]) is not None
        )
        self._pending.update(counted_later)

    def _put(self, changes: ProviderChanges, order: int) -> bool:
        """Write changed providers to the table; return whether it has changed."""
        state = self.table.view().state
        put_records: list[ProviderRecord] = []
        used: defaultdict[str, dict[str, int]] = defaultdict(dict)
        generations: dict[str, int] = {}
        for record in changes.records:
            table_record = state.record(record.uuid)
            if table_record is not None and self._counted.get(record.uuid, 0) > order:
                self._pending.add(record.uuid)
                record = replace(record, used=table_record.used)
            if record == table_record:
                continue
            if table_record is None or not _has_same_shape(record, table_record):
                put_records.append(record)
                continue
            generations[record.uuid] = record.generation
            for name in record.used.keys() | table_record.used.keys():
                used[name][record.uuid] = record.used.get(name, 0)
        if put_records:
            self.table.put(put_records)
        if generations:
            self.table.update(used=used, generations=generations)
        removed = [uuid for uuid in changes.removed if state.trees.find(uuid) >= 0]
        if removed:
            self.table.remove(removed)
        return bool(put_records or generations or removed)


def _has_same_shape(one: ProviderRecord, other: ProviderRecord) -> bool:
    """Return whether two records differ at most in usage and generation."""
    return replace(one, used=other.used, generation=other.generation) == other
