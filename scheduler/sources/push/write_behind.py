# SPDX-License-Identifier: Apache-2.0
"""Write the reported state of hosts to their store in the background."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from ...background_writer import BackgroundWriter
from ...database import StoreUnavailable, StoreUnusable
from ..reported.hosts import ReportedHosts
from .store import HostStore

LOG = logging.getLogger(__name__)

#: Seconds within which hosts that an operator has disabled get no more instances.
_DISABLED_EVERY_S: Final = 3.0
#: Hosts that are copied at a time: reports wait for the lock during a copy.
_CHUNK: Final = 600


class WriteBehind(BackgroundWriter):
    """Keep a store up to date; of several states of a node, only the last is written.

    It remembers at most the UUID of each node, however long the store is unavailable.
    """

    def __init__(self, store: HostStore, clock: Callable[[], float]) -> None:
        super().__init__("hosts", store.close, clock=clock)
        self._store = store
        self._hosts: ReportedHosts | None = None
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._deleted: set[str] = set()
        self._is_open = False
        self._disabled_due = 0.0

    def mark_changed(self, node_uuids: Iterable[str]) -> None:
        """Schedule nodes to be written."""
        with self._lock:
            self._changed.update(node_uuids)

    def mark_deleted(self, node_uuids: Iterable[str]) -> None:
        """Schedule nodes to be deleted."""
        with self._lock:
            self._deleted.update(node_uuids)

    def open(self, hosts: ReportedHosts) -> None:
        """Create the tables, and restore the stored hosts.

        If the store is unavailable, a warning is logged and it is opened later.

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

    def stop(self) -> None:
        """Write the remaining changes if the store answers, and stop."""
        super().stop()
        self._store.close()

    def each_interval(self) -> None:
        """Read which hosts an operator has disabled, some seconds after the last time.

        An unavailable store is logged when it is written to.
        """
        if self.failure or self._hosts is None or time.monotonic() < self._disabled_due:
            return
        self._disabled_due = time.monotonic() + _DISABLED_EVERY_S
        with contextlib.suppress(StoreUnavailable):
            self._hosts.set_disabled(self._store.disabled_hosts())

    def write(self) -> None:
        """Write all changes."""
        with self._lock:
            self._changed, changed = set(), self._changed
            self._deleted, deleted = set(), self._deleted
        if self._hosts is None or not (changed or deleted or self.failure):
            return
        try:
            if not self._is_open:
                self._open(self._hosts)
            self._delete(self._hosts, deleted)
            self._write(self._hosts, changed)
        finally:
            # What could not be written.
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
            known = hosts.snapshot(deleted).keys()
            self._store.delete(deleted - known, hosts.forget_cutoff())
            deleted.clear()
