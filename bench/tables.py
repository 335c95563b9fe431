# SPDX-License-Identifier: Apache-2.0
"""The tables of the results."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from .decisions import PluginTime, Times
from .nova import NovaDecision
from .nova_db_source import N_CELLS, SourceTimes
from .numa_pci import CHANGING, MAX_NOVA_HOSTS, FitRow, FitTimes
from .reply_sizes import ReplySize
from .stream import LIMIT, MAX_AGE_S, DecisionAndPuts, Rate, StreamTimes
from .timing import NONE, Percentiles, format_number, format_percentiles
from .wire import NUMBER, WireTime


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One kind of decision: times of Moorage and of nova."""

    n_hosts: int
    request: str
    n_instances: int
    moorage: Times
    nova: NovaDecision | None


@dataclass(frozen=True, slots=True)
class PluginRow:
    """One plugin; `nova` is its time and passing hosts there, or why it has none."""

    moorage: PluginTime
    nova: tuple[Percentiles, int] | str | None


def make_table(title: str, texts: str, numbers: str, caption: str = "") -> Table:
    """Return a table without rows; the names of its columns are separated by |."""
    table = Table(title=title, caption=caption, caption_justify="left")
    for name in texts.split("|"):
        table.add_column(name)
    for name in numbers.split("|"):
        table.add_column(name, justify="right")
    return table


def _ratio(nova: float | None, moorage: float) -> str:
    return NONE if nova is None else f"{nova / moorage:,.1f} x"


def _steps(times: Times) -> tuple[str, ...]:
    """Format the medians of a decision's steps; their p99 would need too much space."""
    steps = times.hosts, times.filters, times.weighers, times.rest, times.left_out
    return tuple(format_number(step.median) for step in steps)


def decisions_table(rows: list[DecisionRow]) -> Table:
    """Return the table of decisions without Placement and network."""
    table = make_table(
        "A decision without Placement and network, ms",
        "hosts|request|instances",
        "Moorage|rows|filters|weighers|rest|left out|runs|nova 34|runs|ratio"
        "|plugins' ratio|nova's states",
        "Moorage: rows of the candidates, restrictions, filters, weighers, choice, "
        "selections, record; the medians of its steps follow. left out: the canned "
        "Placement and the decoding of its answers, the median. nova 34: _schedule() "
        "with existing host states, without claims. plugins' ratio: nova 34 to the "
        "filters and weighers of Moorage alone, for one instance. nova's states: "
        "creating the host states of compute nodes that were read before, as each "
        "decision of nova does; not included in nova 34. Ratios are of medians.",
    )
    for row in rows:
        moorage = row.moorage
        table.add_row(
            f"{row.n_hosts:,}", row.request, str(row.n_instances),
            format_percentiles(moorage.own), *_steps(moorage),
            str(moorage.own.n_samples), *_nova_decision(row),
        )  # fmt: skip
    return table


def _nova_decision(row: DecisionRow) -> tuple[str, ...]:
    moorage, nova = row.moorage, row.nova
    if nova is None:
        return (NONE,) * 5
    plugins = moorage.filters.median + moorage.weighers.median
    return (
        format_percentiles(nova.own),
        str(nova.own.n_samples),
        _ratio(nova.own.median, moorage.own.median),
        _ratio(nova.own.median, plugins) if row.n_instances == 1 else NONE,
        format_percentiles(nova.states),
    )


def plugins_table(n_hosts: int, rows: list[PluginRow]) -> Table:
    """Return the table of each plugin alone."""
    table = make_table(
        f"Each plugin alone, for {n_hosts:,} hosts, ms",
        "plugin|request",
        "Moorage|nova 34|ratio|pass|pass, nova",
        "Including the preparation for the request, the first read of columns, and a "
        "weigher's normalization and multiplication.",
    )
    for row in rows:
        moorage, nova = row.moorage, row.nova
        measured = nova if isinstance(nova, tuple) else None
        table.add_row(
            moorage.name, moorage.request.name, format_percentiles(moorage.ms),
            nova if isinstance(nova, str)
            else format_percentiles(measured[0] if measured else None),
            _ratio(measured[0].median if measured else None, moorage.ms.median),
            *_passing(moorage, measured),
        )  # fmt: skip
    return table


def _passing(
    moorage: PluginTime, nova: tuple[Percentiles, int] | None
) -> tuple[str, str]:
    if moorage.kind == "weigher":
        return NONE, NONE
    if nova is None:
        return f"{moorage.n_passed:,}", NONE
    differs = "" if nova[1] == moorage.n_passed else " [bold red]differs[/]"
    return f"{moorage.n_passed:,}", f"{nova[1]:,}{differs}"


