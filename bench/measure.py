# SPDX-License-Identifier: Apache-2.0
"""All measurements in order; each table is printed as soon as it is complete."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pytest
from rich.console import Console
from rich.progress import Progress

from moorage.scheduler.entry_points import load_plugins
from tests.fixtures.nova_databases import Kind as NovaKind

from . import report
from .asked import DECISIONS, plain
from .clouds import Cloud, make_cloud
from .fits import FitRow, fit_rows
from .ingest import ingest_table, ingest_times
from .live import live_times
from .nova import Nova, missing_peer
from .ours import OurCloud, Times, filter_names, weigher_names
from .providers import print_providers
from .seeded import Where
from .sources import source_times
from .stream import StreamPlan, stream_times
from .timing import Plan
from .wire import wire_times
from .workers import WorkersPlan, print_memory

#: nova is not asked about more: it takes half a minute for one request already.
MAX_NOVA_HOSTS = 10_000

_NUMBERS = (1, 10)  # instances in one request


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured, and how often.

    Attributes
    ----------
    placement_hosts : int
        Providers of the Placement that the stream of requests is sent to.
    placement : Where
        Where that one runs.
    sources : tuple of (int, Kind)
        Compute nodes in databases of nova that the source nova_db is measured on.
    ingest_hosts : int
        Hosts that report to the source push.
    """

    hosts: tuple[int, ...]
    live_hosts: tuple[int, ...]
    placement_hosts: int
    placement: Where
    stream: StreamPlan
    sources: tuple[tuple[int, NovaKind], ...]
    ingest_hosts: int
    workers: WorkersPlan
    ours: Plan
    nova: Plan
    # A decision of nova's takes seconds to half a minute: a warm-up is too dear.
    nova_decision: Plan
    nova_fit: Plan

    @property
    def plugin_hosts(self) -> int:
        """The greatest size at which nova is measured too, else the least."""
        small = [n for n in self.hosts if n <= MAX_NOVA_HOSTS]
        return max(small, default=min(self.hosts))


FULL: Final = Sizes(
    hosts=(1_000, 10_000, 100_000),
    live_hosts=(200, 1_000),
    placement_hosts=10_000,
    placement=Where(),
    stream=StreamPlan(
        n_requests=500,
        singles=Plan(runs=64, budget_s=60, warm_ups=0),
        several=Plan(runs=7, budget_s=60, warm_ups=0),
    ),
    # SQLite's are filled sooner.
    sources=((10_000, NovaKind.MARIADB), (100_000, NovaKind.SQLITE)),
    ingest_hosts=10_000,
    workers=WorkersPlan(),
    ours=Plan(runs=15, budget_s=20),
    nova=Plan(runs=3, budget_s=5),
    nova_decision=Plan(runs=3, budget_s=5, warm_ups=0),
    nova_fit=Plan(runs=3, budget_s=15, warm_ups=0),
)

#: To see that all of it runs, in a minute or two.
QUICK: Final = replace(
    FULL,
    hosts=(200, 1_000),
    live_hosts=(50,),
    placement_hosts=100,
    stream=StreamPlan(
        n_requests=40,
        singles=Plan(runs=8, budget_s=10, warm_ups=0),
        several=Plan(runs=2, budget_s=10, warm_ups=0),
    ),
    sources=((200, NovaKind.SQLITE),),
    ingest_hosts=1_000,
    workers=WorkersPlan(n_hosts=200, n_requests=20),
    ours=Plan(runs=5, budget_s=20),
)


