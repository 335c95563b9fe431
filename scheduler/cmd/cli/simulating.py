# SPDX-License-Identifier: Apache-2.0
"""The command `moorage simulate`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import Progress, TimeRemainingColumn

from ...display import listed
from ...errors import InvalidRequest, SchedulerError
from .answering import age_s, json_option, print_answer
from .replaying import Setting, read_options_with, set_option
from .session import CommandSession
from .stored_records import read_record, stored_records
from .tables import Answer, make_table
from .text import cell, safe

if TYPE_CHECKING:  # NumPy is slow to import
    from oslo_config import cfg

    from ....objects import RequestSpec
    from ....simulator.comparison import Comparison
    from ....simulator.simulation import Result
    from ....simulator.traces import Trace
    from ...sources.inventory import Inventory

_MAX_HISTORY: Final = 100_000
_NO_HOSTS: Final = (
    "Pass --hosts, such as --hosts 600 --shape 96:562, or --inventory FILE"
)
_NO_TRACE: Final = "Pass a trace, --synthetic or --history"
_TABLE_FLAVORS: Final = 5
#: Decisions that are named, of those whose request cannot be read.
_MAX_NAMED: Final = 3

#: From a trace, the hosts of a simulation of it.
_MakeHosts = Callable[["Trace"], "Inventory"]


@click.command()
@click.argument("traces", nargs=-1, type=click.Path(path_type=Path), metavar="[TRACE]…")
@click.option(
    "--columns", metavar="NAME=COLUMN,…",
    help="The columns of a CSV file of another format: id, arrival_s, departure_s, "
    "vcpus and memory_mb, and if it has them disk_gb, flavor and project_id.",
)  # fmt: skip
@click.option(
    "--synthetic", type=click.IntRange(1), metavar="N",
    help="Simulate N requests of a Poisson process instead of a trace.",
)  # fmt: skip
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), default=100.0,
    show_default=True, help="With --synthetic: requests an hour.",
)  # fmt: skip
@click.option(
    "--lifetime", type=click.FloatRange(min=0, min_open=True), default=24.0,
    show_default=True, help="With --synthetic: the mean lifetime, hours.",
)  # fmt: skip
@click.option(
    "--history", metavar="AGE", callback=age_s,
    help="Simulate the stored decisions that are not older, such as 7d. When instances "
    "were deleted is not stored: all of them stay.",
)  # fmt: skip
@click.option(
    "--first", "n_requests", type=click.IntRange(1), metavar="N",
    help="Only the first N requests of each trace.",
)  # fmt: skip
@click.option(
    "--hosts", "n_hosts", type=click.IntRange(1), help="How many equal hosts."
)
@click.option(
    "--shape", default="96:562", show_default=True, metavar="CORES:GIB[:GB]",
    help="With --hosts: cores, memory and disk of each.",
)  # fmt: skip
@click.option(
    "--inventory", "inventory_file", type=click.Path(path_type=Path),
    help="A file of hosts, as [moorage] inventory_file has it, instead of --hosts.",
)  # fmt: skip
@set_option("An option that replaces that of the configuration")
@click.option(
    "--compare", "compared", metavar="FILE", multiple=True,
    type=click.Path(path_type=Path),
    help="Run the same requests with the options of this file, beside those of the "
    "configuration; may be repeated.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="Orders hosts of equal weight.")  # fmt: skip
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
    traces: Sequence[Path],
    columns: str | None,
    synthetic: int | None,
    rate: float,
    lifetime: float,
    history: float | None,
    n_requests: int | None,
    n_hosts: int | None,
    shape: str,
    inventory_file: Path | None,
    settings: Sequence[Setting],
    compared: Sequence[Path],
    seed: int,
    n_seeds: int,
    compact: bool,
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
    from ....simulator.simulation import simulate as run
    from ....simulator.traces import TraceError

    if sum((bool(traces), synthetic is not None, history is not None)) != 1:
        raise click.UsageError(_NO_TRACE)
    if (n_hosts is None) is (inventory_file is None):
        raise click.UsageError(_NO_HOSTS)
    if compact and inventory_file is not None:
        raise click.UsageError(
            "--compact searches a number of equal hosts: pass --hosts"
        )
    make_hosts = _hosts(n_hosts, shape, inventory_file)
    runs: dict[str, list[Result]] = {}
    fewest: dict[str, dict[str, tuple[int | None, int]]] = {}
    try:
        if synthetic is not None:
            read = [_synthetic(synthetic, rate, lifetime, seed)]
        elif history is not None:
            read = [_history(session, history)]
        else:
            read = [_trace(path, columns) for path in traces]
        if n_requests is not None:
            read = [trace.first(n_requests) for trace in read]
        confs = _confs(session, settings, compared)
        with _progress_bar(sum(map(len, read)) * n_seeds * len(confs)) as progress:
            for name, conf in confs.items():
                runs[name] = [
                    run(
                        conf,
                        make_hosts(trace),
                        moved,
                        settings=name,
                        seed=number,
                        progress=progress,
                    )
                    for trace in read
                    for number in range(seed, seed + n_seeds)
                    for moved in [trace if number == seed else trace.jittered(number)]
                ]
        if compact:
            for name, conf in confs.items():
                fewest[name] = {
                    trace.name: _fewest(conf, trace, shape, seed) for trace in read
                }
    except (TraceError, SchedulerError) as e:
        raise click.ClickException(safe(str(e), 400)) from e
    comparison = Comparison(runs, fewest)
    _write(comparison, folder, csv_file)
    answer = comparison.to_dict()
    answer["skipped"] = {trace.name: dict(trace.skipped) for trace in read}
    print_answer(as_json, answer, lambda console, a: _show(console, a, comparison))


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
    option of [filter_scheduler], into the configuration, with a
    fragmentation_weight_multiplier above 0.
    """
    from ....simulator.traces import TraceError
    from ....weighers.fragmentation import mix_of
    from ...request import Request

    if bool(traces) is (history is not None):
        raise click.UsageError("Pass a trace or --history")
    try:
        read = (
            [_trace(path, columns) for path in traces]
            if history is None
            else [_history(session, history)]
        )
    except (TraceError, SchedulerError) as e:
        raise click.ClickException(safe(str(e), 400)) from e
    requests = []
    for trace in read:
        part = trace if n_requests is None else trace.first(n_requests)
        n_of_spec = Counter(part.spec_of.tolist())
        requests += [(Request.of(part.specs[i]), n) for i, n in n_of_spec.items()]
    mix = mix_of(requests, n_flavors)
    click.echo(f"[filter_scheduler]\nfragmentation_flavors = {', '.join(mix)}")


