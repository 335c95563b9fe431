# SPDX-License-Identifier: Apache-2.0
"""Which hosts have room: decided in Python, by Placement's database, or in memory.

The harness of nova's blueprint "Scheduler Filters in DB", rebuilt: the same requests,
and the same usage of hosts, in four ways. Each ends with the selected rows of the host
table, and one allocation request, which the first way does not have:

- python: filters for RAM, CPU and disk, one host at a time, as nova had then. Reading
  all compute nodes from nova's database, which nova did for each request, is not
  included.
- database: GET /allocation_candidates of a real Placement on MariaDB, over HTTP.
- cached: the same, whose answer is in Moorage's cache.
- memory: Moorage's table of resource providers, which follows Placement's database.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from rich.console import Console
from sqlalchemy.orm import Session

from moorage.scheduler.candidates import CandidatesQuery, Offer
from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostBatch, HostTable
from moorage.scheduler.placement.cache import CandidatesCache
from moorage.scheduler.placement.candidates_source import CandidatesSource
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.database import ProviderFollower, placement_engine
from moorage.scheduler.placement.memory import (
    Confirmations,
    Lag,
    ProviderCandidatesSource,
)
from moorage.scheduler.placement.providers import InventoryRecord, ProviderRecord
from moorage.scheduler.placement.query import Requirements, build_query
from moorage.scheduler.request import Request
from moorage.scheduler.waiting import ThreadSpawner
from tests.fixtures.database_servers import Database, DatabaseServer
from tests.fixtures.placement_rows import write_providers
from tests.fixtures.placement_servers import PlacementServer

from .clouds import Cloud, CloudSource, make_cloud, options
from .costs import Costs
from .real_placement import CountedAdapter
from .requests import FLAVORS, BenchRequest, of_flavor
from .resource_filters import OldCoreFilter, OldDiskFilter, OldRamFilter
from .tables import make_table
from .timing import Percentiles, Plan, format_number, format_percentiles, repeated

#: The ways, in the order of the table.
WAYS: Final = ("python", "database", "cached", "memory")

_GIB: Final = 1024
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class FilteringRow:
    """One way in one cloud, per request.

    Attributes
    ----------
    latency : Percentiles
        Milliseconds.
    ours, placement, database : float
        Mean CPU of this process, of Placement's process and of MariaDB, ms.
    n_bytes : float
        Mean size of Placement's answers.
    n_selected : float
        Mean number of hosts.
    """

    n_hosts: int
    way: str
    latency: Percentiles
    ours: float
    placement: float
    database: float
    n_bytes: float
    n_selected: float


@dataclass(frozen=True, slots=True)
class Question:
    """One request: its spec for filters, and its query for candidates."""

    spec: Any
    #: As read once, which a decision holds while filters run.
    request: Request
    query: CandidatesQuery

    @classmethod
    def of(cls, request: BenchRequest, limit: int) -> Question:
        """Return the question of a request, for at most `limit` candidates."""
        spec = request.spec()
        read = Request.validated(spec)
        return cls(spec, read, build_query(read, Requirements(), limit=limit))


class FilteringHarness:
    """The four ways, in one cloud."""

    def __init__(self, cloud: Cloud, server: PlacementServer) -> None:
        conf = options(len(cloud))
        self._table = HostTable()
        CloudSource(conf, cloud).start(self._table)
        kinds = OldRamFilter, OldCoreFilter, OldDiskFilter
        self._filters = [kind(conf) for kind in kinds]
        self.adapter = CountedAdapter(server.adapter)
        client = PlacementClient(self.adapter)
        self._uncached, self._cache = _cache(client, 0.0), _cache(client, math.inf)
        self._memory = _memory(client, self._cache, server.database_url)
        self._memory.load()

    def select(self, way: str, question: Question) -> HostBatch:
        """Return the hosts that have room."""
        if way == "python":
            return self._filtered(question)
        sources: dict[str, CandidatesSource] = {
            "database": self._uncached,
            "cached": self._cache,
            "memory": self._memory,
        }
        offer = Offer([sources[way].get(question.query)])
        hosts = self._table.batch_of_offer(offer)
        numbers = offer.numbers_of(hosts.value("uuid", 0)) if len(hosts) else []
        for number in numbers[:1]:
            offer.request(number)
        return hosts

    def compare(self, question: Question) -> int:
        """Return how many hosts are selected.

        Raises
        ------
        RuntimeError
            Two ways select different hosts.
        """
        found = {way: set(self.select(way, question).uuid.tolist()) for way in WAYS}
        for way, uuids in found.items():
            if n_different := len(uuids ^ found["python"]):
                raise RuntimeError(
                    f"{question.query.path}: {len(found['python'])} hosts pass the "
                    f"filters in Python, and {len(uuids)} are selected by way of "
                    f"{way}; {n_different} differ"
                )
        return len(found["python"])

    def _filtered(self, question: Question) -> HostBatch:
        hosts = self._table.batch()
        for each in self._filters:
            hosts = hosts.take(each.passing(hosts, question.spec))
        return hosts


def _cache(client: PlacementClient, max_age_s: float) -> CandidatesCache:
    return CandidatesCache(
        client, max_age_s=max_age_s, max_requests=_NEVER, clock=time.monotonic
    )


def _memory(
    client: PlacementClient, cache: CandidatesCache, database_url: str
) -> ProviderCandidatesSource:
    conf = load([], config_files=[])
    conf.set_override("connection", database_url, group="placement_database")
    follower, clock = ProviderFollower(placement_engine(conf)), time.monotonic
    spawner = ThreadSpawner()
    return ProviderCandidatesSource(
        follower,
        cache,
        Confirmations(
            client,
            max_per_s=lambda: 0.0,
            max_age_s=1.0,
            clock=clock,
            spawner=spawner,
        ),
        Lag(client, follower, clock=clock, spawner=spawner),
        max_age_s=lambda: math.inf,
        clock=clock,
    )


def used_cloud(n_hosts: int) -> Cloud:
    """Return a cloud in which RAM, vCPUs and disk are used up on different hosts."""
    cloud, rng = make_cloud(n_hosts), np.random.default_rng(n_hosts)
    records = []
    for record in cloud.records:
        capacity_mb = int(record.total_usable_ram_mb * record.ram_allocation_ratio)
        vcpus = int(record.vcpus_total * record.cpu_allocation_ratio)
        used_mb, used_vcpus, used_gb = (
            int(capacity * min(1.0, rng.uniform(0.4, 1.2)))
            for capacity in (capacity_mb, vcpus, record.total_usable_disk_gb)
        )
        free_gb = record.total_usable_disk_gb - used_gb
        records.append(
            replace(
                record,
                free_ram_mb=record.total_usable_ram_mb - used_mb,
                vcpus_used=used_vcpus,
                free_disk_mb=free_gb * _GIB,
                disk_mb_used=used_gb * _GIB,
            )
        )
    return replace(cloud, records=records)


def providers_of(cloud: Cloud) -> list[ProviderRecord]:
    """Return a resource provider for each host, with what it uses."""
    found = []
    for record in cloud.records:
        disk_gb = record.total_usable_disk_gb
        amounts = {
            "VCPU": (record.vcpus_total, record.vcpus_used),
            "MEMORY_MB": (
                record.total_usable_ram_mb,
                record.total_usable_ram_mb - record.free_ram_mb,
            ),
            "DISK_GB": (disk_gb, record.disk_mb_used // _GIB),
        }
        ratios = {
            "VCPU": record.cpu_allocation_ratio,
            "MEMORY_MB": record.ram_allocation_ratio,
            "DISK_GB": record.disk_allocation_ratio,
        }
        inventories = {
            name: InventoryRecord(
                total, max_unit=total, allocation_ratio=float(ratios[name] or 1.0)
            )
            for name, (total, _) in amounts.items()
        }
        used = {name: used for name, (_, used) in amounts.items()}
        found.append(ProviderRecord(record.uuid, None, 1, inventories, used))
    return found


@contextmanager
def filled_placement(
    providers: Sequence[ProviderRecord],
) -> Iterator[tuple[PlacementServer, Costs]]:
    """Yield a Placement on MariaDB with these providers, and the costs of both.

    Raises
    ------
    LookupError
        MariaDB is not installed.
    """
    with (
        DatabaseServer(Database.MARIADB) as database,
        PlacementServer(database.url) as server,
    ):
        engine = sa.create_engine(server.database_url)
        with Session(engine) as session, session.begin():
            write_providers(session, providers)
        with engine.begin() as connection:
            tables = "allocations, inventories, resource_providers"
            connection.execute(sa.text(f"ANALYZE TABLE {tables}"))
        engine.dispose()
        yield server, Costs(server.pid, database.pid)


def filtering_rows(
    sizes: Sequence[int], plan: Plan, say: Callable[[str], None]
) -> Iterator[FilteringRow]:
    """Yield each way in clouds of these sizes.

    Raises
    ------
    LookupError
        MariaDB is not installed.
    RuntimeError
        Two ways select different hosts.
    """
    for n_hosts in sizes:
        say(f"filtering: {n_hosts:,} hosts: filling Placement's database")
        cloud = used_cloud(n_hosts)
        questions = [Question.of(of_flavor(cloud, f), n_hosts) for f in FLAVORS]
        with filled_placement(providers_of(cloud)) as (server, costs):
            harness = FilteringHarness(cloud, server)
            say(f"filtering: {n_hosts:,} hosts: comparing the ways")
            n_selected = float(np.mean([*map(harness.compare, questions)]))
            for way in WAYS:
                say(f"filtering: {n_hosts:,} hosts: {way}")
                yield _row(harness, costs, way, questions, plan, n_hosts, n_selected)


def _row(
    harness: FilteringHarness,
    costs: Costs,
    way: str,
    questions: Sequence[Question],
    plan: Plan,
    n_hosts: int,
    n_selected: float,
) -> FilteringRow:
    cycle = itertools.cycle(questions)
    n_bytes = []

    def run() -> tuple[float, ...]:
        before = harness.adapter.n_bytes
        spent = costs.of(lambda: harness.select(way, next(cycle)))
        n_bytes.append(harness.adapter.n_bytes - before)
        return spent

    wall, *cpu = zip(*repeated(plan, run), strict=True)
    ours, placement, database = (float(np.mean(each)) for each in cpu)
    return FilteringRow(
        n_hosts, way, Percentiles.of(wall), ours, placement, database,
        float(np.mean(n_bytes)), n_selected,
    )  # fmt: skip


def print_filtering(console: Console, rows: Sequence[FilteringRow]) -> None:
    """Print the ways that hosts can be selected."""
    table = make_table(
        "Hosts with room: by filters, Placement's database, cache, memory, ms",
        "hosts|way",
        "selected|latency|CPU here|CPU of Placement|CPU of MariaDB|bytes|runs",
        "Per request, of 8 flavors in turn, for all hosts with enough vCPUs, "
        "RAM and disk. python: filters, one host at a time; database: GET "
        "/allocation_candidates, Placement on MariaDB; cached: its answer in the "
        "cache; memory: providers that follow Placement's database. CPU: means; bytes: "
        "of Placement's answers. All select the same hosts, which is checked.",
    )
    for row in rows:
        table.add_row(
            f"{row.n_hosts:,}", row.way, f"{row.n_selected:,.0f}",
            format_percentiles(row.latency), format_number(row.ours),
            format_number(row.placement), format_number(row.database),
            f"{row.n_bytes:,.0f}", str(row.latency.n_samples),
        )  # fmt: skip
    console.print(table)
