# SPDX-License-Identifier: Apache-2.0
"""The tables; all figures are of this run."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from .decisions import PluginTime, Times
from .nova import NovaDecision
from .nova_db_source import N_CELLS, SourceTimes
from .numa_pci import CHANGING, MAX_NOVA_HOSTS, FitRow, FitTimes
from .stream import LIMIT, MAX_AGE_S, DecisionAndPuts, Rate, StreamTimes
from .timing import NONE, Percentiles, format_number, format_percentiles
from .wire import NUMBER, WireTime


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One kind of decision, ours and nova's."""

    n_hosts: int
    request: str
    n_instances: int
    ours: Times
    nova: NovaDecision | None


@dataclass(frozen=True, slots=True)
class PluginRow:
    """One plugin: ours, and nova's time and passing hosts, or why there are none."""

    ours: PluginTime
    nova: tuple[Percentiles, int] | str | None


def _table(title: str, names: str, figures: str, caption: str) -> Table:
    table = Table(title=title, caption=caption, caption_justify="left")
    for name in names.split("|"):
        table.add_column(name)
    for name in figures.split("|"):
        table.add_column(name, justify="right")
    return table


def _ratio(nova: float | None, ours: float) -> str:
    return NONE if nova is None else f"{nova / ours:,.1f} x"


def _steps(times: Times) -> tuple[str, ...]:
    """Format the medians of a decision's steps, without their p99 to save space."""
    steps = times.hosts, times.filters, times.weighers, times.rest, times.left_out
    return tuple(format_number(step.median) for step in steps)


def decisions_table(rows: list[DecisionRow]) -> Table:
    """Show whole decisions without Placement and network."""
    table = _table(
        "A decision without Placement and network, ms",
        "hosts|request|instances",
        "ours|rows|filters|weighers|rest|left out|runs|nova 34|runs|ratio|chain"
        "|its states",
        "ours: rows of the candidates, restrictions, filters, weighers, choice, "
        "selections, record; the medians of its steps follow. left out: a stand-in "
        "for Placement and the reading of its answers, the median. nova 34: "
        "_schedule() over host states that are there already, without claims. chain: "
        "nova 34 by our filters and weighers alone, for one instance. its states: "
        "making those of compute nodes that were read already, as each of its "
        "decisions does; in neither nova 34 nor ratio. Ratios are of medians.",
    )
    for row in rows:
        ours = row.ours
        table.add_row(
            f"{row.n_hosts:,}", row.request, str(row.n_instances),
            format_percentiles(ours.own), *_steps(ours),
            str(ours.own.n_samples), *_novas_decision(row),
        )  # fmt: skip
    return table


def _novas_decision(row: DecisionRow) -> tuple[str, ...]:
    ours, nova = row.ours, row.nova
    if nova is None:
        return (NONE,) * 5
    chain = ours.filters.median + ours.weighers.median
    return (
        format_percentiles(nova.own),
        str(nova.own.n_samples),
        _ratio(nova.own.median, ours.own.median),
        _ratio(nova.own.median, chain) if row.n_instances == 1 else NONE,
        format_percentiles(nova.states),
    )


def plugins_table(n_hosts: int, rows: list[PluginRow]) -> Table:
    """Show each plugin alone."""
    table = _table(
        f"Each plugin alone, asked about all of {n_hosts:,} hosts, ms",
        "plugin|request",
        "ours|nova 34|ratio|pass|pass, nova",
        "Preparing for the request and the first reading of columns are included; a "
        "weigher's scaling and multiplying, too.",
    )
    for row in rows:
        ours, nova = row.ours, row.nova
        theirs = nova if isinstance(nova, tuple) else None
        table.add_row(
            ours.name, ours.request.name, format_percentiles(ours.ms),
            nova if isinstance(nova, str)
            else format_percentiles(theirs[0] if theirs else None),
            _ratio(theirs[0].median if theirs else None, ours.ms.median),
            *_passing(ours, theirs),
        )  # fmt: skip
    return table