@contextlib.contextmanager
def _progress_bar(n_requests: int) -> Iterator[Callable[[int], None]]:
    """Show the progress on a terminal's standard error; yield what advances it."""
    console = Console(stderr=True)
    with Progress(
        *Progress.get_default_columns()[:-1],
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("Placing", total=n_requests)
        yield functools.partial(progress.advance, task)


def _fewest(
    conf: cfg.ConfigOpts, trace: Trace, shape: str, seed: int
) -> tuple[int | None, int]:
    """Return the fewest equal hosts without a refusal, and the lower bound."""
    from ....simulator.cloud import Shape, equal_hosts, lower_bound
    from ....simulator.simulation import fewest_hosts
    from ....simulator.simulation import simulate as run

    of_shape = Shape.parse(shape)
    one_host = equal_hosts(1, of_shape, trace.units)
    bound = lower_bound(trace.peak().tolist(), one_host)
    assert bound is not None  # one host is as large as itself

    def run_on(n_hosts: int) -> Result:
        hosts = equal_hosts(n_hosts, of_shape, trace.units)
        return run(conf, hosts, trace, seed=seed, stops_at_refusal=True)

    return fewest_hosts(run_on, bound), bound


def _hosts(n_hosts: int | None, shape: str, path: Path | None) -> _MakeHosts:
    """Return a function that makes the hosts of a simulation of a trace."""
    from ....simulator.cloud import Shape, equal_hosts
    from ...sources.inventory import read_inventory
    from ...sources.report_columns import load_columns

    if path is not None:
        try:
            inventory = read_inventory(path, load_columns())
        except SchedulerError as e:
            raise click.ClickException(str(e)) from e
        if not inventory.hosts:
            raise click.ClickException(f"{path} has no hosts")
        return lambda _trace: inventory
    try:
        of_shape = Shape.parse(shape)
    except ValueError as e:
        raise click.BadParameter(str(e), param_hint="--shape") from e
    assert n_hosts is not None
    return lambda trace: equal_hosts(n_hosts, of_shape, trace.units)


def _trace(path: Path, columns: str | None) -> Trace:
    from ....simulator.traces import parse_columns, read_trace

    return read_trace(path, None if columns is None else parse_columns(columns))


def _synthetic(n_requests: int, rate: float, lifetime: float, seed: int) -> Trace:
    from ....simulator.traces import synthetic_trace

    return synthetic_trace(
        n_requests, rate_per_h=rate, mean_lifetime_h=lifetime, seed=seed
    )


def _history(session: CommandSession, max_age_s: float) -> Trace:
    """Return the stored decisions that selected or refused hosts, as a trace."""
    from ....simulator.traces import history_trace

    since = max(0.0, session.api().now() - max_age_s)
    unreadable: list[str] = []

    def decisions() -> Iterator[tuple[float, Sequence[str], RequestSpec]]:
        for answer in stored_records(session.api(), _MAX_HISTORY, since=since):
            stored = read_record(answer)
            try:
                request = stored.request
            except InvalidRequest:  # such as one of another release
                unreadable.append(stored.request_id or answer["id"])
                continue
            if request is not None and stored.instance_uuids:
                yield stored.decided_at, stored.instance_uuids, request

    trace = history_trace(decisions(), "history")
    if not unreadable:
        return trace
    text = f"{len(unreadable)} ({safe(listed(unreadable, _MAX_NAMED))})"
    skipped = {"whose request cannot be read": text}
    return dataclasses.replace(trace, skipped=skipped)


def _confs(
    session: CommandSession, settings: Sequence[Setting], compared: Sequence[Path]
) -> Mapping[str, cfg.ConfigOpts]:
    """Return the options by the name of the settings, those of the command first."""
    files = list(session.config_files)
    first = "configuration" if files or settings else "defaults"
    confs = {first: _options(files, settings)}
    for path in compared:
        name = safe(path.stem)
        if name in confs:
            raise click.UsageError(f"--compare: two settings are named {name}")
        confs[name] = _options([*files, str(path)], settings)
    return confs


def _options(files: Sequence[str], settings: Sequence[Setting]) -> cfg.ConfigOpts:
    """Return the options of files and settings.

    Raises
    ------
    click.ClickException
        A file cannot be read, a value is invalid, or an option does not exist.
    """
    from ...clock import now_s
    from ...conf import registered_opts
    from ...drivers.plugins import load_plugin_set
    from ..checks.files import FileOptions
    from ..checks.option_table import unread_options

    conf = read_options_with(files, settings)
    load_plugin_set(conf, now_s)  # it registers the options of plugins
    registered = {
        (group or "DEFAULT", opt.dest) for group, opt, _ in registered_opts(conf)
    }
    keys = {*FileOptions(files), *((group, option) for group, option, _ in settings)}
    for (group, option), why in sorted(unread_options(keys, registered).items()):
        raise click.ClickException(f"[{group}] {option}: {why}")
    return conf


def _write(comparison: Comparison, folder: Path | None, csv_file: Path | None) -> None:
    """Write the page and the measures; what could not be written gets one line."""
    try:
        if csv_file is not None:
            csv_file.write_text(comparison.to_csv(), encoding="utf-8")
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
        click.echo(f"Error: {e.filename} cannot be written: {e.strerror}", err=True)


def _show(console: Console, answer: Answer, comparison: Comparison) -> None:
    from ....simulator.comparison import FIGURES
    from ....simulator.simulation import by_flavor

    for trace, skipped in answer["skipped"].items():
        for cause, text in skipped.items():
            console.print(cell(f"{trace}: left out {text} {cause}", "yellow"))
    names = list(comparison.runs)
    [first, *_] = comparison.runs[names[0]]
    bound = "" if first.lower_bound is None else (
        f", {first.n_hosts / first.lower_bound:.2f} times the fewest that could hold "
        f"them ({first.lower_bound:,})"
    )  # fmt: skip
    console.print(
        cell(f"{first.n_requests:,} instances on {first.n_hosts:,} hosts{bound}")
    )
    if first.n_too_large:
        text = f"{first.n_too_large:,} instances are larger than any host"
        console.print(cell(text, "yellow"))
    table = make_table("", "mean", *names, right=names)
    for figure, (text, factor, unit, _) in FIGURES.items():
        table.add_row(
            text,
            *(_figure(comparison, name, figure, factor, unit) for name in names),
        )
    console.print(table)
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
        refused = by_flavor(runs).most_common(_TABLE_FLAVORS)
        if refused:
            flavors = ", ".join(f"{flavor} {n:,}" for flavor, n in refused)
            console.print(cell(f"{name}: refused most often: {flavors}"))


def _figure(
    comparison: Comparison, name: str, figure: str, factor: float, unit: str
) -> str:
    text = f"{factor * comparison.mean(name, figure):,.1f}{unit}"
    if name == comparison.base:
        return text
    difference = comparison.difference(name, figure)
    text += f" ({factor * difference.mean:+,.1f}"
    if not math.isnan(difference.margin):
        text += f" ± {factor * difference.margin:,.1f}"
    return f"{text})"
