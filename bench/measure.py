# SPDX-License-Identifier: Apache-2.0
"""All measurements in order; each table is printed as soon as it is complete."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from rich.progress import Progress

from moorage.scheduler.entry_points import load_plugins
from tests.fixtures.nova_databases import Kind as NovaKind

from . import tables
from .capacity import print_what_if
from .clouds import Cloud, make_cloud
from .collisions import CollisionPlan, print_collisions
from .decision_store import print_store_costs
from .decisions import MeasuredScheduler, Times, filter_names, weigher_names
from .embedded_placement import embedded_times
from .explaining import ExplainingPlan, print_explaining
from .filtering import filtering_rows, print_filtering
from .instances import (
    MAX_NOVA_HOSTS,
    instances_rows,
    print_instances,
    print_sustained,
)
from .kafka_reports import kafka_table, kafka_times
from .locality import print_locality
from .memory_stream import memory_stream_rows, print_memory_stream
from .nova import Nova, missing_peer
from .nova_db_source import source_times
from .numa_pci import FitRow, fit_rows
from .path import print_path
from .pauses import print_pauses
from .placement_database import print_following
from .plots import draw_filtering, draw_instances
from .providers import print_providers
from .push_reports import ingest_table, ingest_times
from .real_placement import Where
from .relay_load import relay_load, relay_table
from .reply_sizes import reply_sizes
from .requests import DECISIONS, plain
from .solver import print_solver
from .stream import StreamPlan, stream_times
from .timing import Plan
from .wire import wire_times
from .workers import WorkersPlan, print_memory

_NUMBERS = (1, 10)  # instances in one request


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured, and how often.

    Attributes
    ----------
    placement_hosts : int
        Providers of the Placement that gets the stream of requests.
    placement : Where
        Where it runs.
    sources : tuple of (int, Kind)
        Compute nodes and database kinds for the source nova_db.
    ingest_hosts : int
        Hosts that report to the sources push and kafka, or are relayed.
    load_s : float
        Seconds for which decisions follow one another without a pause.
    relay_s : int
        Seconds for which the load of a relay, and of what it replaces, is measured.
    followed : tuple of int
        Providers in Placement's database that is followed.
    filtered : tuple of int
        Hosts that are filtered in four ways.
    """

    hosts: tuple[int, ...]
    live_hosts: tuple[int, ...]
    placement_hosts: int
    placement: Where
    stream: StreamPlan
    sources: tuple[tuple[int, NovaKind], ...]
    ingest_hosts: int
    load_s: float
    relay_s: int
    followed: tuple[int, ...]
    filtered: tuple[int, ...]
    workers: WorkersPlan
    explaining: ExplainingPlan
    collisions: CollisionPlan
    moorage: Plan
    nova: Plan
    # nova's decisions take up to half a minute, so they have no warm-up.
    nova_decision: Plan
    nova_fit: Plan

    @property
    def plugin_hosts(self) -> int:
        """The largest size at which nova is measured, too; otherwise the smallest."""
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
    # SQLite for the large one: it is filled faster.
    sources=((10_000, NovaKind.MARIADB), (100_000, NovaKind.SQLITE)),
    ingest_hosts=10_000,
    load_s=20,
    relay_s=20,
    followed=(10_000, 100_000),
    filtered=(1_000, 5_000, 10_000, 50_000),
    workers=WorkersPlan(),
    explaining=ExplainingPlan(),
    collisions=CollisionPlan(),
    moorage=Plan(runs=15, budget_s=20),
    nova=Plan(runs=3, budget_s=5),
    nova_decision=Plan(runs=3, budget_s=5, warm_ups=0),
    nova_fit=Plan(runs=3, budget_s=15, warm_ups=0),
)

