# SPDX-License-Identifier: Apache-2.0
"""The source nova_db with databases of a real nova: starts, polls, memory."""

from __future__ import annotations

import dataclasses
import datetime
import gc
import math
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy
from oslo_config import cfg
from sqlalchemy.pool import NullPool

from moorage.scheduler.hosts import HostTable
from moorage.scheduler.service import build
from moorage.scheduler.sources.nova_db import NovaDBSource
from moorage.scheduler.sources.nova_db.engines import Engines
from moorage.testing.builders import host
from tests.fixtures.nova_databases import Kind, NovaDatabases
from tests.fixtures.nova_rows import fill

from .canned import CannedPlacement
from .clouds import Cloud, options
from .compute_reports import report
from .decisions import decide, times
from .nova import Nova
from .requests import plain
from .timing import Percentiles, Plan, elapsed_ms, repeated

N_CELLS = 4

#: Hosts whose memory is measured.
N_IN_MEMORY = 10_000

#: nova is measured up to this size.
MAX_NOVA_HOSTS = 10_000

#: Rows that change before a poll; None: all of them.
CHANGED: Sequence[tuple[str, int | None]] = (
    ("nothing", 0),
    ("compute nodes", 100),
    ("compute nodes", None),
    ("heartbeats", 1_000),
    ("heartbeats", None),
    ("instances", 100),
)

_NOVA_RUNS = 3
_SHARE_NUMA = 0.3
_N_REPORTS = 2_000
_INSTANCES = 4
_MANY_INSTANCES = 20
_HOURS = 97
_TABLES = {
    "compute nodes": "compute_nodes",
    "heartbeats": "services",
    "instances": "instances",
}
#: Rows whose change is visible in a time only, which MariaDB stores in whole seconds.
_TIMES = ("heartbeats", "instances")
#: Seconds after which a change is no longer read again by polls.
_SETTLED_S = 4.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StartTimes:
    """The times of starts of a new scheduler, milliseconds.

    Attributes
    ----------
    start : Percentiles
        From unconnected engines to a full host table.
    first : Percentiles
        The first decision after the start, without Placement.
    both : Percentiles
        A start and its first decision together.
    nova_load : Percentiles or None
        The time in which nova's HostManager loads the hosts of one request.
    """

    n_hosts: int
    kind: Kind
    start: Percentiles
    first: Percentiles
    both: Percentiles
    nova_load: Percentiles | None


@dataclass(frozen=True, slots=True)
class PollTime:
    """The times of polls after some rows changed, milliseconds."""

    n_hosts: int
    kind: Kind
    what: str
    n_changed: int
    ms: Percentiles


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """The memory of one host, bytes, measured by tracemalloc."""

    n_hosts: int
    what: str
    bytes_per_host: float


@dataclass(frozen=True, slots=True)
class SourceTimes:
    """All measurements of the source."""

    starts: list[StartTimes]
    polls: list[PollTime]
    memory: list[SourceMemory]


def source_times(
    sizes: Sequence[tuple[int, Kind]], plan: Plan, nova: Nova | None, say: Say
) -> SourceTimes:
    """Measure starts with all sizes, and polls with those that nova is measured with.

    Raises
    ------
    pytest.skip.Exception
        A database server cannot be started, or nova-manage is missing.
    """
    starts, polls = list[StartTimes](), list[PollTime]()
    for n_hosts, kind in sizes:
        what = f"{n_hosts:,} hosts in {kind.value}"
        say(f"{what}: filling nova's databases")
        with filled(kind, n_hosts) as databases:
            measured_nova = nova if n_hosts <= MAX_NOVA_HOSTS else None
            say(f"{what}: starts")
            starts.append(_starts(databases, n_hosts, plan, measured_nova))
            if n_hosts <= MAX_NOVA_HOSTS:
                say(f"{what}: polls")
                polls += _polls(databases, n_hosts, plan)
    n_in_memory = min(N_IN_MEMORY, max(n for n, _ in sizes))
    say("memory")
    return SourceTimes(starts, polls, list(_memory(n_in_memory)))


