# SPDX-License-Identifier: Apache-2.0
"""The source "push": applies reports of agents to the host table."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import oslo_messaging
from oslo_config import cfg

from ...clock import now_s, utc_text
from ...hosts import HostTable
from ...instances import InstanceLocation, InstanceState
from ..base import BaseHostSource
from ..reported.hosts import ReportCounts, ReportedHosts
from .aggregates import StoredAggregates
from .report_requests import ReportRequester, SendRequest
from .store import HostStore
from .write_behind import NO_AGGREGATES, WriteBehind

LOG = logging.getLogger(__name__)

_TICK_S: Final = 0.1
_FORGET_EVERY_S: Final = 10.0
#: A running host reports the instances claimed on it well within this interval.
_SETTLE_EVERY_S: Final = 30.0
#: Wait for a requested report, in seconds, that is mentioned in `notes`.
_LATE_S: Final = 30.0
_STOP_S: Final = 10.0


class PushSource(BaseHostSource):
    """Apply whole reports and deltas, request missing reports, and store all hosts.

    The store also keeps the aggregates that nova's API, or an agent, has cast.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
        With ``[moorage] store_connection`` and ``forget_hosts_after``.
    clock : callable, optional
        Returns now, seconds since the epoch.
    """

    are_zones_checked = False
    has_aggregates = False

    def __init__(
        self,
        conf: cfg.ConfigOpts | None = None,
        *,
        clock: Callable[[], float] = now_s,
    ) -> None:
        super().__init__(conf)
        self._clock = clock
        self._requester = ReportRequester()
        self._hosts: ReportedHosts | None = None
        self._writer: WriteBehind | None = None
        self._aggregates: StoredAggregates | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def counts(self) -> ReportCounts:
        """The numbers of reports received, by outcome."""
        return ReportCounts() if self._hosts is None else self._hosts.counts

    def connect(self, send: SendRequest) -> None:
        """Set the function that sends requests to agents.

        Parameters
        ----------
        send : callable
            ``send(topic, server, node_uuid)`` requests a whole report of a node from
            the agent that listens there, and returns whether it was sent. A request may
            get lost: it is repeated. It must not raise.
        """
        self._requester.connect(send)

    def locate_instance(self, instance_uuid: str) -> InstanceLocation:
        """Return the host that reported an instance, or that it was deleted."""
        if self._hosts is None:
            return InstanceLocation(InstanceState.UNKNOWN)
        return self._hosts.locate(instance_uuid)

    def mark_deleted(self, instance_uuids: Iterable[str]) -> None:
        """Remember that these instances were deleted for good."""
        if self._hosts is not None:
            self._hosts.mark_deleted(instance_uuids)

    def start(self, table: HostTable) -> None:
        """Put the stored hosts into the table; warn if the store is unavailable.

        Raises
        ------
        ConfigurationError
            ``[moorage] store_connection`` cannot be used until an operator changes the
            URL, the database or the rights there.
        """
        store = HostStore(self.conf.moorage.store_connection, table.columns)
        self._aggregates = StoredAggregates(table, self._clock)
        self._writer = WriteBehind(store, self._aggregates, self._clock)
        self._hosts = ReportedHosts(
            table,
            self._requester,
            self._clock,
            self._writer.mark_changed,
            self.conf.moorage.forget_hosts_after,
        )
        self._writer.open(self._hosts)

    def start_polling(self, table: HostTable) -> None:  # noqa: ARG002 - the base class's
        """Start writing to the store, requesting reports and forgetting hosts."""
        if self._hosts is None or self._writer is None:
            raise RuntimeError("PushSource.start_polling: call start first")
        self._writer.start()
        self._thread = threading.Thread(
            target=self._tick,
            args=(self._hosts, self._writer),
            name="moorage-push",
            daemon=True,
        )
        self._thread.start()

    def _tick(self, hosts: ReportedHosts, writer: WriteBehind) -> None:
        forget_at = time.monotonic() + _FORGET_EVERY_S
        settle_at = time.monotonic() + _SETTLE_EVERY_S
        while not self._stopping.wait(_TICK_S):
            self._requester.send_due()
            if time.monotonic() >= forget_at:
                forget_at = time.monotonic() + _FORGET_EVERY_S
                writer.mark_deleted(hosts.forget_lost())
            if time.monotonic() >= settle_at:
                settle_at = time.monotonic() + _SETTLE_EVERY_S
                hosts.settle_reported_claims()

    def apply(self, reports: Iterable[object]) -> None:
        """Apply reports and deltas in wire format, in order.

        Those received before `start` are ignored: whole reports are requested later.
        """
        if self._hosts is not None:
            self._hosts.apply(reports)

    def refresh(self, table: HostTable) -> None:  # noqa: ARG002 - the base class's
        """Retry an unavailable store now; reports need no refresh."""
        if self._writer is not None:
            self._writer.retry_now()

    def is_gone(self, node_uuid: str, cell_uuid: str) -> bool:  # noqa: ARG002 - the base class's
        """Return False: a node that is silent, or was never seen, may still run."""
        return False

    def seen_at(self) -> float | None:
        """Return when the newest report of any host was received.

        A single silent host counts as down after ``service_down_time``; if all are
        silent, this scheduler receives nothing.
        """
        return None if self._hosts is None else self._hosts.last_report_at

    def troubles(self) -> Sequence[str]:
        """Return since when the store cannot be used, and why."""
        if self._writer is None or not self._writer.failure:
            return ()
        since = utc_text(self._writer.failed_since)
        return (
            f"The store of hosts cannot be used since {since}: {self._writer.failure}",
        )

    def notes(self) -> Sequence[str]:
        """Return `troubles`, `unknowns`, and counts of refused and overdue reports."""
        notes = [*self.troubles(), *self.unknowns()]
        if self._hosts is not None:
            notes += self._hosts.refusals.notes()
        late_s = self._requester.longest_wait_s()
        if late_s > _LATE_S:
            notes.append(
                f"whole reports of {len(self._requester)} hosts are awaited, the first "
                f"since {utc_text(self._clock() - late_s)}"
            )
        return notes

    def unknowns(self) -> Sequence[str]:
        """Return that no aggregate is known, if that is so."""
        if self._aggregates is None or len(self._aggregates):
            return ()
        return (f"{NO_AGGREGATES}.",)

    def report_counts(self) -> Mapping[str, int]:
        """Return `counts` by name."""
        return dataclasses.asdict(self.counts)

    @property
    def endpoints(self) -> Sequence[object]:
        """The endpoint that agents cast to."""
        return (ReportEndpoint(self),)

    def stop(self) -> None:
        """Stop the threads, after writing the remaining reports to the store."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
        if self._writer is not None:
            self._writer.stop()


class ReportEndpoint:
    """Serves `host_reports`, a fanout cast: every scheduler receives every report."""

    target = oslo_messaging.Target(namespace="moorage", version="1.0")

    def __init__(self, source: PushSource) -> None:
        self._source = source
        self.connect = source.connect

    def host_reports(
        self,
        context: object,  # noqa: ARG002 - oslo.messaging passes it
        reports: object,
    ) -> None:
        """Apply a list of HostReport and HostDelta in wire format, in order."""
        if isinstance(reports, list):
            self._source.apply(reports)
        else:
            LOG.warning(
                "host_reports: reports is %s, not a list; the cast is ignored",
                type(reports).__name__,
            )
