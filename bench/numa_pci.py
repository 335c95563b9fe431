# SPDX-License-Identifier: Apache-2.0
"""Guests with NUMA cells and PCI devices: on a new table, of a new kind, and again."""

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
    collecting_as_served,
    decide,
    filter_names,
    times,
    weigher_names,
)
from .guests import GUESTS, Guest
from .nova import Nova, NovaDecision
from .timing import Percentiles, Plan, elapsed_ms, repeated

#: nova is not asked about more, and its time is scaled up from there: a request takes
#: it seconds already.
MAX_NOVA_HOSTS = 1_000

#: One host of so many reports a new state between two decisions.
CHANGING = 100

_FILTERS = ("NUMATopologyFilter", "PciPassthroughFilter")


@dataclass(frozen=True, slots=True)
class FitTimes:
    """What decisions for one guest take.

    Attributes
    ----------
    first : Times
        The first decision on a table that was just filled.
    new_kind : Times
        The first ones for guests of other sizes, or with other devices.
    again : Times
        For guests of the first one's kind; some hosts have changed each time.
    reports : Percentiles
        Reading and noting the reports of those hosts, milliseconds.
    n_passed : int
        Hosts that pass all filters, on the new table.
    """

    name: str
    first: Times
    new_kind: Times
    again: Times
    reports: Percentiles
    n_passed: int


@dataclass(frozen=True, slots=True)
class FitRow:
    """One guest in one cloud, ours and nova's, whose `factor` is how it is scaled."""

    n_hosts: int
    ours: FitTimes
    nova: NovaDecision | None
    factor: float


def fit_rows(
    sizes: tuple[int, ...], plan: Plan, nova: Nova | None, nova_plan: Plan
) -> Iterator[FitRow]:
    """Yield the rows of all guests in clouds of these sizes."""
    theirs: dict[tuple[int, Guest], NovaDecision] = {}
    for n_hosts in sizes:
        n_novas = min(n_hosts, MAX_NOVA_HOSTS)
        for has_pools in (False, True):
            guests = [guest for guest, needs in GUESTS if needs is has_pools]
            if nova and (n_novas, guests[0]) not in theirs:
                smaller = make_numa_cloud(n_novas, has_pools=has_pools)
                theirs |= _theirs(nova, smaller, guests, nova_plan)
            cloud = make_numa_cloud(n_hosts, has_pools=has_pools)
            for guest in guests:
                with collecting_as_served():
                    ours = _Ours(cloud, guest).measured(plan)
                yield FitRow(
                    n_hosts, ours, theirs.get((n_novas, guest)), n_hosts / n_novas
                )


def _theirs(
    nova: Nova, cloud: Cloud, guests: list[Guest], plan: Plan
) -> dict[tuple[int, Guest], NovaDecision]:
    nova.load(cloud, _filters(), weigher_names())
    asked = [(guest, guest(cloud, 0)) for guest in guests]
    return {(len(cloud), guest): nova.decisions(r, plan) for guest, r in asked}


def _filters() -> list[str]:
    return [*(n for n in filter_names() if n not in _FILTERS), *_FILTERS]


class _Ours:
    """A scheduler of ours with a table that no request has been decided on."""

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

    def measured(self, plan: Plan) -> FitTimes:
        """Measure all; the order matters."""
        first = self._decided(0)
        kinds = iter(range(1, 2 + plan.warm_ups + plan.runs))
        new_kind = repeated(plan, lambda: self._decided(next(kinds)))
        again = repeated(plan, self._decided_after_reports)
        return FitTimes(
            name=self._guest(self._cloud, 0).name,
            first=times([first]),
            new_kind=times(new_kind),
            again=times(again),
            reports=Percentiles.of(self._reports),
            n_passed=first.steps[-1].n_out,
        )

    def _decided(self, kind: int) -> DecisionRecord:
        request = self._guest(self._cloud, kind)
        self._placement.answer_to(request)
        return decide(self._scheduler, request)

    def _decided_after_reports(self) -> DecisionRecord:
        self._turn += 1
        changed = range(self._turn % CHANGING, len(self._cloud), CHANGING)
        has_pools = self._cloud.reports[0].pci_stats is not None
        told = {i: report(i, has_pools=has_pools, turn=self._turn) for i in changed}

        def note() -> None:
            for i, each in told.items():
                self._scheduler.table.put(reported(self._cloud.records[i], each))

        self._reports.append(elapsed_ms(note))
        return self._decided(0)
