# SPDX-License-Identifier: Apache-2.0
"""Measure our own scheduler, by its decision records and plugin by plugin."""

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
from moorage.weighers.base import WeightRange

from .asked import CONTEXT, Request, for_plugin, plain
from .canned import CannedPlacement
from .clouds import Cloud, CloudSource, options
from .timing import Percentiles, Plan, repeated

#: Steps of a decision record that are Placement's and the network's; "group" reads the
#: consumers on a host after a claim, for server groups.
NOT_OURS = ("placement", "claim", "group")

#: Ask a plugin about all hosts; a filter answers how many pass, a weigher all.
Ask = Callable[[HostBatch, RequestSpec], int]


@dataclass(frozen=True, slots=True)
class Times:
    """What a decision takes, milliseconds.

    Attributes
    ----------
    own : float
        All of it but Placement's steps.
    rest : float
        Of `own`: the query, ties, candidates, selections, the record itself.
    left_out : float
        Placement's steps, `placement` and `claim` among them.
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

    left_out = [_sum(r, NOT_OURS) for r in records]
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


def decide(scheduler: Scheduler, request: Request) -> DecisionRecord:
    """Decide once, give it back in the table, and return the record."""
    scheduler.select_destinations(
        CONTEXT,
        spec_obj=request.spec(),
        instance_uuids=request.instance_uuids,
        return_objects=True,
        return_alternates=True,
    )
    record = scheduler.decisions.newest(1)[0]
    for instance in record.instances:
        scheduler.table.release_claim(instance.host, str(instance.instance_uuid))
    return record


@dataclass(frozen=True, slots=True)
class PluginTime:
    """What one plugin takes for all hosts, milliseconds, and how many it lets pass."""

    kind: str
    name: str
    request: Request
    ms: Percentiles
    n_passed: int


class OurCloud:
    """A scheduler of ours over a cloud, with a Placement that costs nothing."""

    def __init__(self, cloud: Cloud, **filter_scheduler: object) -> None:
        self._cloud = cloud
        conf = options(len(cloud), **filter_scheduler)
        self._scheduler = build(
            conf,
            # All requests whose decisions are measured have one flavor.
            placement=CannedPlacement(cloud, plain(cloud)),
            source=CloudSource(conf, cloud),
        )
        self._scheduler.start()

    def decisions(self, request: Request, plan: Plan) -> Times:
        """Return what a decision takes."""
        return times(repeated(plan, lambda: decide(self._scheduler, request)))

    def plugins(self, plan: Plan) -> Iterator[PluginTime]:
        """Yield what every filter and weigher there is takes, each asked alone."""
        for kind, name, ask in _plugins():
            yield self._plugin(kind, name, ask, plan)

    def _plugin(self, kind: str, name: str, ask: Ask, plan: Plan) -> PluginTime:
        request = for_plugin(name, self._cloud)

        def run() -> tuple[float, int]:
            # A new batch: what a column costs that nobody has read yet is included.
            hosts, spec = self._scheduler.table.batch(), request.spec()
            started = time.perf_counter()
            n_passed = ask(hosts, spec)
            return (time.perf_counter() - started) * 1000, n_passed

        results = repeated(plan, run)
        ms = Percentiles.of([elapsed for elapsed, _ in results])
        return PluginTime(kind, name, request, ms, results[0][1])


@contextmanager
def collecting_as_served() -> Iterator[None]:
    """Run the garbage collector as the daemon does, for nova and others, too.

    With Python's own thresholds each answer of Placement has all hosts of the process
    searched for garbage, several times, which takes longer than decoding it.
    """
    thresholds = gc.get_threshold()
    daemon.tune_garbage_collector()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def weigher_names() -> list[str]:
    """Return the names of our weighers."""
    return [type(w).__name__ for w in load_weighers(options(1), time.time)]


def filter_names() -> list[str]:
    """Return the names of the filters that every request passes by default."""
    return [type(f).__name__ for f in load_filters(options(1), time.time)]


def _plugins() -> Iterator[tuple[str, str, Ask]]:
    conf = options(1, enabled_filters=sorted(load_plugins("moorage.filters")))
    for filter_ in load_filters(conf, time.time):
        yield "filter", type(filter_).__name__, functools.partial(_filter, filter_)
    for weigher in load_weighers(conf, time.time):
        yield "weigher", type(weigher).__name__, functools.partial(_weigh, weigher)


def _filter(filter_: BaseHostFilter, hosts: HostBatch, spec: RequestSpec) -> int:
    return int(filter_.prepare(spec).passing(hosts, spec).sum())


def _weigh(weigher: BaseHostWeigher, hosts: HostBatch, spec: RequestSpec) -> int:
    raw = weigher.prepare(spec).weigh_all(hosts, spec)
    scaled = WeightRange.of(raw, weigher.minval, weigher.maxval).normalize(raw)
    return len(scaled * weigher.multipliers(hosts))
