# SPDX-License-Identifier: Apache-2.0
"""Measure Moorage's decisions, by their records, and each plugin alone."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec
from moorage.scheduler.cmd import daemon
from moorage.scheduler.drivers.plugins import load_filters, load_weighers
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.entry_points import load_plugins
from moorage.scheduler.hosts import HostBatch
from moorage.scheduler.service import Scheduler, build
from moorage.weighers import BaseHostWeigher
from moorage.weighers.base import normalize, weight_range

from .canned import CannedPlacement
from .clouds import Cloud, CloudSource, options
from .requests import CONTEXT, BenchRequest, for_plugin, plain
from .timing import Percentiles, Plan, elapsed_ms, repeated

#: Steps of a decision record that call Placement; "group" reads the allocations on a
#: host after a claim, for server groups.
PLACEMENT_STEPS = ("placement", "claim", "group")

#: Runs a plugin for all hosts; returns how many pass a filter, all for a weigher.
RunPlugin = Callable[[HostBatch, RequestSpec], int]


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a decision, milliseconds.

    Attributes
    ----------
    own : Percentiles
        The total without the steps of Placement.
    rest : Percentiles
        `own` without `hosts`, `filters` and `weighers`: the query, ties, candidates,
        selections, the record itself.
    left_out : Percentiles
        The steps of Placement, such as `placement` and `claim`.
    """

    total: Percentiles
    own: Percentiles
    hosts: Percentiles
    filters: Percentiles
    weighers: Percentiles
    rest: Percentiles
    placement: Percentiles
    claim: Percentiles
    left_out: Percentiles


def times(records: list[DecisionRecord]) -> Times:
    """Return the percentiles of some decisions' times."""

    def of(name: str) -> Percentiles:
        return Percentiles.of([r.times_ms.get(name, 0.0) for r in records])

    left_out = [_sum(r, PLACEMENT_STEPS) for r in records]
    own = [r.times_ms["total"] - out for r, out in zip(records, left_out, strict=True)]
    steps = ("hosts", "filters", "weighers")
    rest = [each - _sum(r, steps) for each, r in zip(own, records, strict=True)]
    return Times(
        total=of("total"),
        own=Percentiles.of(own),
        rest=Percentiles.of(rest),
        placement=of("placement"),
        claim=of("claim"),
        left_out=Percentiles.of(left_out),
        **{name: of(name) for name in steps},
    )


def _sum(record: DecisionRecord, steps: tuple[str, ...]) -> float:
    return sum(record.times_ms.get(step, 0.0) for step in steps)


def decide(scheduler: Scheduler, request: BenchRequest) -> DecisionRecord:
    """Decide once, release the claim in the host table, and return the record."""
    scheduler.select_destinations(
        CONTEXT,
        spec_obj=request.spec(),
        instance_uuids=request.instance_uuids,
        return_objects=True,
        return_alternates=True,
    )
    record = scheduler.decisions.newest(1)[0]
    for instance in record.instances:
        scheduler.table.claims.release(instance.host, str(instance.instance_uuid))
    return record


@dataclass(frozen=True, slots=True)
class PluginTime:
    """The time of one plugin for all hosts, milliseconds, and how many pass."""

    kind: str
    name: str
    request: BenchRequest
    ms: Percentiles
    n_passed: int


class MeasuredScheduler:
    """A scheduler with the hosts of a cloud and a canned Placement."""

    def __init__(self, cloud: Cloud, **filter_scheduler: object) -> None:
        self._cloud = cloud
        conf = options(len(cloud), **filter_scheduler)
        self._scheduler = build(
            conf,
            # All measured requests have the same flavor.
            placement=CannedPlacement(cloud, plain(cloud)),
            source=CloudSource(conf, cloud),
        )
        self._scheduler.start()

    def subscribe(self, subscriber: Callable[[DecisionRecord], None]) -> None:
        """Call a function with each decision's record."""
        self._scheduler.decisions.subscribe(subscriber)

    def decisions(self, request: BenchRequest, plan: Plan) -> Times:
        """Return the times of a decision."""
        return times(repeated(plan, lambda: decide(self._scheduler, request)))

    def own_ms(self, request: BenchRequest, plan: Plan) -> list[float]:
        """Return the time of each decision without the steps of Placement."""
        records = repeated(plan, lambda: decide(self._scheduler, request))
        return [r.times_ms["total"] - _sum(r, PLACEMENT_STEPS) for r in records]

    def call_ms(self, request: BenchRequest, seconds: float) -> list[float]:
        """Return the time of each of the calls that follow one another for a time."""
        times: list[float] = []
        ends_at = time.perf_counter() + seconds
        while not times or time.perf_counter() < ends_at:
            times.append(elapsed_ms(lambda: decide(self._scheduler, request)))
        return times

    def cpu_ms(self, request: BenchRequest, plan: Plan) -> Percentiles:
        """Return the CPU time of the deciding thread, with reading the request."""

        def run() -> float:
            started = time.thread_time()
            decide(self._scheduler, request)
            return (time.thread_time() - started) * 1000

        return Percentiles.of(repeated(plan, run))

    def plugins(self, plan: Plan) -> Iterator[PluginTime]:
        """Yield the times of all filters and weighers, each run alone."""
        for kind, name, run in _plugins():
            yield self._plugin(kind, name, run, plan)

    def _plugin(
        self, kind: str, name: str, run_plugin: RunPlugin, plan: Plan
    ) -> PluginTime:
        request = for_plugin(name, self._cloud)

        def run() -> tuple[float, int]:
            # A new batch, so that the first read of each column is included.
            hosts, spec = self._scheduler.table.batch(), request.spec()
            started = time.perf_counter()
            n_passed = run_plugin(hosts, spec)
            return (time.perf_counter() - started) * 1000, n_passed

        results = repeated(plan, run)
        ms = Percentiles.of([elapsed for elapsed, _ in results])
        return PluginTime(kind, name, request, ms, results[0][1])


@contextmanager
def daemon_gc_thresholds() -> Iterator[None]:
    """Run the garbage collector with the thresholds of moorage-scheduler.

    With Python's default thresholds each answer of Placement triggers several
    collections over all hosts, which take longer than decoding the answer.
    """
    thresholds = gc.get_threshold()
    daemon.tune_garbage_collector()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def weigher_names() -> list[str]:
    """Return the names of Moorage's weighers."""
    return [type(w).__name__ for w in load_weighers(options(1), time.time)]


def filter_names() -> list[str]:
    """Return the names of the filters that are enabled by default."""
    return [type(f).__name__ for f in load_filters(options(1), time.time)]


def _plugins() -> Iterator[tuple[str, str, RunPlugin]]:
    conf = options(1, enabled_filters=sorted(load_plugins("moorage.filters")))
    for filter_ in load_filters(conf, time.time):
        yield "filter", type(filter_).__name__, functools.partial(_filter, filter_)
    for weigher in load_weighers(conf, time.time):
        yield "weigher", type(weigher).__name__, functools.partial(_weigh, weigher)


def _filter(filter_: BaseHostFilter, hosts: HostBatch, spec: RequestSpec) -> int:
    return int(filter_.prepare(spec).passing(hosts, spec).sum())


def _weigh(weigher: BaseHostWeigher, hosts: HostBatch, spec: RequestSpec) -> int:
    raw = weigher.prepare(spec).weigh_all(hosts, spec)
    normalized = normalize(raw, *weight_range(raw, weigher.minval, weigher.maxval))
    return len(normalized * weigher.multipliers(hosts))
