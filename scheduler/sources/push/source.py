# SPDX-License-Identifier: Apache-2.0
"""The source "push": applies reports of agents to the host table."""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import oslo_messaging
from oslo_config import cfg

from ...clock import now_s, utc_text
from ...hosts import HostTable
from ...periodic import Periodic
from ..reported.hosts import ReportedHosts
from ..reported.source import (
    CHECK_CLAIMS_EVERY_S,
    FORGET_EVERY_S,
    STOP_S,
    Interval,
    ReportedSource,
)
from .aggregates import StoredAggregates
from .store import HostStore
from .write_behind import NO_AGGREGATES, WriteBehind

#: Takes the topic and server of an agent and a node's UUID, and requests a whole report
#: of the node from the agent. Returns False if no agent can be reached now.
SendRequest = Callable[[str, str, str], bool]

#: Seconds within which the first request is sent; another scheduler may send one
#: sooner, and the agent's answer is received here as well.
_FIRST_WITHIN_S: Final = 0.5
_NEXT_AFTER_S: Final = 1.0
_MAX_BACKOFF_S: Final = 60.0
#: Requests a second to all agents together.
_RATE: Final = 500.0
#: Seconds of silence after which a node is not requested any more until it reports.
_SILENT_S: Final = 300.0
#: Most nodes with a pending request; further nodes are added with their next message.
_MAX_PENDING: Final = 100_000


@dataclass(slots=True)
class _PendingRequest:
    """A missing whole report: where and when it is requested next."""

    topic: str
    server: str
    due_at: float
    last_report_at: float
    since: float
    wait_s: float = _NEXT_AFTER_S


class ReportRequester:
    """Requests missing whole reports from agents, with backoff and a rate limit.

    Parameters
    ----------
    rng : random.Random, optional
        Adds jitter to the requests.
    clock : callable, optional
        Returns monotonic seconds.
    """

    def __init__(
        self,
        *,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Not a generator with a state: forked workers would all send at the same time.
        self._rng = rng or random.SystemRandom()
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, _PendingRequest] = {}
        self._send: SendRequest | None = None
        self._allowance = 0.0
        self._allowed_at = clock()
        self.n_sent = 0

    def __len__(self) -> int:
        return len(self._pending)

    def connect(self, send: SendRequest) -> None:
        """Set the function that sends a request to an agent."""
        self._send = send

    def request(self, node_uuid: str, topic: str | None, server: str | None) -> None:
        """Request a whole report of a node from the agent at that topic and server."""
        if topic is None or server is None:
            return  # this agent accepts no requests; its next whole report may come
        now = self._clock()
        with self._lock:
            pending = self._pending.get(node_uuid)
            if pending is not None:
                pending.topic, pending.server = topic, server
                pending.last_report_at = now
            elif len(self._pending) < _MAX_PENDING:
                due_at = now + self._rng.uniform(0, _FIRST_WITHIN_S)
                self._pending[node_uuid] = _PendingRequest(
                    topic, server, due_at, now, now
                )

    def discard(self, node_uuid: str) -> None:
        """Drop a node's request: its whole report was received, or the node is gone."""
        with self._lock:
            self._pending.pop(node_uuid, None)

    def longest_wait_s(self) -> float:
        """Return the age of the oldest pending request, in seconds."""
        with self._lock:
            oldest = min((p.since for p in self._pending.values()), default=None)
        return 0.0 if oldest is None else self._clock() - oldest

    def send_due(self) -> None:
        """Send the requests that are due, as many as the rate limit allows."""
        if self._send is None or not self._pending:
            return
        for node_uuid, topic, server in self._due():
            if not self._send(topic, server, node_uuid):
                return  # the remaining requests are sent when they are due again
            self.n_sent += 1

    def _due(self) -> list[tuple[str, str, str]]:
        now = self._clock()
        due = []
        with self._lock:
            earned = (now - self._allowed_at) * _RATE
            self._allowance, self._allowed_at = (
                min(_RATE, self._allowance + earned),
                now,
            )
            for node_uuid, pending in list(self._pending.items()):
                if now - pending.last_report_at > _SILENT_S:
                    del self._pending[node_uuid]
                elif pending.due_at <= now and self._allowance >= 1:
                    self._allowance -= 1
                    pending.due_at = now + pending.wait_s * self._rng.uniform(1, 1.5)
                    pending.wait_s = min(2 * pending.wait_s, _MAX_BACKOFF_S)
                    due.append((node_uuid, pending.topic, pending.server))
        return due


LOG = logging.getLogger(__name__)

_REQUEST_EVERY_S: Final = 0.1
#: Seconds of waiting for a requested report after which `notes` mentions it.
_LATE_S: Final = 30.0


class PushSource(ReportedSource):
    """Apply whole reports and deltas, request missing reports, and store all hosts.

    The store also keeps the aggregates that nova's API, or an agent, has cast.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
        With ``[moorage] store_connection`` and ``forget_hosts_after``.
    clock : callable, optional
        Returns now, seconds since the epoch.
    """

    has_aggregates = False

    def __init__(
        self,
        conf: cfg.ConfigOpts | None = None,
        *,
        clock: Callable[[], float] = now_s,
    ) -> None:
        super().__init__(conf, clock=clock)
        self._requester = ReportRequester()
        self._writer: WriteBehind | None = None
        self._aggregates: StoredAggregates | None = None
        self._maintenance: Periodic | None = None

    def connect(self, send: SendRequest) -> None:
        """Set the function that sends requests to agents.

        Parameters
        ----------
        send : callable
            ``send(topic, server, node_uuid)`` requests a whole report of a node from
            the agent that listens there, and returns whether it was sent. A request may
            get lost: it is repeated. `send` must not raise.
        """
        self._requester.connect(send)

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
        hosts, writer = self._hosts, self._writer
        writer.start()
        forgetting = Interval(
            FORGET_EVERY_S, lambda: writer.mark_deleted(hosts.forget_lost())
        )
        claims = Interval(CHECK_CLAIMS_EVERY_S, hosts.end_reported_claims)

        def maintain() -> None:
            self._requester.send_due()
            forgetting.run_if_due()
            claims.run_if_due()

        self._maintenance = Periodic(
            maintain,
            _REQUEST_EVERY_S,
            log=LOG,
            what="Requesting reports and forgetting hosts",
            name="moorage-push",
        )
        self._maintenance.start()

    def apply(self, reports: Iterable[object]) -> None:
        """Apply reports and deltas in wire format, in order.

        Reports received before `start` are ignored: whole reports are requested later.
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
        """Return a text if no aggregate is known."""
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
        if self._maintenance is not None:
            self._maintenance.stop(STOP_S)
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