@contextmanager
def filled(
    kind: Kind,
    n_hosts: int,
    share_numa: float = _SHARE_NUMA,
    instances_per_host: int = _INSTANCES,
) -> Iterator[NovaDatabases]:
    with NovaDatabases(kind, N_CELLS) as databases:
        fill(
            databases,
            n_hosts,
            has_numa=share_numa,
            reports=_reports(n_hosts) if share_numa else None,
            instances_per_host=instances_per_host,
            now=_now(),
        )
        _settle_instances(databases)
        yield databases


def _settle_instances(databases: NovaDatabases) -> None:
    """Spread the times of instances over some days, as in a real cloud."""
    table = databases.tables["instances"]
    now = _now()
    for cell in databases.cells:
        with databases.engine(cell.url).begin() as connected:
            for hours in range(_HOURS):
                of_hour = table.c.id % _HOURS == hours
                then = now - datetime.timedelta(hours=1 + hours)
                connected.execute(table.update().where(of_hour).values(updated_at=then))


def _reports(n_hosts: int) -> list[dict[str, str | None]]:
    """Return texts of cells and devices, from which hosts get theirs."""
    reports = [report(i, has_pools=True) for i in range(min(n_hosts, _N_REPORTS))]
    return [
        {"numa_topology": each.numa_topology, "pci_stats": each.pci_stats}
        for each in reports
    ]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


# -- starts --------------------------------------------------------------------------


def _starts(
    databases: NovaDatabases, n_hosts: int, plan: Plan, nova: Nova | None
) -> StartTimes:
    """Measure alternately, so that a slow phase of the machine affects both."""
    few, n_turns = _few(plan), 1
    if nova:
        nova.ask(
            "open_databases",
            api_database=databases.api_url,
            database=databases.main_url,
        )
        n_turns = min(few.runs, _NOVA_RUNS)  # ten seconds each, at 10,000 hosts
    a_turn = dataclasses.replace(
        few, runs=math.ceil(few.runs / n_turns), budget_s=few.budget_s / n_turns
    )
    runs, loads = list[tuple[float, float]](), list[float]()
    for _ in range(n_turns):
        runs += repeated(a_turn, lambda: _start(databases))
        if nova:
            loads += _nova_load(nova)
    if nova:
        nova.ask("close_databases")
    return StartTimes(
        n_hosts=n_hosts,
        kind=databases.kind,
        start=Percentiles.of([start for start, _ in runs]),
        first=Percentiles.of([first for _, first in runs]),
        both=Percentiles.of([start + first for start, first in runs]),
        nova_load=Percentiles.of(loads) if loads else None,
    )


def _few(plan: Plan) -> Plan:
    """Return a plan for measurements that take seconds."""
    return Plan(runs=min(plan.runs, 5), budget_s=plan.budget_s, warm_ups=0)


def _start(databases: NovaDatabases) -> tuple[float, float]:
    """Return the times of a start and of the first decision after it."""
    conf = options(_n_nodes(databases))
    set_connections(conf, databases)
    # The services in the rows have all versions.
    conf.set_override(
        "disable_compute_service_check_for_ffu", True, group="workarounds"
    )
    engines = Engines(conf)  # created and connected during the start
    source = NovaDBSource(
        engines.api(),
        engines.cell,
        conf=conf,
        refresh_interval=conf.moorage.refresh_interval,
    )
    nodes = _minimal_cloud(databases)
    change(databases, "heartbeats", None)  # otherwise all hosts would be down
    scheduler = build(
        conf, placement=CannedPlacement(nodes, plain(nodes)), source=source
    )
    start = elapsed_ms(scheduler.start)
    first = times([decide(scheduler, plain(nodes))]).own.median
    scheduler.stop()
    engines.dispose()
    return start, first


def set_connections(conf: cfg.ConfigOpts, databases: NovaDatabases) -> None:
    conf.set_override("connection", databases.api_url, group="api_database")
    conf.set_override("connection", databases.main_url, group="database")


def _minimal_cloud(databases: NovaDatabases) -> Cloud:
    """Return the hosts with only what a canned Placement needs."""
    return Cloud([host(uuid=uuid) for uuid in _uuids(databases)], {}, [])