class Bench:
    """Measure and print; without nova, ours only."""

    def __init__(
        self, console: Console, status: Progress, sizes: Sizes, nova: Nova | None
    ) -> None:
        self._console = console
        self._status = status
        self._task = status.add_task("")
        self._sizes = sizes
        self._nova = nova

    def run(self) -> None:
        """Measure everything."""
        rows: list[report.DecisionRow] = []
        plugins: list[report.PluginRow] = []
        for n_hosts in self._sizes.hosts:
            cloud, nova = make_cloud(n_hosts), self._nova_of(n_hosts)
            self._say(f"{n_hosts:,} hosts: filling the tables")
            ours = OurCloud(cloud)
            if nova:
                nova.load(cloud, filter_names(), weigher_names())
            rows += self._decisions(cloud, ours, nova)
            if n_hosts == self._sizes.plugin_hosts:
                plugins = self._plugins(n_hosts, ours, nova)
                rows.append(self._everything(cloud, nova))
        self._console.print(report.decisions_table(rows))
        self._console.print(report.plugins_table(self._sizes.plugin_hosts, plugins))
        fits = self._fits()
        self._console.print(report.fits_table(fits))
        if self._nova:
            self._console.print(report.fits_nova_table(fits))
        self._console.print(report.live_table(self._live()))
        self.run_providers()
        self.run_stream()
        self.run_sources()
        self._say("messages")
        messages = wire_times(self._nova, self._sizes.ours)
        self._console.print(report.wire_table(messages))

    def run_stream(self) -> None:
        """Measure requests on one Placement with many providers."""
        n_hosts = self._sizes.placement_hosts
        what = f"{n_hosts:,} hosts on the real Placement"

        def progress(n_done: int, _n_all: int) -> None:
            self._say(f"{what}: {n_done:,} seeded")

        self._say(what)
        found = stream_times(
            make_cloud(n_hosts),
            self._sizes.stream,
            self._sizes.placement,
            progress,
            lambda now: self._say(f"{what}: {now}"),
        )
        self._console.print(report.stream_table(n_hosts, found))
        self._console.print(report.puts_table(found))

    def run_sources(self) -> None:
        """Measure the source nova_db on databases of a real nova."""
        if why_not := missing_peer():
            self._console.print(f"[bold]no databases of nova 34[/]: {why_not}")
            return
        plan = self._sizes.ours
        try:
            found = source_times(self._sizes.sources, plan, self._nova, self._say)
        except pytest.skip.Exception as e:
            self._console.print(f"[bold]no databases of nova 34[/]: {e}")
            return
        self._console.print(report.starts_table(found))
        self._console.print(report.looks_table(found))
        self._console.print(report.memory_table(found))

    def run_ingest(self) -> None:
        """Measure how many reports a second the source push takes."""
        n_hosts = self._sizes.ingest_hosts
        self._say(f"{n_hosts:,} hosts report to the source push")
        rows = ingest_times(self._sizes.ours, n_hosts)
        self._console.print(ingest_table(rows, n_hosts))

    def run_providers(self) -> None:
        """Measure candidates from resource providers in memory."""
        self._say("resource providers in memory")
        print_providers(self._console, self._sizes.hosts, self._sizes.ours)

    def run_workers(self) -> None:
        """Measure the memory of several workers, if there is a broker."""
        self._say("memory of workers")
        print_memory(self._console, self._sizes.workers)

    def _nova_of(self, n_hosts: int) -> Nova | None:
        return self._nova if n_hosts <= MAX_NOVA_HOSTS else None

    def _say(self, what: str) -> None:
        self._status.update(self._task, description=what)

    def _decisions(
        self, cloud: Cloud, ours: OurCloud, nova: Nova | None
    ) -> list[report.DecisionRow]:
        rows = []
        for asks in DECISIONS:
            for number in _NUMBERS:
                request = asks(cloud, number)
                self._say(f"{len(cloud):,} hosts: {request.name}, {number}")
                mine = ours.decisions(request, self._sizes.ours)
                plan = self._sizes.nova_decision
                theirs = nova.decisions(request, plan) if nova else None
                rows.append(
                    report.DecisionRow(len(cloud), request.name, number, mine, theirs)
                )
        return rows

    def _everything(self, cloud: Cloud, nova: Nova | None) -> report.DecisionRow:
        """Measure a plain request with every filter there is, and every weigher."""
        every = sorted(load_plugins("moorage.filters"))
        request = plain(cloud)
        self._say(f"{len(cloud):,} hosts: {request.name}, every filter")
        mine = OurCloud(cloud, enabled_filters=every).decisions(
            request, self._sizes.ours
        )
        theirs = None
        if nova:
            nova.load(cloud, every, weigher_names())
            theirs = nova.decisions(request, self._sizes.nova_decision)
        return report.DecisionRow(
            len(cloud), f"{request.name}, {len(every)} filters", 1, mine, theirs
        )

    def _plugins(
        self, n_hosts: int, ours: OurCloud, nova: Nova | None
    ) -> list[report.PluginRow]:
        rows = []
        for mine in ours.plugins(self._sizes.ours):
            self._say(f"{n_hosts:,} hosts: {mine.name}")
            plan = self._sizes.nova
            theirs = (
                nova.plugin(mine.kind, mine.name, mine.request, plan) if nova else None
            )
            rows.append(report.PluginRow(mine, theirs))
        return rows

    def _fits(self) -> list[FitRow]:
        sizes = tuple(n for n in self._sizes.hosts if n <= MAX_NOVA_HOSTS)
        self._say("guests with cells and devices")
        rows = []
        plans = self._sizes.ours, self._nova, self._sizes.nova_fit
        for row in fit_rows(sizes, *plans):
            self._say(f"{row.n_hosts:,} hosts: after {row.ours.name}")
            rows.append(row)
        return rows

    def _live(self) -> list[tuple[int, int, Times]]:
        rows = []
        for n_hosts in self._sizes.live_hosts:
            self._say(f"{n_hosts:,} hosts on the real Placement")
            found = live_times(make_cloud(n_hosts), _NUMBERS, self._sizes.ours)
            rows += [(n_hosts, len(r.instance_uuids), each) for r, each in found]
        return rows
