# SPDX-License-Identifier: Apache-2.0
"""The newest records of decisions in memory, and a line of the log for each."""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from .record import DecisionRecord, Outcome

LOG = logging.getLogger(__name__)


class _Line:
    """Formats a record as text, only once a log handler needs the text."""

    def __init__(self, record: DecisionRecord) -> None:
        self._record = record

    def __repr__(self) -> str:
        return self._record.summary()


class _Data:
    """Converts a record to plain data, only if oslo.log's JSON formatter needs it.

    That formatter handles any object with the method ``items`` as a mapping.
    """

    def __init__(self, record: DecisionRecord) -> None:
        self._record = record

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return the pairs of the record's `to_dict`."""
        return self._record.to_dict().items()


class DecisionLog:
    """Stores the newest records, and logs one line for each.

    Parameters
    ----------
    size : int
        The maximum number of records.
    """

    def __init__(self, size: int) -> None:
        self._ring: collections.deque[DecisionRecord] = collections.deque(maxlen=size)
        self._lock = threading.Lock()
        self._subscribers: tuple[Callable[[DecisionRecord], None], ...] = ()

    def __len__(self) -> int:
        return len(self._ring)

    def subscribe(self, subscriber: Callable[[DecisionRecord], None]) -> None:
        """Call a function with every complete record, which still has its request.

        The function is called in the thread that made the decision, while the caller of
        the scheduler waits. Errors of the function are logged, and fail no decision.
        """
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: Callable[[DecisionRecord], None]) -> None:
        """Stop calling a function."""
        with self._lock:
            self._subscribers = tuple(s for s in self._subscribers if s != subscriber)

    def add(self, record: DecisionRecord) -> None:
        """Store a complete record, publish it to subscribers, and log it.

        The level is WARNING if the decision failed, else INFO.
        """
        with self._lock:
            self._ring.append(record)
        for subscriber in self._subscribers:
            try:
                subscriber(record)
            except Exception:  # the caller must get the decision nevertheless
                LOG.exception("Publishing a decision to %r failed", subscriber)
        record.request = None
        level = logging.WARNING if record.outcome is Outcome.FAILED else logging.INFO
        if LOG.isEnabledFor(level):
            # The logging module formats the record, and catches any error of it.
            as_data = {"decision": _Data(record)}
            LOG.log(level, "Decision %s", _Line(record), extra={"extra": as_data})

    def newest(self, n: int | None = None) -> list[DecisionRecord]:
        """Return up to `n` records, all by default, the newest first."""
        with self._lock:
            records = list(self._ring)
        records.reverse()
        return records[:n]

    def find(self, instance_uuid: str) -> DecisionRecord | None:
        """Return the newest record of an instance."""
        records = (r for r in self.newest() if instance_uuid in r.instance_uuids)
        return next(records, None)
