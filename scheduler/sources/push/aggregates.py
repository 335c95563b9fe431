# SPDX-License-Identifier: Apache-2.0
"""Synchronizing the table's aggregates with the store that schedulers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ...hosts import HostAggregate, HostTable

#: Most seconds between the times at which two processes receive the same cast, as one
#: may have a backlog. An aggregate that this process received is replaced only by one
#: that was received later by more than this.
_BACKLOG_S: Final = 60.0


class ReceivedAggregate(NamedTuple):
    """An aggregate, and when a scheduler received it.

    Attributes
    ----------
    aggregate : HostAggregate or None
        None: the aggregate was deleted.
    received_at : float
        Seconds since the epoch, within a second.
    """

    aggregate: HostAggregate | None
    received_at: float


class StoredAggregates:
    """Finds the aggregates that casts have changed, and applies those of the store.

    One thread at a time may use it.

    Parameters
    ----------
    table : HostTable
        Casts are applied to it by the RPC endpoint.
    clock : callable
        Returns now, seconds since the epoch.
    """

    def __init__(self, table: HostTable, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._known: dict[int, ReceivedAggregate] = {}
        #: Aggregates whose newest state this process received, and did not read from
        #: the store.
        self._received_here: set[int] = set()
        self._unsaved: set[int] = set()

    def __len__(self) -> int:
        """Return the number of aggregates that were ever received, deleted or not."""
        return len(self._known)

    @property
    def received_at(self) -> Mapping[int, float]:
        """When each aggregate was received, by id."""
        return {id_: received.received_at for id_, received in self._known.items()}

    def note_changes(self) -> None:
        """Find the aggregates that casts have changed since the last call."""
        present = {aggregate.id: aggregate for aggregate in self._table.aggregates}
        for id_ in present.keys() | self._known.keys():
            known = self._known.get(id_)
            if known is None or present.get(id_) != known.aggregate:
                now = self._clock()
                self._known[id_] = ReceivedAggregate(present.get(id_), now)
                self._received_here.add(id_)
                self._unsaved.add(id_)

    def apply(self, stored: Mapping[int, ReceivedAggregate]) -> None:
        """Apply what the store has, unless this process received a newer state."""
        self.note_changes()
        for id_, received in stored.items():
            known = self._known.get(id_)
            before = None if known is None else known.aggregate
            if (
                known is not None
                and id_ in self._received_here
                and received.received_at <= known.received_at + _BACKLOG_S
            ):
                continue
            # If a cast has changed the aggregate since, the next call finds that.
            if self._table.replace_aggregate(id_, before, received.aggregate):
                self._known[id_] = received
                self._received_here.discard(id_)
                self._unsaved.discard(id_)

    def unsaved(self) -> dict[int, ReceivedAggregate]:
        """Return what the store may not have yet, by id."""
        return {id_: self._known[id_] for id_ in self._unsaved}

    def mark_saved(self, saved: Mapping[int, ReceivedAggregate]) -> None:
        """Record that these states were written to the store."""
        self._unsaved.difference_update(saved)
