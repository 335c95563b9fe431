# SPDX-License-Identifier: Apache-2.0
"""A write-behind cache: reported state is written to the store in batches."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from ...database import StoreUnavailable, StoreUnusable
from .hosts import ReportedHosts
from .store import HostStore

LOG = logging.getLogger(__name__)

#: Seconds between batches; what was reported since the last one is lost by a kill.
_INTERVAL_S: Final = 1.0
#: Seconds within which hosts that an operator has disabled get no more instances.
_DISABLED_EVERY_S: Final = 3.0
#: Longest backoff in seconds while the store is unavailable.
_MAX_BACKOFF_S: Final = 30.0
#: Seconds that `stop` waits for a write in progress.
_STOP_S: Final = 15.0
#: Hosts that are copied at a time: reports wait for the lock during a copy.
_CHUNK: Final = 600


class WriteBehind:
    """Keep a store up to date; of several states of a node, only the last is written.

    It remembers at most the UUID of each node, however long the store is unavailable.
    """

    def __init__(self, store: HostStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._deleted: set[str] = set()
        self._is_open = False
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._wait_s = _INTERVAL_S
        self._disabled_due = 0.0
        #: Why the store cannot be used; "" while it works.
        self.failure = ""
        #: Since when, seconds since the epoch.
        self.failed_since = 0.0

    def mark_changed(self, node_uuids: Iterable[str]) -> None:
        """Schedule nodes to be written."""
        with self._lock:
            self._changed.update(node_uuids)

    def mark_deleted(self, node_uuids: Iterable[str]) -> None:
        """Schedule nodes to be deleted."""
        with self._lock:
            self._deleted.update(node_uuids)

    def open(self, hosts: ReportedHosts, now: float) -> None:
        """Create the tables, and restore the stored hosts.

        If the store is unavailable, a warning is logged and it is opened later.

        Raises
        ------
        StoreUnusable
            The store cannot be used until an operator changes something.
        """
        if error := self._error_of(lambda: self._open(hosts)):
            if isinstance(error, StoreUnusable):
                raise error
            self._mark_failed(error, now)

    def _open(self, hosts: ReportedHosts) -> None:
        self._store.upgrade()
        hosts.set_disabled(self._store.disabled_hosts())
        count = hosts.restore(self._store.load())
        self._is_open = True
        LOG.info("%d hosts restored from the store %s", count, self._store.name)

    def start(self, hosts: ReportedHosts) -> None:
        """Start the thread that writes."""
        self._thread = threading.Thread(
            target=self._run, args=(hosts,), name="moorage-push-store", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Write the remaining changes if the store answers, and stop."""
        self._is_stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
            if self._thread.is_alive():
                LOG.warning("The store %s does not stop in time", self._store.name)
                return
        self._store.close()

    def retry_now(self) -> None:
        """Retry an unavailable store without waiting for the backoff."""
        self._wake.set()

    def _run(self, hosts: ReportedHosts) -> None:
        while True:
            self._wake.wait(self._wait_s)
            self._wake.clear()
            is_last = self._is_stopping
            self.flush(hosts)
            if is_last:
                return
            self._read_disabled(hosts)

    def _read_disabled(self, hosts: ReportedHosts) -> None:
        """Read which hosts an operator has disabled, some seconds after the last time.

        An unavailable store is logged when it is written to.
        """
        if self.failure or time.monotonic() < self._disabled_due:
            return
        self._disabled_due = time.monotonic() + _DISABLED_EVERY_S
        self._error_of(lambda: hosts.set_disabled(self._store.disabled_hosts()))

    def flush(self, hosts: ReportedHosts) -> None:
        """Write all changes; what cannot be written is retried later."""
        with self._lock:
            self._changed, changed = set(), self._changed
            self._deleted, deleted = set(), self._deleted
        if not changed and not deleted and not self.failure:
            return

        def update() -> None:
            if not self._is_open:
                self._open(hosts)
            self._delete(hosts, deleted)
            self._write(hosts, changed)

        error = self._error_of(update)
        if error is None:
            self._mark_recovered()
            return
        with self._lock:
            self._changed |= changed
            self._deleted |= deleted
        self._mark_failed(error, hosts.now())

    @staticmethod
    def _error_of(work: Callable[[], object]) -> StoreUnavailable | None:
        # A line logged inside of `except` has the error repeated at its end.
        try:
            work()
        except StoreUnavailable as e:
            return e
        return None

    def _write(self, hosts: ReportedHosts, changed: set[str]) -> None:
        remaining = iter(list(changed))
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            copies = hosts.snapshot(chunk)
            self._store.write(copies)
            hosts.mark_stored(copies)
            changed.difference_update(chunk)

    def _delete(self, hosts: ReportedHosts, deleted: set[str]) -> None:
        if deleted:
            known = hosts.snapshot(deleted).keys()
            self._store.delete(deleted - known, hosts.forget_cutoff())
            deleted.clear()

    def _mark_failed(self, error: StoreUnavailable, now: float) -> None:
        if not self.failure:
            self.failed_since = now
            LOG.warning(
                "The store of hosts cannot be used: %s Scheduling continues; the store "
                "is retried, and hosts are written once it answers.",
                error,
            )
        self.failure = str(error)
        self._wait_s = min(2 * self._wait_s, _MAX_BACKOFF_S)

    def _mark_recovered(self) -> None:
        if self.failure:
            LOG.info("The store %s answers again", self._store.name)
        self.failure, self._wait_s = "", _INTERVAL_S