def _passing(ours: PluginTime, nova: tuple[Percentiles, int] | None) -> tuple[str, str]:
    if ours.kind == "weigher":
        return NONE, NONE
    if nova is None:
        return f"{ours.n_passed:,}", NONE
    differs = "" if nova[1] == ours.n_passed else " [bold red]differs[/]"
    return f"{ours.n_passed:,}", f"{nova[1]:,}{differs}"


def fits_table(rows: list[FitRow]) -> Table:
    """Show guests with NUMA cells and PCI devices."""
    table = _table(
        "A decision for a guest with cells or devices, without Placement, ms",
        "hosts|guest",
        "first|new kind|again|rows|filters|weighers|rest|left out|reports|pass",
        "first: the first on a new table. new kind: the first of guests unlike all "
        f"before. again: of one kind, while one of {CHANGING} hosts reports a new "
        "state before each; the medians of its steps follow. left out: as above. "
        "reports: reading and noting those of the hosts. One host of five is in one "
        "of four states, all others differ. The garbage collector runs as in the "
        "daemon. pass: hosts that pass all filters, first.",
    )
    for row in rows:
        ours, again = row.ours, row.ours.again
        table.add_row(
            f"{row.n_hosts:,}", ours.name, format_percentiles(ours.first.own),
            format_percentiles(ours.new_kind.own), format_percentiles(again.own),
            *_steps(again), format_percentiles(ours.reports), f"{ours.n_passed:,}",
        )  # fmt: skip
    return table


def fits_nova_table(rows: list[FitRow]) -> Table:
    """Show nova's time for the same guests."""
    table = _table(
        "The same guests beside nova 34, ms",
        "hosts|guest",
        "nova 34|runs|ratio to new kind|ratio to again|its states|ratio with states"
        "|pass, nova",
        "nova 34: as above, with NUMATopologyFilter and PciPassthroughFilter; beyond "
        f"{MAX_NOVA_HOSTS:,} hosts scaled in proportion (marked ~). its states: "
        "making those of hosts, with cells and pools, as each of its decisions does. "
        "ratio with states: nova 34 and its states, by again and reports.",
    )
    for row in rows:
        if row.nova:
            table.add_row(
                f"{row.n_hosts:,}", row.ours.name, *_novas(row.ours, row.nova, row)
            )
    return table


def _novas(ours: FitTimes, nova: NovaDecision, row: FitRow) -> tuple[str, ...]:
    about = "~" if row.factor > 1 else ""
    own, states = nova.own.scaled(row.factor), nova.states.scaled(row.factor)
    again = ours.again.own.median
    differs = nova.n_passed != ours.n_passed
    passed = f"{nova.n_passed:,}{' [bold red]differs[/]' if differs else ''}"
    return (
        f"{about}{format_percentiles(own)}",
        str(own.n_samples),
        _ratio(own.median, ours.new_kind.own.median),
        _ratio(own.median, again),
        f"{about}{format_percentiles(states)}",
        _ratio(own.median + states.median, again + ours.reports.median),
        NONE if about else passed,
    )


