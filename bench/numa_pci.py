# SPDX-License-Identifier: Apache-2.0
"""Decisions for guests with NUMA cells and PCI devices, without and with caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.service import build

from .canned import CannedPlacement
from .clouds import Cloud, CloudSource, make_numa_cloud, options, reported
from .compute_reports import report
from .decisions import (
    Times,
    daemon_gc_thresholds,
    decide,
    filter_names,
    times,
    weigher_names,
)
from .guests import GUESTS, Guest
from .nova import Nova, NovaDecision
from .timing import Percentiles, Plan, elapsed_ms, repeated

#: nova is measured up to this size, where a request takes seconds; for more hosts its
#: time is scaled up.
MAX_NOVA_HOSTS = 1_000

#: One of this many hosts reports a new state between two decisions.
CHANGING = 100

_FILTERS = ("NUMATopologyFilter", "PciPassthroughFilter")


@dataclass(frozen=True, slots=True)
class FitTimes:
    """The times of decisions for one guest.

    Attributes
    ----------
    first : Times
        The first decision, with a table that was just filled.
    new_kind : Times
        The first decision for each guest of another size, or with other devices.
    again : Times
        Decisions for guests like the first; some hosts have changed before each.
    reports : Percentiles
        Parsing and storing the reports of those hosts, milliseconds.
    n_passed : int
        Hosts that pass all filters in the first decision.
    """

    name: str
    first: Times
    new_kind: Times
    again: Times
    reports: Percentiles
    n_passed: int


@dataclass(frozen=True, slots=True)
class FitRow:
    """One guest in one cloud; nova's times must be multiplied by `factor`."""

    n_hosts: int
    moorage: FitTimes
    nova: NovaDecision | None
    factor: float


def fit_rows(
    sizes: tuple[int, ...], plan: Plan, nova: Nova | None, nova_plan: Plan
) -> Iterator[FitRow]:
    """Yield the rows of all guests in clouds of these sizes."""
    nova_times: dict[tuple[int, Guest], NovaDecision] = {}
    for n_hosts in sizes:
        n_nova_hosts = min(n_hosts, MAX_NOVA_HOSTS)
        for has_pools in (False, True):
            guests = [guest for guest, needs in GUESTS if needs is has_pools]
            if nova and (n_nova_hosts, guests[0]) not in nova_times:
                smaller = make_numa_cloud(n_nova_hosts, has_pools=has_pools)
                nova_times |= _nova_times(nova, smaller, guests, nova_plan)
            cloud = make_numa_cloud(n_hosts, has_pools=has_pools)
            for guest in guests:
                with daemon_gc_thresholds():
                    moorage = _NewScheduler(cloud, guest).measure(plan)
                yield FitRow(
                    n_hosts,
                    moorage,
                    nova_times.get((n_nova_hosts, guest)),
                    n_hosts / n_nova_hosts,
                )


def _nova_times(
    nova: Nova, cloud: Cloud, guests: list[Guest], plan: Plan
) -> dict[tuple[int, Guest], NovaDecision]:
    nova.load(cloud, _filters(), weigher_names())
    return {
        (len(cloud), guest): nova.decisions(guest(cloud, 0), plan) for guest in guests
    }


def _filters() -> list[str]:
    return [*(n for n in filter_names() if n not in _FILTERS), *_FILTERS]


class _NewScheduler:
    """A scheduler with empty caches."""

    def __init__(self, cloud: Cloud, guest: Guest) -> None:
        self._cloud = cloud
        self._guest = guest
        self._turn = 0
        self._reports: list[float] = []
        conf = options(len(cloud), enabled_filters=_filters())
        self._placement = CannedPlacement(cloud, guest(cloud, 0))
        self._scheduler = build(
            conf, placement=self._placement, source=CloudSource(conf, cloud)
        )
        self._scheduler.start()

    def measure(self, plan: Plan) -> FitTimes:
        """Measure first, new and repeated guests; the order matters."""
        first = self._decide(0)
        kinds = iter(range(1, 2 + plan.warm_ups + plan.runs))
        new_kind = repeated(plan, lambda: self._decide(next(kinds)))
        again = repeated(plan, self._decide_after_reports)
        return FitTimes(
            name=self._guest(self._cloud, 0).name,
            first=times([first]),
            new_kind=times(new_kind),
            again=times(again),
            reports=Percentiles.of(self._reports),
            n_passed=first.steps[-1].n_out,
        )

    def _decide(self, kind: int) -> DecisionRecord:
        request = self._guest(self._cloud, kind)
        self._placement.answer_to(request)
        return decide(self._scheduler, request)

    def _decide_after_reports(self) -> DecisionRecord:
        self._turn += 1
        changed = range(self._turn % CHANGING, len(self._cloud), CHANGING)
        has_pools = self._cloud.reports[0].pci_stats is not None
        reports = {i: report(i, has_pools=has_pools, turn=self._turn) for i in changed}

        def store() -> None:
            for i, each in reports.items():
                self._scheduler.table.put(reported(self._cloud.records[i], each))

        self._reports.append(elapsed_ms(store))
        return self._decide(0)