def _n_nodes(databases: NovaDatabases) -> int:
    return len(_uuids(databases))


def _uuids(databases: NovaDatabases) -> list[str]:
    table, found = databases.tables["compute_nodes"], list[str]()
    for cell in databases.cells:
        wanted = sqlalchemy.select(table.c.uuid).where(table.c.deleted == 0)
        with databases.engine(cell.url).connect() as connected:
            found += connected.execute(wanted).scalars()
    return found


def _nova_load(nova: Nova) -> list[float]:
    answer = nova.ask("host_states", instances="reported", runs=1, quiet=True)
    loads: list[float] = answer["load_ms"]
    return loads


# -- polls ---------------------------------------------------------------------------


def _polls(databases: NovaDatabases, n_hosts: int, plan: Plan) -> Iterator[PollTime]:
    conf = options(n_hosts)
    set_connections(conf, databases)
    table = HostTable()
    source = NovaDBSource(
        databases.api, databases.engine, conf=conf, refresh_interval=0
    )
    source.start(table)
    for what, number in CHANGED:
        time.sleep(_SETTLED_S)
        source.refresh_if_stale(table)

        def poll(what: str = what, number: int | None = number) -> tuple[float, int]:
            n_changed = change(databases, what, number)
            return elapsed_ms(lambda: source.refresh_if_stale(table)), n_changed

        runs = repeated(plan, poll)
        ms = Percentiles.of([elapsed for elapsed, _ in runs])
        yield PollTime(n_hosts, databases.kind, what, runs[0][1], ms)
    source.stop()


def change(databases: NovaDatabases, what: str, number: int | None) -> int:
    """Change that many rows, the same number in each cell; return how many."""
    if what not in _TABLES:
        return 0
    if what in _TIMES:
        time.sleep(1.0 - time.time() % 1.0)
    n_changed, n_per_cell = 0, None if number is None else number // N_CELLS
    table = databases.tables[_TABLES[what]]
    live = sqlalchemy.select(table.c.id).where(table.c.deleted == 0)
    for cell in databases.cells:
        with databases.engine(cell.url).begin() as connected:
            wanted = live.order_by(table.c.id).limit(n_per_cell)
            ids = connected.execute(wanted).scalars().all()
            these = table.c.id.between(ids[0], ids[-1]) & (table.c.deleted == 0)
            values = _new_values(what, table)
            connected.execute(table.update().where(these).values(values))
            n_changed += len(ids)
    return n_changed


def _new_values(what: str, table: sqlalchemy.Table) -> dict[str, object]:
    now = _now()
    if what == "compute nodes":
        return {"vcpus_used": table.c.vcpus_used + 1, "updated_at": now}
    if what == "heartbeats":
        return {"last_seen_up": now, "updated_at": now}
    return {"task_state": "image_snapshot", "updated_at": now}


# -- memory --------------------------------------------------------------------------


def _memory(n_hosts: int) -> Iterator[SourceMemory]:
    """Yield the memory of a host in the source and the host table, from SQLite."""
    kinds = (
        ("no cells, no instances", 0.0, 0),
        (f"no cells, {_MANY_INSTANCES} instances", 0.0, _MANY_INSTANCES),
        ("two cells and devices, no instances", 1.0, 0),
    )
    for what, share_numa, instances_per_host in kinds:
        with filled(Kind.SQLITE, n_hosts, share_numa, instances_per_host) as databases:
            yield SourceMemory(n_hosts, what, _bytes_per_host(databases))


def _bytes_per_host(databases: NovaDatabases) -> float:
    conf = options(1)
    set_connections(conf, databases)

    def engine(url: str) -> sqlalchemy.Engine:
        return sqlalchemy.create_engine(url, poolclass=NullPool)

    gc.collect()
    tracemalloc.start()
    table = HostTable()
    source = NovaDBSource(
        engine(databases.api_url), engine, conf=conf, refresh_interval=0
    )
    source.start(table)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    source.stop()
    return taken / len(table)