def live_table(rows: list[tuple[int, int, Times]]) -> Table:
    """Show whole decisions on the embedded Placement."""
    table = _table(
        "A decision on the real Placement, embedded (SQLite), ms",
        "hosts|instances",
        "total|GET candidates|claim|ours|ours, %|runs",
        "GET candidates: Placement's own work, JSON, and our reading of the answer.",
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
    """Show a stream of requests, beside nova's way of asking Placement."""
    table = _table(
        f"Requests on one real Placement with {n_providers:,} providers",
        "way|requests",
        "n|ms each|s|requests/s|GETs a request|ratio to nova's way",
        "Requests of 8 flavors, one after the other, one instance each; reading of the "
        "request's objects included. Every question has limit "
        f"{LIMIT:,}; ours keeps an answer for {MAX_AGE_S:.0f} s "
        r"(\[moorage] candidates_max_age; the default is 5). nova's way: for each "
        "request GET /allocation_candidates, GET of the consumer, PUT; what nova does "
        f"by itself is left out. Placement: {found.kind.told}.",
    )
    rates = (
        ("ours", "all", found.first.followed_by(found.later)),
        ("", "the first of each flavor", found.first),
        ("", "later ones", found.later),
        ("nova's", "one of each flavor", found.nova),
    )
    for way, requests, rate in rates:
        table.add_row(way, requests, *_rate(rate, found.nova))
    return table


def _rate(rate: Rate, nova: Rate) -> tuple[str, ...]:
    ratio = NONE if rate is nova else _ratio(rate.per_s, nova.per_s)
    return (
        f"{rate.n_requests:,}", format_percentiles(Percentiles.of(rate.latencies_ms)),
        format_number(rate.elapsed_s), format_number(rate.per_s),
        f"{rate.gets_a_request:.3g}", ratio,
    )  # fmt: skip


def puts_table(found: StreamTimes) -> Table:
    """Show whole decisions beside bare PUTs of the same allocations."""
    table = _table(
        "Decisions on that Placement, and bare PUTs of what they claimed, ms",
        "instances",
        "decision|its claim|the rest|PUTs|decision to PUTs|GETs|runs",
        "Candidates are kept already. its claim: a PUT, or one POST for several. PUTs: "
        "of the same allocations once they were released, one after the other. GETs: "
        "of all runs together.",
    )
    for each in (found.single, found.several):
        table.add_row(*_beside_puts(each))
    return table


def _beside_puts(each: DecisionAndPuts) -> tuple[str, ...]:
    return (
        str(each.n_instances),
        *map(format_percentiles, (each.decision, each.claim, each.rest, each.puts)),
        f"{each.decision.median / each.puts.median:.2f} x",
        str(each.n_gets),
        str(each.decision.n_samples),
    )


def starts_table(found: SourceTimes) -> Table:
    """Show starts from nova's databases."""
    table = _table(
        f"A start from nova 34's databases, {N_CELLS} cells, ms",
        "compute nodes|database",
        "read|first decision|both|runs|nova 34, one request|runs|ratio to both",
        "read: from engines that are not connected yet to a full table; aggregates and "
        "four instances a host included; three hosts of ten have cells and devices. "
        "first decision: without Placement, with a look for nodes that only Placement "
        "knows. nova 34, by turns: its HostManager's loading of all of them, as for "
        "each request; what it reads at its start, instances and aggregates, is left "
        "out.",
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


def looks_table(found: SourceTimes) -> Table:
    """Show looks for what changed."""
    table = _table(
        "A look for what changed in nova's databases, ms",
        "compute nodes|database|what changed",
        "rows|look|runs",
        "In all cells the same number of rows. A look is what a decision waits for "
        r"with \[moorage] refresh_interval = 0, and what is done in the background "
        "otherwise.",
    )
    for row in found.looks:
        table.add_row(
            f"{row.n_hosts:,}", row.kind.value, row.what, f"{row.n_changed:,}",
            format_percentiles(row.ms), str(row.ms.n_samples),
        )  # fmt: skip
    return table


def memory_table(found: SourceTimes) -> Table:
    """Show what a host takes in memory."""
    table = _table(
        "Memory of the host table and of the source nova_db",
        "compute nodes|each with",
        "bytes a host",
        "By tracemalloc, after a start, from SQLite.",
    )
    for row in found.memory:
        table.add_row(f"{row.n_hosts:,}", row.what, f"{row.bytes_a_host:,.0f}")
    return table


def wire_table(rows: list[WireTime]) -> Table:
    """Show reading and writing of messages."""
    table = _table(
        "A message on the wire, ms",
        "what|direction",
        "bytes|ours|nova 34|ratio",
        f"JSON included; no transport. Each run is the mean of {NUMBER} calls.",
    )
    directions = {"read": "JSON to objects", "write": "objects to JSON"}
    for row in rows:
        for name, direction in directions.items():
            ours, nova = row.ours[name], row.novas.get(name)
            table.add_row(
                row.what, direction, f"{row.n_bytes:,}", format_percentiles(ours),
                format_percentiles(nova),
                _ratio(nova.median if nova else None, ours.median),
            )  # fmt: skip
    return table