def fits_table(rows: list[FitRow]) -> Table:
    """Return the table of guests with NUMA cells and PCI devices."""
    table = make_table(
        "A decision for a guest with cells or devices, without Placement, ms",
        "hosts|guest",
        "first|new kind|again|rows|filters|weighers|rest|left out|reports|pass",
        "first: the first decision with a new host table. new kind: the first "
        "decisions for guests unlike all before. again: decisions for guests like the "
        f"first, while one of {CHANGING} hosts reports a new state before each; the "
        "medians of its steps follow. left out: as above. reports: parsing and storing "
        "those of the hosts. One host of five is in one of four states, all others "
        "differ. pass: hosts that pass all filters in the first decision.",
    )
    for row in rows:
        moorage, again = row.moorage, row.moorage.again
        table.add_row(
            f"{row.n_hosts:,}", moorage.name, format_percentiles(moorage.first.own),
            format_percentiles(moorage.new_kind.own), format_percentiles(again.own),
            *_steps(again), format_percentiles(moorage.reports),
            f"{moorage.n_passed:,}",
        )  # fmt: skip
    return table


def fits_nova_table(rows: list[FitRow]) -> Table:
    """Return the table of nova's times for the same guests."""
    table = make_table(
        "The same guests with nova 34, ms",
        "hosts|guest",
        "nova 34|runs|ratio to new kind|ratio to again|nova's states|ratio with states"
        "|pass, nova",
        "nova 34: as above, with NUMATopologyFilter and PciPassthroughFilter; beyond "
        f"{MAX_NOVA_HOSTS:,} hosts scaled in proportion (marked ~). nova's states: "
        "creating the host states, with cells and pools, as each decision of nova "
        "does. ratio with states: nova 34 and its states, to again and reports.",
    )
    for row in rows:
        if row.nova:
            table.add_row(
                f"{row.n_hosts:,}",
                row.moorage.name,
                *_nova_fit(row.moorage, row.nova, row),
            )
    return table


def _nova_fit(moorage: FitTimes, nova: NovaDecision, row: FitRow) -> tuple[str, ...]:
    about = "~" if row.factor > 1 else ""
    own, states = nova.own.scaled(row.factor), nova.states.scaled(row.factor)
    again = moorage.again.own.median
    differs = nova.n_passed != moorage.n_passed
    passed = f"{nova.n_passed:,}{' [bold red]differs[/]' if differs else ''}"
    return (
        f"{about}{format_percentiles(own)}",
        str(own.n_samples),
        _ratio(own.median, moorage.new_kind.own.median),
        _ratio(own.median, again),
        f"{about}{format_percentiles(states)}",
        _ratio(own.median + states.median, again + moorage.reports.median),
        NONE if about else passed,
    )


def embedded_table(rows: list[tuple[int, int, Times]]) -> Table:
    """Return the table of decisions with the embedded Placement."""
    table = make_table(
        "A decision with the embedded Placement (SQLite), ms",
        "hosts|instances",
        "total|GET candidates|claim|Moorage|Moorage, %|runs",
        "GET candidates: Placement's work, and decoding its answer.",
    )
    for n_hosts, n_instances, each in rows:
        table.add_row(
            f"{n_hosts:,}", str(n_instances), format_percentiles(each.total),
            format_percentiles(each.placement), format_percentiles(each.claim),
            format_percentiles(each.own),
            f"{each.own.median / each.total.median:.1%}", str(each.total.n_samples),
        )  # fmt: skip
    return table


def stream_table(n_providers: int, found: StreamTimes) -> Table:
    """Return the table of a stream of requests, compared with nova's calls."""
    table = make_table(
        f"Requests to one Placement with {n_providers:,} providers",
        "scheduler|requests",
        "n|ms each|s|requests/s|GETs a request|ratio to nova",
        "Requests of 8 flavors, one after the other, one instance each; decoding the "
        f"request is included. Each query has limit {LIMIT:,}; Moorage caches an "
        f"answer for {MAX_AGE_S:.0f} s "
        r"(\[moorage] candidates_max_age; the default is 5). nova: its calls to "
        "Placement for each request (GET /allocation_candidates, GET of the consumer, "
        f"PUT), without its own work. Placement: {found.kind.description}.",
    )
    rates = (
        ("Moorage", "all", found.first.followed_by(found.later)),
        ("", "the first of each flavor", found.first),
        ("", "later ones", found.later),
        ("nova", "one of each flavor", found.nova),
    )
    for scheduler, requests, rate in rates:
        table.add_row(scheduler, requests, *_rate(rate, found.nova))
    return table


def _rate(rate: Rate, nova: Rate) -> tuple[str, ...]:
    ratio = NONE if rate is nova else _ratio(rate.per_s, nova.per_s)
    return (
        f"{rate.n_requests:,}", format_percentiles(Percentiles.of(rate.latencies_ms)),
        format_number(rate.elapsed_s), format_number(rate.per_s),
        f"{rate.gets_per_request:.3g}", ratio,
    )  # fmt: skip