#: To check that everything runs, in a minute or two.
QUICK: Final = replace(
    FULL,
    hosts=(200, 1_000),
    live_hosts=(50,),
    placement_hosts=100,
    stream=StreamPlan(
        n_requests=16,
        singles=Plan(runs=2, budget_s=10, warm_ups=0),
        several=Plan(runs=1, budget_s=10, warm_ups=0),
    ),
    sources=((200, NovaKind.SQLITE),),
    ingest_hosts=1_000,
    load_s=0.2,
    relay_s=2,
    followed=(200,),
    filtered=(50, 200),
    workers=WorkersPlan(n_hosts=200, n_requests=20),
    explaining=ExplainingPlan(n_hosts=200, n_blocks=1, block_s=0.3, settling_s=0.3),
    collisions=CollisionPlan(n_hosts=4, n_instances=10, delays_s=(None, 0.005)),
    moorage=Plan(runs=2, budget_s=5, warm_ups=0),
    nova=Plan(runs=1, budget_s=5, warm_ups=0),
    nova_decision=Plan(runs=1, budget_s=5, warm_ups=0),
    nova_fit=Plan(runs=1, budget_s=5, warm_ups=0),
)


class Bench:
    """Measure and print; without nova, Moorage only."""

    def __init__(
        self, console: Console, status: Progress, sizes: Sizes, nova: Nova | None
    ) -> None:
        self._console = console
        self._status = status
        self._task = status.add_task("")
        self._sizes = sizes
        self._nova = nova

    def run_decisions(self) -> None:
        """Measure decisions without Placement, and each plugin alone."""
        rows: list[tables.DecisionRow] = []
        plugins: list[tables.PluginRow] = []
        for n_hosts in self._sizes.hosts:
            cloud, nova = make_cloud(n_hosts), self._nova_of(n_hosts)
            self._say(f"{n_hosts:,} hosts: filling the host tables")
            scheduler = MeasuredScheduler(cloud)
            if nova:
                nova.load(cloud, filter_names(), weigher_names())
            rows += self._decisions(cloud, scheduler, nova)
            if n_hosts == self._sizes.plugin_hosts:
                plugins = self._plugins(n_hosts, scheduler, nova)
                rows.append(self._all_filters(cloud, nova))
        self._console.print(tables.decisions_table(rows))
        self._console.print(tables.plugins_table(self._sizes.plugin_hosts, plugins))

    def run_instances(self, plot: Path | None = None) -> None:
        """Measure requests for one and for many instances."""
        sizes = self._sizes
        rows = list(
            instances_rows(
                sizes.hosts, sizes.moorage, self._nova, sizes.nova_decision, self._say
            )
        )
        print_instances(self._console, rows)
        if plot:
            draw_instances(rows, plot)

    def run_sustained(self) -> None:
        """Measure decisions a second of one process."""
        print_sustained(self._console, self._sizes.hosts, self._sizes.load_s, self._say)

    def run_pauses(self) -> None:
        """Measure the longest holds of the interpreter while decisions run."""
        sizes, load_s = self._sizes.hosts, self._sizes.load_s
        print_pauses(self._console, sizes, load_s, self._say)

    def run_guests(self) -> None:
        """Measure decisions for guests with cells or devices."""
        fits = self._fits()
        self._console.print(tables.fits_table(fits))
        if self._nova:
            self._console.print(tables.fits_nova_table(fits))

    def run_embedded(self) -> None:
        """Measure decisions with the embedded Placement."""
        self._console.print(tables.embedded_table(self._embedded()))

    def run_messages(self) -> None:
        """Measure messages on the wire."""
        self._say("messages")
        messages = wire_times(self._nova, self._sizes.moorage)
        self._console.print(tables.wire_table(messages))
        replies = list(reply_sizes(self._sizes.moorage))
        self._console.print(tables.replies_table(replies))

    def run_stream(self) -> None:
        """Measure a stream of requests to a Placement with many providers."""
        n_hosts = self._sizes.placement_hosts
        what = f"{n_hosts:,} hosts in a real Placement"

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
        self._console.print(tables.stream_table(n_hosts, found))
        self._console.print(tables.puts_table(found))

    def run_sources(self) -> None:
        """Measure the source nova_db with databases of a real nova."""
        if why_not := missing_peer():
            self._console.print(f"[bold]nova_db not measured[/]: {why_not}")
            return
        plan = self._sizes.moorage
        try:
            found = source_times(self._sizes.sources, plan, self._nova, self._say)
        except pytest.skip.Exception as e:
            self._console.print(f"[bold]nova_db not measured[/]: {e}")
            return
        self._console.print(tables.starts_table(found))
        self._console.print(tables.polls_table(found))
        self._console.print(tables.memory_table(found))

    def run_ingest(self) -> None:
        """Measure the reports per second of the source push."""
        n_hosts = self._sizes.ingest_hosts
        self._say(f"{n_hosts:,} hosts report to the source push")
        rows = ingest_times(self._sizes.moorage, n_hosts)
        self._console.print(ingest_table(rows, n_hosts))

    def run_kafka(self) -> None:
        """Measure the source kafka, if Java and Maven are installed."""
        n_hosts = self._sizes.ingest_hosts
        self._say(f"{n_hosts:,} hosts report to the source kafka")
        try:
            found = kafka_times(self._sizes.moorage, n_hosts)
        except pytest.skip.Exception as e:
            self._console.print(f"[bold]kafka not measured[/]: {e}")
            return
        self._console.print(kafka_table(found))

    def run_relay(self) -> None:
        """Measure the load of a relay, if nova and all servers are installed."""
        if why_not := missing_peer():
            self._console.print(f"[bold]relay not measured[/]: {why_not}")
            return
        n_hosts = self._sizes.ingest_hosts
        self._say(f"{n_hosts:,} hosts in nova's databases, polled and relayed")
        try:
            found = relay_load(n_hosts, self._sizes.relay_s)
        except pytest.skip.Exception as e:
            self._console.print(f"[bold]relay not measured[/]: {e}")
            return
        self._console.print(relay_table(found))

    def run_providers(self) -> None:
        """Measure candidates from resource providers in memory."""
        self._say("resource providers in memory")
        print_providers(self._console, self._sizes.hosts, self._sizes.moorage)

    def run_following(self) -> None:
        """Measure following Placement's database, if MariaDB is installed."""
        self._say("following Placement's database")
        try:
            print_following(self._console, self._sizes.followed, self._sizes.moorage)
        except LookupError as e:
            self._console.print(f"following not measured: {e}")

    def run_filtering(self, plot: Path | None = None) -> None:
        """Measure four ways to find hosts with room, if MariaDB is installed."""
        plan = replace(self._sizes.moorage, warm_ups=2)
        try:
            rows = list(filtering_rows(self._sizes.filtered, plan, self._say))
        except LookupError as e:
            self._console.print(f"filtering not measured: {e}")
            return
        print_filtering(self._console, rows)
        if plot:
            draw_filtering(rows, plot)

    def run_store(self) -> None:
        """Measure what it costs to store decisions."""
        n_hosts = self._sizes.plugin_hosts
        self._say(f"the store of decisions, {n_hosts:,} hosts")
        print_store_costs(self._console, n_hosts, self._sizes.moorage)

    def run_capacity(self) -> None:
        """Measure the closest hosts of a request, and the capacity of flavors."""
        n_hosts = self._sizes.plugin_hosts
        self._say(f"what-if questions, {n_hosts:,} hosts")
        print_what_if(self._console, [n_hosts], self._sizes.moorage)

    def run_locality(self) -> None:
        """Measure what rules about racks and rows add to a decision."""
        n_hosts = self._sizes.plugin_hosts
        self._say(f"rules about places, {n_hosts:,} hosts")
        print_locality(self._console, n_hosts, self._sizes.moorage)

    def run_solver(self) -> None:
        """Measure requests for many instances that are placed at once."""
        n_hosts = max(self._sizes.live_hosts)
        self._say(f"the driver solver, {n_hosts:,} hosts")
        print_solver(self._console, n_hosts, self._sizes.moorage)

    def run_collisions(self) -> None:
        """Count how often schedulers select the same CPUs or devices."""
        print_collisions(self._console, self._sizes.collisions, self._say)

    def run_path(self) -> None:
        """Count what a plain request runs through."""
        self._say("the path of a plain request")
        print_path(self._console, min(self._sizes.live_hosts))

    def run_memory(self) -> None:
        """Measure requests that all differ, with providers in memory."""
        n_hosts, plan = self._sizes.placement_hosts, self._sizes.stream
        try:
            rows = list(memory_stream_rows(n_hosts, plan.n_requests, self._say))
        except LookupError as e:
            self._console.print(f"memory not measured: {e}")
            return
        print_memory_stream(self._console, rows)

    def run_workers(self) -> None:
        """Measure the memory of several workers, if there is a broker."""
        self._say("memory of workers")
        print_memory(self._console, self._sizes.workers)

    def run_explaining(self) -> None:
        """Measure decisions while others ask for explanations, if there is a broker."""
        print_explaining(self._console, self._sizes.explaining, self._say)

    def _nova_of(self, n_hosts: int) -> Nova | None:
        return self._nova if n_hosts <= MAX_NOVA_HOSTS else None

    def _say(self, what: str) -> None:
        self._status.update(self._task, description=what)

    def _decisions(
        self, cloud: Cloud, scheduler: MeasuredScheduler, nova: Nova | None
    ) -> list[tables.DecisionRow]:
        rows = []
        for make_request in DECISIONS:
            for number in _NUMBERS:
                request = make_request(cloud, number)
                self._say(f"{len(cloud):,} hosts: {request.name}, {number}")
                moorage = scheduler.decisions(request, self._sizes.moorage)
                plan = self._sizes.nova_decision
                nova_times = nova.decisions(request, plan) if nova else None
                rows.append(
                    tables.DecisionRow(
                        len(cloud), request.name, number, moorage, nova_times
                    )
                )
        return rows

    def _all_filters(self, cloud: Cloud, nova: Nova | None) -> tables.DecisionRow:
        """Measure a plain request with all filters and all weighers."""
        every = sorted(load_plugins("moorage.filters"))
        request = plain(cloud)
        self._say(f"{len(cloud):,} hosts: {request.name}, every filter")
        moorage = MeasuredScheduler(cloud, enabled_filters=every).decisions(
            request, self._sizes.moorage
        )
        nova_times = None
        if nova:
            nova.load(cloud, every, weigher_names())
            nova_times = nova.decisions(request, self._sizes.nova_decision)
        return tables.DecisionRow(
            len(cloud), f"{request.name}, {len(every)} filters", 1, moorage, nova_times
        )

    def _plugins(
        self, n_hosts: int, scheduler: MeasuredScheduler, nova: Nova | None
    ) -> list[tables.PluginRow]:
        rows = []
        for moorage in scheduler.plugins(self._sizes.moorage):
            self._say(f"{n_hosts:,} hosts: {moorage.name}")
            plan = self._sizes.nova
            nova_times = (
                nova.plugin(moorage.kind, moorage.name, moorage.request, plan)
                if nova
                else None
            )
            rows.append(tables.PluginRow(moorage, nova_times))
        return rows

    def _fits(self) -> list[FitRow]:
        sizes = tuple(n for n in self._sizes.hosts if n <= MAX_NOVA_HOSTS)
        self._say("guests with cells and devices")
        rows = []
        plans = self._sizes.moorage, self._nova, self._sizes.nova_fit
        for row in fit_rows(sizes, *plans):
            self._say(f"{row.n_hosts:,} hosts: after {row.moorage.name}")
            rows.append(row)
        return rows

    def _embedded(self) -> list[tuple[int, int, Times]]:
        rows = []
        for n_hosts in self._sizes.live_hosts:
            self._say(f"{n_hosts:,} hosts in the embedded Placement")
            found = embedded_times(make_cloud(n_hosts), _NUMBERS, self._sizes.moorage)
            rows += [(n_hosts, len(r.instance_uuids), each) for r, each in found]
        return rows
