# SPDX-License-Identifier: Apache-2.0
"""The scheduler's metrics for Prometheus.

Labels are names of steps, filters, answers and cells: few, and none is a host, an
instance or a project.

If ``PROMETHEUS_MULTIPROC_DIR`` is set when this module is imported, prometheus_client
stores the metrics of all processes in files of that folder, and any process can render
the sum.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import prometheus_client
from prometheus_client import CollectorRegistry, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from ..drivers.record import (
    COLLIDED,
    FAILED,
    OUTDATED,
    RELEASED,
    DecisionRecord,
    Outcome,
)
from ..errors import ConfigurationError
from ..placement.allocations.claims import ClaimResult
from ..placement.candidates_source import FollowingStats
from ..status import SchedulerStatus

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: Buckets in seconds: from a decision on a few hosts to a GET of 10,000 candidates.
_BUCKETS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0,
)  # fmt: skip

#: The states of a host; one that is forced down counts as down.
_HOST_STATES: Final = ("up", "down", "disabled")


class Metrics:
    """Counts what one process does; renders the sum of all processes.

    Parameters
    ----------
    status : SchedulerStatus
        The status of the scheduler whose decisions are counted.
    folder : str or None
        Where several processes store their metrics; None: there is only one process.
    collectors : iterable of Collector
        Metrics of this process alone.

    Raises
    ------
    ConfigurationError
        Several processes must be summed, and prometheus_client was imported before
        the folder was set.
    """

    def __init__(
        self,
        status: SchedulerStatus,
        folder: str | None,
        collectors: Iterable[Collector] = (),
    ) -> None:
        if folder:
            _check_import()
        self._status = status
        self._folder = folder
        registry = CollectorRegistry()
        self._decisions = _DecisionMetrics(registry)
        self._state = _StateMetrics(registry)
        if folder:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
        for collector in collectors:
            registry.register(collector)
        self._serve: WSGIApplication = prometheus_client.make_wsgi_app(registry)
        self._lock = threading.Lock()
        status.decisions.subscribe(self._decisions.count)
        self.refresh()  # until then each gauge is 0, also in the minimum of all workers

    def refresh(self) -> None:
        """Bring the metrics up to date; called every few seconds.

        Another process that renders the sum uses the values of the last refresh.
        """
        with self._lock:
            self._decisions.flush()
            self._state.refresh(self._status)

    def wsgi_app(
        self, environ: WSGIEnvironment, respond: StartResponse
    ) -> Iterable[bytes]:
        """Serve the metrics of all processes."""
        self.refresh()
        if self._folder:
            _remove_dead_processes(self._folder)
        return self._serve(environ, respond)

    def stop(self) -> None:
        """Stop counting."""
        self._status.decisions.unsubscribe(self._decisions.count)
        self.refresh()


def _check_import() -> None:
    # No public name shows whether prometheus_client stores its values in files.
    if not values.ValueClass._multiprocess:  # noqa: SLF001
        raise ConfigurationError(
            "[telemetry] http_port: prometheus_client was imported too early for the "
            "metrics of several workers to be summed. Set PROMETHEUS_MULTIPROC_DIR to "
            "an empty folder before the service starts."
        )


def _remove_dead_processes(folder: str) -> None:
    """Remove the gauges of processes that have ended; their counters stay."""
    for path in Path(folder).glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        # Another worker may remove the file at the same time.
        with contextlib.suppress(FileNotFoundError):
            if not Path("/proc", pid).exists():
                mark_process_dead(int(pid), folder)  # type: ignore[no-untyped-call]


class _Pending:
    """Counts of decisions since the last flush.

    Adding a decision to these numbers takes 5 µs; adding it to prometheus_client's
    counters, which are in a file for several processes, would take 100 µs.
    """

    def __init__(self) -> None:
        self.outcomes: Tally[str] = Tally()
        self.hosts_in: Tally[str] = Tally()
        self.hosts_out: Tally[str] = Tally()
        self.claims: Tally[str] = Tally()
        self.times_ms: defaultdict[str, list[float]] = defaultdict(list)
        self.n_candidates = 0
        self.n_attempts = 0

    def add(self, record: DecisionRecord) -> None:
        self.outcomes[record.outcome or Outcome.FAILED] += 1
        self.n_candidates += record.n_candidates or 0
        for step, elapsed_ms in record.times_ms.items():
            self.times_ms[step].append(elapsed_ms)
        for filter_step in record.steps:
            self.hosts_in[filter_step.name] += filter_step.n_in
            self.hosts_out[filter_step.name] += filter_step.n_out
        for claim in record.claims:
            self.claims[claim.result] += 1
            self.n_attempts += claim.n_attempts


class _DecisionMetrics:
    """Metrics that are counted from decision records."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self._pending = _Pending()
        self._decisions = _LabelledCounter(
            "moorage_decisions",
            "Decided requests by outcome.",
            "outcome",
            registry,
        )
        self._seconds = prometheus_client.Histogram(
            "moorage_decision_seconds",
            "Duration of decisions by step; total is the whole decision.",
            ["step"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._hosts_in = _LabelledCounter(
            "moorage_filter_hosts_in",
            "Hosts that entered a filter or a restriction of the request.",
            "filter",
            registry,
        )
        self._hosts_out = _LabelledCounter(
            "moorage_filter_hosts_out", "Hosts that passed it.", "filter", registry
        )
        self._candidates = prometheus_client.Counter(
            "moorage_offered_candidates",
            "Allocation candidates that decisions had to choose from.",
            registry=registry,
        )
        self._claims = _LabelledCounter(
            "moorage_claims",
            "Claims by Placement's answer, or that were released or not sent.",
            "answer",
            registry,
        )
        self._attempts = prometheus_client.Counter(
            "moorage_claim_attempts", "Writes that claims took.", registry=registry
        )
        # Exported from the start, so that the first one is an increase from 0.
        self._decisions.add(dict.fromkeys(Outcome, 0))
        self._claims.add(dict.fromkeys((result.value for result in ClaimResult), 0))
        self._claims.add({FAILED: 0, RELEASED: 0, OUTDATED: 0, COLLIDED: 0})

    def count(self, record: DecisionRecord) -> None:
        """Count a decision that has ended; `flush` exports it."""
        with self._lock:
            self._pending.add(record)

    def flush(self) -> None:
        """Export what was counted since the last flush."""
        with self._lock:
            pending, self._pending = self._pending, _Pending()
        self._decisions.add(pending.outcomes)
        self._hosts_in.add(pending.hosts_in)
        self._hosts_out.add(pending.hosts_out)
        self._claims.add(pending.claims)
        self._candidates.inc(pending.n_candidates)
        self._attempts.inc(pending.n_attempts)
        for step, times_ms in pending.times_ms.items():
            seconds = self._seconds.labels(step)
            for elapsed_ms in times_ms:
                seconds.observe(elapsed_ms / 1000)


class _StateMetrics:
    """Metrics that are read from the status of a scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queries = _LabelledCounter(
            "moorage_candidate_queries",
            "Queries for allocation candidates by how they were answered: from the "
            "cache, by the GET of another request, by a GET of their own; refreshed "
            "are GETs in the background.",
            "result",
            registry,
        )
        self._answers = _LabelledCounter(
            "moorage_candidate_answers",
            "Answers that the limit may have truncated, and answers that were not "
            "cached because the cache was full.",
            "event",
            registry,
        )
        self._reports = _LabelledCounter(
            "moorage_host_reports",
            "Reports of hosts by outcome; refused ones are invalid.",
            "kind",
            registry,
        )
        self._announcements = _LabelledCounter(
            "moorage_claim_announcements",
            "Claims announced to other schedulers through Kafka, and those of others, "
            "by result.",
            "result",
            registry,
        )
        self._claim_faults = _LabelledCounter(
            "moorage_claim_faults",
            "Faults that no request notices: of the journal of claims, of starting the "
            "thread that releases orphaned claims, and of a check of one of them.",
            "part",
            registry,
        )
        self._readings = _LabelledCounter(
            "moorage_provider_readings",
            "Readings of Placement's database for providers in memory, by result.",
            "result",
            registry,
        )
        self._reading_seconds = prometheus_client.Counter(
            "moorage_provider_reading_seconds",
            "Time that the successful ones took in all.",
            registry=registry,
        )
        self._read_s = 0.0
        self._stored = _LabelledCounter(
            "moorage_stored_decisions",
            "Decisions that the store of decisions got, and those that it did not get "
            "and will not: dropped.",
            "result",
            registry,
        )
        self._hosts = prometheus_client.Gauge(
            "moorage_hosts",
            "Known hosts by cell (its UUID) and state: up, down or disabled.",
            ["cell", "state"],
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._gauges = [
            prometheus_client.Gauge(
                gauge.name,
                gauge.documentation,
                multiprocess_mode=gauge.mode,
                registry=registry,
            )
            for gauge in _GAUGES
        ]
        self._cells: set[str] = set()

    def refresh(self, status: SchedulerStatus) -> None:
        stats = status.candidates.stats()
        self._queries.set_total(status.candidates.query_counts())
        self._answers.set_total(
            {"truncated": stats.truncated, "evicted": stats.evicted}
        )
        self._reports.set_total(status.report_counts)
        self._announcements.set_total(status.announcement_counts)
        self._claim_faults.set_total(status.claim_faults)
        self._count_readings(status.candidates.following_stats())
        if (store := status.store) is not None:
            self._stored.set_total(
                {"written": store.n_written, "dropped": store.n_dropped}
            )
        for spec, gauge in zip(_GAUGES, self._gauges, strict=True):
            gauge.set(spec.read(status))
        hosts = status.hosts_by_cell_and_state()
        # A cell without hosts is reported as 0 if it had some before.
        self._cells |= {cell for cell, _ in hosts}
        for cell, state in itertools.product(self._cells, _HOST_STATES):
            self._hosts.labels(cell, state).set(hosts.get((cell, state), 0))

    def _count_readings(self, stats: FollowingStats | None) -> None:
        if stats is None:
            return
        self._readings.set_total({"read": stats.n_read, "failed": stats.n_failed})
        self._reading_seconds.inc(max(0.0, stats.read_s - self._read_s))
        self._read_s = stats.read_s


def _providers_age_s(status: SchedulerStatus) -> float:
    stats = status.candidates.following_stats()
    return 0.0 if stats is None else stats.age_s


class _Gauge(NamedTuple):
    """A gauge of each process; `mode`: how the values of several are combined."""

    name: str
    mode: Literal["livesum", "livemax", "livemin"]
    read: Callable[[SchedulerStatus], float]
    documentation: str


_GAUGES: Final = (
    _Gauge(
        "moorage_cached_candidates",
        "livesum",
        lambda status: status.candidates.stats().requests,
        "Allocation candidates in the cache.",
    ),
    _Gauge(
        "moorage_cached_answers",
        "livesum",
        lambda status: status.candidates.stats().answers,
        "Answers of Placement in the cache.",
    ),
    _Gauge(
        "moorage_view_age_seconds",
        "livemax",
        lambda status: status.view_age_s or 0.0,
        "Time since the oldest part of the hosts' state was read; 0 where the source "
        "guarantees it.",
    ),
    _Gauge(
        "moorage_unread_messages",
        "livemax",
        lambda status: status.n_unread,
        "Messages of hosts that Kafka's brokers have and that are not read yet; 0 for "
        "other sources.",
    ),
    _Gauge(
        "moorage_providers_age_seconds",
        "livemax",
        _providers_age_s,
        "Time since Placement's database was last polled successfully; 0 where no "
        "providers are kept in memory.",
    ),
    _Gauge(
        "moorage_pending_claims",
        "livemax",
        lambda status: len(status.table.claims.unreported()),
        "Claims that no report of a host includes yet.",
    ),
    _Gauge(
        "moorage_orphaned_claims",
        "livesum",
        lambda status: status.n_orphans,
        "Claims of failed requests that are released once Placement answers.",
    ),
    _Gauge(
        "moorage_suspected_orphans",
        "livesum",
        lambda status: len(status.suspected_orphans),
        "Allocations that nothing shows to be in use; see moorage-status.",
    ),
    _Gauge(
        "moorage_decision_store_up",
        "livemin",
        lambda status: status.store is not None and not status.store.failure,
        "Whether decisions can be stored, 1 or 0; 0 also without a store. Of several "
        "workers, whether all can.",
    ),
    _Gauge(
        "moorage_last_reload_successful",
        "livemin",
        lambda status: not status.reload_failure,
        "Whether the last reload (SIGHUP) succeeded, 1 or 0; 1 also if there was none. "
        "Of several workers, whether it did in all.",
    ),
    _Gauge(
        "moorage_ready",
        "livemin",
        lambda status: status.is_ready,
        "Whether requests can be served, 1 or 0; of several workers, whether all can.",
    ),
)


class _LabelledCounter:
    """A counter with one label."""

    def __init__(
        self, name: str, documentation: str, label: str, registry: CollectorRegistry
    ) -> None:
        self._counter = prometheus_client.Counter(
            name, documentation, [label], registry=registry
        )
        self._total: Tally[str] = Tally()

    def add(self, counts: Mapping[str, int]) -> None:
        """Add counts by label."""
        for label, count in counts.items():
            self._counter.labels(label.replace(" ", "_")).inc(count)

    def set_total(self, counts: Mapping[str, int]) -> None:
        """Set the counts, by label, to totals that another part counts."""
        self.add(
            {
                label: max(0, count - self._total[label])
                for label, count in counts.items()
            }
        )
        self._total = Tally(counts)
