# SPDX-License-Identifier: Apache-2.0
"""The command `moorage simulate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from ...errors import SchedulerError
from .answering import age_s, json_option, print_answer
from .replacing import write_output
from .replaying import Setting, set_option
from .session import CommandSession
from .simulation_input import (
    SimulationInput,
    options_of,
    print_scale,
    progress_bar,
    read_traces,
    requested_flavors,
    simulation_input,
)
from .tables import Answer, make_table
from .text import cell, safe

if TYPE_CHECKING:  # NumPy is slow to import
    from oslo_config import cfg

    from ....simulator.comparison import Comparison
    from ....simulator.events import HostEvent
    from ....simulator.simulation import Result
    from ....simulator.traces import Trace
    from ...views import StoredView

_TABLE_FLAVORS: Final = 5


@click.command()
@simulation_input
@set_option("An option that replaces that of the configuration")
@click.option(
    "--compare", "compared", metavar="FILE", multiple=True,
    type=click.Path(path_type=Path),
    help="Run the same requests with the options of this file, beside those of the "
    "configuration; may be repeated.",
)  # fmt: skip
@click.option(
    "--seeds", "n_seeds", type=click.IntRange(1), default=1, show_default=True,
    help="Run each trace so many times, all but the first time with each arrival moved "
    "by up to 5 minutes; the differences get intervals.",
)  # fmt: skip
@click.option(
    "--compact", is_flag=True,
    help="Also search the fewest hosts of --shape without a refusal, by bisection.",
)  # fmt: skip
@click.option(
    "--defragment-every", type=click.IntRange(1), metavar="N",
    help="After each N instances that are placed, do the moves of moorage plan "
    "defragment.",
)  # fmt: skip
@click.option(
    "--max-moves", type=click.IntRange(1), metavar="M",
    help="With --defragment-every: at most M moves each time, by default N / 100, and "
    "those that were allowed earlier and not needed.",
)  # fmt: skip
@click.option(
    "--html", "folder", type=click.Path(path_type=Path), metavar="DIRECTORY",
    help="Write a page with plots, index.html, and the plots as SVG files.",
)  # fmt: skip
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE",
    help="Write the measures over time.",
)  # fmt: skip
@json_option
@click.pass_obj
def simulate(  # noqa: PLR0913 - one for each option
    session: CommandSession,
    given: SimulationInput,
    settings: Sequence[Setting],
    compared: Sequence[Path],
    n_seeds: int,
    compact: bool,
    defragment_every: int | None,
    max_moves: int | None,
    folder: Path | None,
    csv_file: Path | None,
    as_json: bool,
) -> None:
    """Show how well settings pack a trace on simulated hosts.

    The scheduler's own driver, filters and weighers decide, in this process, with the
    options of the configuration; nothing is claimed. TRACE is a CSV file of CoSpot,
    Huawei-East-1 or Alibaba's openb, also with gzip, or the SQLite file of the Azure
    Packing Trace. With equal arguments the results are equal.
    """
    from ....simulator.comparison import Comparison
    from ....simulator.events import EventsError
    from ....simulator.simulation import simulate as run
    from ....simulator.traces import TraceError

    if compact and given.n_hosts is None:
        raise click.UsageError(
            "--compact searches a number of equal hosts: pass --hosts"
        )
    if max_moves is not None and defragment_every is None:
        raise click.UsageError("--max-moves needs --defragment-every")
    view, seed = given.view(session), given.seed
    make_hosts, events = given.hosts(view), given.events()
    if compact and (named := next((event for event in events if event.host), None)):
        raise click.UsageError(
            f"--compact changes the number of hosts, so that {named} may not be "
            "possible: write number: N instead of host: NAME"
        )
    runs: dict[str, list[Result]] = {}
    fewest: dict[str, dict[str, tuple[int | None, int]]] = {}
    try:
        read = given.traces(session)
        confs = _confs(session, settings, compared, view)
        with progress_bar(sum(map(len, read)) * n_seeds * len(confs)) as progress:
            for name, conf in confs.items():
                runs[name] = [
                    run(
                        conf,
                        make_hosts(trace),
                        moved,
                        settings=name,
                        seed=number,
                        events=events,
                        defragment_every=defragment_every,
                        max_moves=max_moves,
                        progress=progress,
                    )
                    for trace in read
                    for number in range(seed, seed + n_seeds)
                    for moved in [trace if number == seed else trace.jittered(number)]
                ]
        if compact:
            for name, conf in confs.items():
                fewest[name] = {
                    trace.name: _fewest(conf, trace, given.shape, seed, events)
                    for trace in read
                }
    except (TraceError, EventsError, SchedulerError) as e:
        raise click.ClickException(safe(str(e), 400)) from e
    comparison = Comparison(runs, fewest)
    answer = comparison.to_dict()
    answer["skipped"] = {trace.name: dict(trace.skipped) for trace in read}
    print_answer(as_json, answer, lambda console, a: _show(console, a, comparison))
    # Last: if a file cannot be written, the results are not lost.
    _write(comparison, folder, csv_file)


@click.command("flavor-mix")
@click.argument("traces", nargs=-1, type=click.Path(path_type=Path), metavar="[TRACE]…")
@click.option("--columns", metavar="NAME=COLUMN,…", help="As for simulate.")
@click.option(
    "--history", metavar="AGE", callback=age_s,
    help="Count the stored decisions that are not older, such as 7d.",
)  # fmt: skip
@click.option(
    "--first", "n_requests", type=click.IntRange(1), metavar="N",
    help="Only the first N requests of each trace.",
)  # fmt: skip
@click.option(
    "--flavors", "n_flavors", type=click.IntRange(1), default=24, show_default=True,
    help="At most so many flavors, the most frequent ones.",
)  # fmt: skip
@click.pass_obj
def flavor_mix(
    session: CommandSession,
    traces: Sequence[Path],
    columns: str | None,
    history: float | None,
    n_requests: int | None,
    n_flavors: int,
) -> None:
    """Print the flavors of requests for fragmentation_flavors.

    Of traces, as simulate reads them, or of the stored decisions. Paste the lines, an
    option of [filter_scheduler], into the configuration, with
    [moorage] preset = pack or a fragmentation_weight_multiplier above 0.
    """
    from ....simulator.traces import TraceError

    if bool(traces) is (history is not None):
        raise click.UsageError("Pass a trace or --history")
    try:
        read = read_traces(session, traces, columns, history)
    except (TraceError, SchedulerError) as e:
        raise click.ClickException(safe(str(e), 400)) from e
    if n_requests is not None:
        read = [trace.first(n_requests) for trace in read]
    mix = requested_flavors(read, n_flavors)
    click.echo(f"[filter_scheduler]\nfragmentation_flavors = {', '.join(mix)}")


def _fewest(
    conf: cfg.ConfigOpts,
    trace: Trace,
    shape: str,
    seed: int,
    events: Sequence[HostEvent],
) -> tuple[int | None, int]:
    """Return the fewest equal hosts without a refusal, and the lower bound."""
    from ....simulator.cloud import Shape, equal_hosts, lower_bound
    from ....simulator.simulation import fewest_hosts
    from ....simulator.simulation import simulate as run

    of_shape = Shape.parse(shape)
    one_host = equal_hosts(1, of_shape, trace.units)
    # Bare metal needs nothing of these hosts.
    bound = lower_bound(trace.peak().tolist(), one_host) or 1

    def run_on(n_hosts: int) -> Result:
        hosts = equal_hosts(n_hosts, of_shape, trace.units)
        return run(
            conf, hosts, trace, seed=seed, events=events, stops_at_refusal=True
        )  # fmt: skip

    return fewest_hosts(run_on, bound), bound


def _confs(
    session: CommandSession,
    settings: Sequence[Setting],
    compared: Sequence[Path],
    view: StoredView | None,
) -> Mapping[str, cfg.ConfigOpts]:
    """Return the options by the name of the settings, those of the command first."""
    files = list(session.config_files)
    first = "configuration" if files or settings or view else "defaults"
    confs = {first: options_of(files, settings, view)}
    for path in compared:
        name = safe(path.stem)
        if name in confs:
            raise click.UsageError(f"--compare: two settings are named {name}")
        confs[name] = options_of([*files, str(path)], settings, view)
    return confs


def _write(comparison: Comparison, folder: Path | None, csv_file: Path | None) -> None:
    """Write the page and the measures.

    Raises
    ------
    click.ClickException
        One of them could not be written.
    """
    option, path = "--csv", csv_file
    try:
        if csv_file is not None:
            write_output(csv_file, comparison.to_csv())
        option, path = "--html", folder
        if folder is not None:
            from ....simulator.page import write_page

            title = "Which settings place these requests best"
            page = write_page(folder, comparison, title)
            click.echo(f"Written: {page}", err=True)
    except ImportError as e:
        raise click.ClickException(
            f"--html needs the extra simulator, matplotlib ({e})"
        ) from e
    except OSError as e:
        raise click.ClickException(
            f"{option} {safe(path)} cannot be written: {e.strerror}"
        ) from e


def _show(console: Console, answer: Answer, comparison: Comparison) -> None:
    from ....simulator.simulation import by_flavor

    names = list(comparison.runs)
    print_scale(console, answer["skipped"], comparison.runs[names[0]][0])
    table = make_table("", "mean", *names, right=names)
    for name, figure in comparison.figures.items():
        shown = (comparison.shown(settings, name) for settings in names)
        table.add_row(figure.text, *shown)
    console.print(table)
    for name, runs in comparison.runs.items():
        if n_moves := sum(run.n_moves for run in runs):
            n_placed = sum(run.n_requests - run.n_refused for run in runs)
            moved_gib = sum(run.moved_gib for run in runs)
            text = (
                f"{name}: {n_moves:,} moves to empty hosts, one for each "
                f"{n_placed / n_moves:,.0f} instances placed, {moved_gib:,.0f} GiB of "
                "memory"
            )
            console.print(cell(text))
    for name, by_trace in answer["fewest_hosts"].items():
        for trace, found in by_trace.items():
            hosts, bound = found["hosts"], found["lower_bound"]
            text = (
                f"refuses instances on four times the lower bound of {bound:,} hosts"
                if hosts is None
                else f"{hosts:,} hosts are the fewest without a refusal, "
                f"{hosts / bound:.3f} times the lower bound of {bound:,}"
            )
            console.print(cell(f"{name}, {trace}: {text}"))
    for name, runs in comparison.runs.items():
        _show_events(console, name, runs)
        refused = by_flavor(runs).most_common(_TABLE_FLAVORS)
        if refused:
            flavors = ", ".join(f"{flavor} {n:,}" for flavor, n in refused)
            console.print(cell(f"{name}: refused most often: {flavors}"))


def _show_events(console: Console, name: str, runs: Sequence[Result]) -> None:
    """Print what became of each event, as means over the runs."""
    for happened in zip(*(run.happened for run in runs), strict=True):
        event, n = happened[0].event, len(happened)
        if event.kind == "add":
            console.print(cell(f"{name}: {event}"))
            continue
        n_instances = sum(one.n_instances for one in happened) / n
        n_unplaced = sum(len(one.unplaced) for one in happened) / n
        text = f"{n_instances:,.1f} instances, {n_unplaced:,.1f} without another host"
        if n_unknown := sum(one.n_unknown for one in happened) / n:
            text += f"; the requests of {n_unknown:,.1f} more are not known"
        console.print(cell(f"{name}: {event}: {text}"))