def puts_table(found: StreamTimes) -> Table:
    """Return the table of decisions, compared with PUTs of the same allocations."""
    table = make_table(
        "Decisions with that Placement, and PUTs of the same allocations, ms",
        "instances",
        "decision|its claim|the rest|PUTs|decision to PUTs|GETs|runs",
        "The candidates are cached. its claim: a PUT, or one POST for several. PUTs: "
        "of the same allocations after they were released, one after the other. GETs: "
        "the sum over all runs.",
    )
    for each in (found.single, found.several):
        table.add_row(*_puts_row(each))
    return table


def _puts_row(each: DecisionAndPuts) -> tuple[str, ...]:
    return (
        str(each.n_instances),
        *map(format_percentiles, (each.decision, each.claim, each.rest, each.puts)),
        f"{each.decision.median / each.puts.median:.2f} x",
        str(each.n_gets),
        str(each.decision.n_samples),
    )


def starts_table(found: SourceTimes) -> Table:
    """Return the table of starts from nova's databases."""
    table = make_table(
        f"A start from nova 34's databases, {N_CELLS} cells, ms",
        "compute nodes|database",
        "read|first decision|both|runs|nova 34, one request|runs|ratio to both",
        "read: from unconnected engines to a full host table, with aggregates and four "
        "instances per host; three hosts of ten have cells and devices. first "
        "decision: without Placement, including a lookup of nodes that only Placement "
        "knows. nova 34: its HostManager loads all hosts, as for each request, without "
        "the instances and aggregates that it reads at its start. Both are measured "
        "alternately.",
    )
    for row in found.starts:
        nova = row.nova_load
        table.add_row(
            f"{row.n_hosts:,}", row.kind.value,
            *map(format_percentiles, (row.start, row.first, row.both)),
            str(row.both.n_samples), format_percentiles(nova),
            str(nova.n_samples if nova else 0),
            _ratio(nova.median if nova else None, row.both.median),
        )  # fmt: skip
    return table


def polls_table(found: SourceTimes) -> Table:
    """Return the table of polls."""
    table = make_table(
        "A poll of nova's databases for changes, ms",
        "compute nodes|database|what changed",
        "rows|poll|runs",
        "The same number of rows has changed in each cell. A decision waits for a poll "
        r"with \[moorage] refresh_interval = 0; otherwise it runs in the background.",
    )
    for row in found.polls:
        table.add_row(
            f"{row.n_hosts:,}", row.kind.value, row.what, f"{row.n_changed:,}",
            format_percentiles(row.ms), str(row.ms.n_samples),
        )  # fmt: skip
    return table


def memory_table(found: SourceTimes) -> Table:
    """Return the table of the memory of a host."""
    table = make_table(
        "Memory of the host table and of the source nova_db",
        "compute nodes|each with",
        "bytes a host",
        "Measured by tracemalloc after a start from SQLite.",
    )
    for row in found.memory:
        table.add_row(f"{row.n_hosts:,}", row.what, f"{row.bytes_per_host:,.0f}")
    return table


def wire_table(rows: list[WireTime]) -> Table:
    """Return the table of reading and writing messages."""
    table = make_table(
        "A message on the wire, ms",
        "message|direction",
        "bytes|Moorage|nova 34|ratio",
        f"Including JSON, without a transport. Each run is the mean of {NUMBER} calls.",
    )
    directions = {"read": "JSON to objects", "write": "objects to JSON"}
    for row in rows:
        for name, direction in directions.items():
            moorage, nova = row.moorage[name], row.nova_times.get(name)
            table.add_row(
                row.what, direction, f"{row.n_bytes:,}", format_percentiles(moorage),
                format_percentiles(nova),
                _ratio(nova.median if nova else None, moorage.median),
            )  # fmt: skip
    return table


def replies_table(rows: list[ReplySize]) -> Table:
    """Return the table of replies with allocation requests and with identifiers."""
    table = make_table(
        "A reply with two alternates an instance, CPU time in ms",
        "hosts|candidates as",
        "instances|bytes|with gzip|scheduler|conductor|decision|share of it",
        "scheduler: selections to JSON; conductor: JSON to selections and allocation "
        "requests. decision: without Placement. share: of both ends together.",
    )
    for row in rows:
        both = row.made.median + row.read.median
        table.add_row(
            row.hosts, row.what, str(row.n_instances), f"{row.n_bytes:,}",
            f"{row.n_gzip:,}", format_percentiles(row.made),
            format_percentiles(row.read), format_percentiles(row.decision),
            f"{both / row.decision.median:.0%}",
        )  # fmt: skip
    return table
