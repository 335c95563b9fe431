# SPDX-License-Identifier: Apache-2.0
"""Fill a table of resource providers from Placement's database, and follow it.

Which of two usages counts: an own claim is added to the table when it is granted. A
reading that began before that may lack it, so it does not replace that provider's
usage, and the provider is read again. A reading that began later has it, and replaces
the sum. If a reading had the claim before it was counted here, usage is too high until
the next one: the provider seems to have less room than there is, never more.
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
#: The longest that a caller of `poll` and `refresh` waits, and that of `load`; a driver
#: has its own timeout for each statement. What is read later is used all the same.
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
        #: Of the providers that are in the table.
        self.known: Mapping[int, str] = {}

    def reset(self) -> None:
        """Compare everything at the next attempt."""
        self.reader = ChangeReader(self.known)
        self._restore()


class ProviderFollower:
    """A table of resource providers that follows Placement's database; thread-safe.

    Parameters
    ----------
    engine : sqlalchemy.Engine
        Of Placement's database, which is only read.
    table : ProviderTable, optional
        A new one by default. Nothing else may write to it.
    timeout_s : float
        Of a reading, after which the database counts as unavailable.
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
        #: Providers to be read, and those that are being read.
        self._pending: set[str] = set()
        self._taken: set[str] = set()
        #: The order of readings and counts: when each provider was last counted.
        self._order = 0
        self._counted: dict[str, int] = {}
        #: Of the last poll that succeeded, and of the last reading of any kind.
        self._polled = self._read = 0
        self._polled_at: float | None = None
        self._n_read = self._n_failed = 0
        self._read_s = 0.0
        self._stopping = self._spawner.event()
        self._evidence = self._spawner.event()
        self._thread: Task | None = None

    # -- polling -----------------------------------------------------------------------

    def load(self) -> None:
        """Read everything once, and disconnect: the process may be forked after.

        Raises
        ------
        DatabaseUnavailable
            It does not answer; polls load it once it does.
        ConfigurationError
            It cannot be read, or its schema is unknown.
        """
        try:
            self._run(self._poll_reading, _LOAD_S, is_forced=True)
        finally:
            self._disconnect()
        with self._lock:
            if self._polled_at is None:
                is_away = self._database.is_unreachable
                raise (DatabaseUnavailable if is_away else ConfigurationError)(
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
        if reason.startswith(OPTION):  # of an unknown schema
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
        """Return the seconds since the last successful poll began; inf: none did."""
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
        called = self._order
        self._polls.run(lambda: self._run(self._poll_reading, _MAX_WAIT_S))
        return self._polled > called

    def refresh(self, provider_uuids: Collection[str]) -> bool:
        """Read these providers now; return whether that was done within a second.

        Concurrent callers share a reading that begins after their calls.
        """
        called = self._order
        with self._lock:
            self._pending.update(provider_uuids)
        self._refreshes.run(lambda: self._run(self._refresh_reading, _MAX_WAIT_S))
        return self._read > called

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

        Claims of peers are counted too if the message is the first that is known of
        them; otherwise `mark_changed`.
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
        """Read once; wait for a reading that is in progress before that."""
        deadline = self._waiter.monotonic() + wait_s
        while True:
            attempt = self._database.start_attempt(reading, is_forced=is_forced)
            running = attempt or self._database.attempt
            if running is None or running.is_overdue:
                return  # it is unavailable, and not retried yet
            if not running.wait(deadline - self._waiter.monotonic()):
                self._database.check_timeout(self._timeout_s)
                return
            if attempt is not None:
                return

    def _begin(self) -> tuple[int, set[str], ChangeReader, ProviderView]:
        """Take what is to be read; called with the lock held."""
        self._order += 1
        self._taken, self._pending = self._pending, set()
        return self._order, self._taken, self._database.reader, self.table.view()

    def _restore(self) -> None:
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
        self._counted = {u: at for u, at in self._counted.items() if at > order}
        self.revision += is_changed

    def _load(self, changes: ProviderChanges, order: int) -> None:
        assert changes.columns is not None
        state = self.table.view().state
        later = [uuid for uuid, at in self._counted.items() if at > order]
        kept = [record for uuid in later if (record := state.record(uuid))]
        self.table.load(changes.columns)
        state = self.table.view().state
        loaded = {r.uuid: state.record(r.uuid) for r in kept}
        self.table.put(
            replace(now, used=record.used)
            for record in kept
            if (now := loaded[record.uuid]) is not None
        )
        self._pending.update(later)

    def _put(self, changes: ProviderChanges, order: int) -> bool:
        """Return whether the table has changed."""
        state = self.table.view().state
        put: list[ProviderRecord] = []
        used: defaultdict[str, dict[str, int]] = defaultdict(dict)
        generations: dict[str, int] = {}
        for record in changes.records:
            known = state.record(record.uuid)
            if known is not None and self._counted.get(record.uuid, 0) > order:
                self._pending.add(record.uuid)
                record = replace(record, used=known.used)
            if record == known:
                continue
            if known is None or not _has_same_shape(record, known):
                put.append(record)
                continue
            generations[record.uuid] = record.generation
            for name in record.used.keys() | known.used.keys():
                used[name][record.uuid] = record.used.get(name, 0)
        if put:
            self.table.put(put)
        if generations:
            self.table.update(used=used, generations=generations)
        removed = [uuid for uuid in changes.removed if state.trees.find(uuid) >= 0]
        if removed:
            self.table.remove(removed)
        return bool(put or generations or removed)


def _has_same_shape(one: ProviderRecord, other: ProviderRecord) -> bool:
    """Return whether two records differ at most in usage and generation."""
    return replace(one, used=other.used, generation=other.generation) == other
