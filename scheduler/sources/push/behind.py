# SPDX-License-Identifier: Apache-2.0
"""Write what was reported to the store, behind everybody's back, a batch at a time."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from .hosts import ReportedHosts
from .store import HostStore, StoreAway, StoreRefused

LOG = logging.getLogger(__name__)

#: Seconds from one batch to the next; what was reported within is lost by a kill.
_EVERY_S: Final = 1.0
#: Most seconds between two tries while the store is away.
_MOST_S: Final = 30.0
#: Seconds that the end waits for a write under way.
_END_S: Final = 15.0
#: Hosts that are copied at a time: reports wait meanwhile.
_CHUNK: Final = 600


class WriteBehind:
    """Keep a store up with the hosts; one of a node's many states is written.

    What it remembers is at most the UUID of each node, however long the store is away.
    """

    def __init__(self, store: HostStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._gone: set[str] = set()
        self._is_open = False
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._wait_s = _EVERY_S
        #: Why the store does not do its part; "": it does.
        self.trouble = ""
        #: Since when, seconds since the epoch.
        self.since = 0.0

    def changed(self, node_uuids: Iterable[str]) -> None:
        """Take note that nodes are to be written."""
        with self._lock:
            self._changed.update(node_uuids)

    def gone(self, node_uuids: Iterable[str]) -> None:
        """Take note that nodes are to be deleted."""
        with self._lock:
            self._gone.update(node_uuids)

    def open(self, hosts: ReportedHosts, now: float) -> None:
        """Make the tables, and put the hosts that the store kept on the table.

        A store that is away is warned of, and opened later.

        Raises
        ------
        StoreRefused
            It cannot be used until somebody changes something.
        """
        if error := self._error_of(lambda: self._open(hosts)):
            if isinstance(error, StoreRefused):
                raise error
            self._is_away(error, now)

    def _open(self, hosts: ReportedHosts) -> None:
        self._store.upgrade()
        count = hosts.restore(self._store.load())
        self._is_open = True
        LOG.info("%d hosts are known from the store %s", count, self._store.name)

    def start(self, hosts: ReportedHosts) -> None:
        """Begin to write."""
        self._thread = threading.Thread(
            target=self._run, args=(hosts,), name="moorage-push-store", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, as far as the store answers, and end."""
        self._is_stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_END_S)
            if self._thread.is_alive():
                LOG.warning("The store %s does not end in time", self._store.name)
                return
        self._store.close()

    def try_now(self) -> None:
        """Try a store that is away at once."""
        self._wake.set()

    def _run(self, hosts: ReportedHosts) -> None:
        while True:
            self._wake.wait(self._wait_s)
            self._wake.clear()
            is_last = self._is_stopping
            self.flush(hosts)
            if is_last:
                return

    def flush(self, hosts: ReportedHosts) -> None:
        """Write what has changed; what cannot be written is tried again later."""
        with self._lock:
            self._changed, changed = set(), self._changed
            self._gone, gone = set(), self._gone
        if not changed and not gone and not self.trouble:
            return

        def update() -> None:
            if not self._is_open:
                self._open(hosts)
            self._delete(hosts, gone)
            self._write(hosts, changed)

        error = self._error_of(update)
        if error is None:
            self._is_back()
            return
        with self._lock:
            self._changed |= changed
            self._gone |= gone
        self._is_away(error, hosts.now())

    @staticmethod
    def _error_of(work: Callable[[], object]) -> StoreAway | None:
        # A line that is logged inside of `except` repeats the error at its end.
        try:
            work()
        except StoreAway as e:
            return e
        return None

    def _write(self, hosts: ReportedHosts, changed: set[str]) -> None:
        remaining = iter(list(changed))
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            copies = hosts.snapshot(chunk)
            self._store.write(copies)
            hosts.are_stored(copies)
            changed.difference_update(chunk)

    def _delete(self, hosts: ReportedHosts, gone: set[str]) -> None:
        if gone:
            self._store.forget(gone - hosts.snapshot(gone).keys(), hosts.lost_before())
            gone.clear()

    def _is_away(self, error: StoreAway, now: float) -> None:
        if not self.trouble:
            self.since = now
            LOG.warning(
                "The store of hosts cannot be used: %s Decisions go on; hosts are "
                "written to it once it can.",
                error,
            )
        self.trouble = str(error)
        self._wait_s = min(2 * self._wait_s, _MOST_S)

    def _is_back(self) -> None:
        if self.trouble:
            LOG.info("The store %s answers again", self._store.name)
        self.trouble, self._wait_s = "", _EVERY_S
