# SPDX-License-Identifier: Apache-2.0
"""Write the state of hosts and their aggregates to the store in the background."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from ...background_writer import BackgroundWriter
from ...clock import utc_text
from ...database import StoreUnavailable, StoreUnusable
from ..reported.hosts import ReportedHosts
from .aggregates import StoredAggregates
from .store import HostStore

LOG = logging.getLogger(__name__)

#: Seconds between reads of the hosts that an operator has disabled, and of the
#: aggregates that other schedulers received.
_READ_EVERY_S: Final = 3.0
#: Why zones and isolation by aggregates do not hold.
NO_AGGREGATES: Final = (
    "No host aggregate is known: all hosts are in the default availability "
    "zone, and no isolation by aggregates applies. Send all aggregates once "
    "(update_aggregates)"
)
#: Hosts that are copied at a time: reports wait for the lock during a copy.
_CHUNK: Final = 600


class WriteBehind(BackgroundWriter):
    """Keep a store up to date; of several states of a node, only the last is written.

    While the store is unavailable, only the UUIDs of changed nodes are remembered.
    """

    def __init__(
        self,
        store: HostStore,
        aggregates: StoredAggregates,
        clock: Callable[[], float],
    ) -> None:
        super().__init__("hosts", store.close, clock=clock)
        self._store = store
        self._aggregates = aggregates
        self._hosts: ReportedHosts | None = None
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._deleted: set[str] = set()
        self._is_open = False
        self._read_due = 0.0

    def mark_changed(self, node_uuids: Iterable[str]) -> None:
        """Schedule nodes to be written."""
        with self._lock:
            self._changed.update(node_uuids)

    def mark_deleted(self, node_uuids: Iterable[str]) -> None:
        """Schedule nodes to be deleted."""
        with self._lock:
            self._deleted.update(node_uuids)

    def open(self, hosts: ReportedHosts) -> None:
        """Create the tables, and restore the stored hosts and aggregates.

        If the store is unavailable, a warning is logged and the store is opened later.

        Raises
        ------
        StoreUnusable
            The store cannot be used until an operator changes something.
        """
        self._hosts = hosts
        self.prepare(lambda: self._open(hosts), StoreUnusable)

    def _open(self, hosts: ReportedHosts) -> None:
        self._store.upgrade()
        hosts.set_disabled(self._store.disabled_hosts())
        count = hosts.restore(self._store.load())
        self._is_open = True
        LOG.info("%d hosts restored from the store %s", count, self._store.name)
        self._restore_aggregates()

    def _restore_aggregates(self) -> None:
        self._aggregates.apply(self._store.load_aggregates({}))
        if len(self._aggregates):
            newest = max(self._aggregates.received_at.values())
            LOG.info(
                "%d aggregates restored from the store, the newest of %s; what was "
                "changed since, while no scheduler ran, has to be sent again",
                len(self._aggregates), utc_text(newest),
            )  # fmt: skip
        else:
            LOG.warning("%s", NO_AGGREGATES)

    def stop(self) -> None:
        """Write the remaining changes if the store answers, and stop."""
        super().stop()
        self._store.close()

    def each_interval(self) -> None:
        """Read what an operator and other schedulers wrote, every few seconds.

        These are disabled hosts and aggregates. If the store is unavailable, nothing is
        logged here, but by the next attempt to write.
        """
        self._aggregates.note_changes()
        if self.failure or self._hosts is None or time.monotonic() < self._read_due:
            return
        self._read_due = time.monotonic() + _READ_EVERY_S
        with contextlib.suppress(StoreUnavailable):
            self._hosts.set_disabled(self._store.disabled_hosts())
            known = self._aggregates.received_at
            self._aggregates.apply(self._store.load_aggregates(known))

    def write(self) -> None:
        """Write all changes."""
        with self._lock:
            self._changed, changed = set(), self._changed
            self._deleted, deleted = set(), self._deleted
        self._aggregates.note_changes()
        aggregates = self._aggregates.unsaved()
        if self._hosts is None or not (
            changed or deleted or aggregates or self.failure
        ):
            return
        try:
            if not self._is_open:
                self._open(self._hosts)
            self._delete(self._hosts, deleted)
            self._write(self._hosts, changed)
            self._store.write_aggregates(aggregates)
            self._aggregates.mark_saved(aggregates)
        finally:
            # Schedule again what could not be written.
            with self._lock:
                self._changed |= changed
                self._deleted |= deleted

    def _write(self, hosts: ReportedHosts, changed: set[str]) -> None:
        remaining = iter(list(changed))
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            copies = hosts.snapshot(chunk)
            self._store.write(copies)
            hosts.mark_stored(copies)
            changed.difference_update(chunk)

    def _delete(self, hosts: ReportedHosts, deleted: set[str]) -> None:
        if deleted:
            reported_nodes = hosts.snapshot(deleted).keys()
            self._store.delete(deleted - reported_nodes, hosts.forget_cutoff())
            deleted.clear()
