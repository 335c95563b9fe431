# SPDX-License-Identifier: Apache-2.0
"""What the commands `moorage simulate` and `moorage tune` simulate."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.progress import Progress, TimeRemainingColumn

from ...display import listed
from ...errors import InvalidRequest, SchedulerError
from .answering import FiniteNumber, age_s
from .replaying import Setting, read_options_with
from .session import CommandSession
from .stored_records import read_record, stored_records
from .text import cell, safe

if TYPE_CHECKING:  # NumPy is slow to import
    from oslo_config import cfg

    from ....objects import RequestSpec
    from ....simulator.cloud import Hosts, Shape
    from ....simulator.events import HostEvent
    from ....simulator.simulation import Result
    from ....simulator.traces import Trace
    from ...views import StoredView

_MAX_HISTORY: Final = 100_000
_NO_HOSTS: Final = (
    "Pass --hosts, such as --hosts 600 --shape 96:562, or --inventory FILE, or --cloud"
)
_NO_TRACE: Final = "Pass a trace, --synthetic or --history"
#: Decisions that are named, of those whose request cannot be read.
_MAX_NAMED: Final = 3

#: From a trace, the hosts of a simulation of it.
MakeHosts = Callable[["Trace"], "Hosts"]

_OPTIONS: Final = (
    click.argument(
        "paths", nargs=-1, type=click.Path(path_type=Path), metavar="[TRACE]…"
    ),
    click.option(
        "--columns", metavar="NAME=COLUMN,…",
        help="The columns of a CSV file of another format: id, arrival_s, departure_s, "
        "vcpus and memory_mb, and if it has them disk_gb, flavor and project_id.",
    ),
    click.option(
        "--synthetic", type=click.IntRange(1), metavar="N",
        help="Simulate N requests of a Poisson process instead of a trace.",
    ),
    click.option(
        "--rate", type=FiniteNumber(min=0, min_open=True), default=100.0,
        show_default=True, help="With --synthetic: requests an hour.",
    ),
    click.option(
        "--lifetime", type=FiniteNumber(min=0, min_open=True), default=24.0,
        show_default=True, help="With --synthetic: the mean lifetime, hours.",
    ),
    click.option(
        "--history", metavar="AGE", callback=age_s,
        help="Simulate the stored decisions that are not older, such as 7d. When "
        "instances were deleted is not stored: all of them stay.",
    ),
    click.option(
        "--first", "n_requests", type=click.IntRange(1), metavar="N",
        help="Only the first N requests of each trace.",
    ),
    click.option(
        "--hosts", "n_hosts", type=click.IntRange(1), help="How many equal hosts."
    ),
    click.option(
        "--shape", default="96:562", show_default=True, metavar="CORES:GIB[:GB]",
        help="With --hosts: cores, memory and disk of each.",
    ),
    click.option(
        "--inventory", "inventory_file", type=click.Path(path_type=Path),
        help="A file of hosts, as [moorage] inventory_file has it, instead of --hosts; "
        "or openb's CSV file of nodes.",
    ),
    click.option(
        "--cloud", "is_cloud", is_flag=True,
        help="The hosts, with their instances, and the options of the cloud, or of the "
        "snapshot of `moorage --snapshot FILE`, instead of --hosts.",
    ),
    click.option(
        "--events", "events_file", type=click.Path(path_type=Path), metavar="FILE",
        help="A YAML or JSON file of hosts that fail, are drained or are added, such "
        "as [{at: 36h, kind: fail, number: 2}].",
    ),
    click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True,
        help="Orders hosts of equal weight.",
    ),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class SimulationInput:
    """The requests and the hosts that the options of a command name."""

    paths: Sequence[Path]
    columns: str | None
    synthetic: int | None
    rate: float
    lifetime: float
    history: float | None
    n_requests: int | None
    n_hosts: int | None
    shape: str
    inventory_file: Path | None
    is_cloud: bool
    events_file: Path | None
    seed: int

    def check(self) -> None:
        """Refuse requests or hosts that are named twice, or not at all.

        Raises
        ------
        click.UsageError
        """
        given = bool(self.paths), self.synthetic is not None, self.history is not None
        if sum(given) != 1:
            raise click.UsageError(_NO_TRACE)
        named = self.n_hosts is not None, self.inventory_file is not None
        if sum((*named, self.is_cloud)) != 1:
            raise click.UsageError(_NO_HOSTS)

    def view(self, session: CommandSession) -> StoredView | None:
        """Return the cloud as it is; None: the hosts are others.

        Raises
        ------
        click.ClickException
            The API cannot be asked, or has another version.
        """
        if not self.is_cloud:
            return None
        from ...clock import now_s
        from ...views import StoredView, UnreadableView

        data = b64decode(session.api().get("views", "now")["data"])
        try:
            view = StoredView.decode(data)
            view.table(now_s)
        except UnreadableView as e:
            raise click.ClickException(f"The cloud cannot be read: {e}") from e
        return view

    def hosts(self, view: StoredView | None) -> MakeHosts:
        """Return a function that makes the hosts of a simulation of a trace.

        Parameters
        ----------
        view : StoredView or None
            That of `view`.

        Raises
        ------
        click.ClickException
            The shape or the file is wrong; one line says how.
        """
        from ....simulator.cloud import equal_hosts, read_nodes
        from ....simulator.traces import TraceError
        from ...sources.inventory import read_inventory
        from ...sources.report_columns import load_columns

        if view is not None:
            return lambda _trace: view
        path, n_hosts = self.inventory_file, self.n_hosts
        if path is not None:
            try:
                if path.suffix == ".csv":
                    inventory = read_nodes(path)
                else:
                    inventory = read_inventory(path, load_columns())
            except (TraceError, SchedulerError) as e:
                raise click.ClickException(str(e)) from e
            if not inventory.hosts:
                raise click.ClickException(f"{path} has no hosts")
            return lambda _trace: inventory
        of_shape = self._shape()
        assert n_hosts is not None
        return lambda trace: equal_hosts(n_hosts, of_shape, trace.units)

    def _shape(self) -> Shape:
        from ....simulator.cloud import Shape

        try:
            return Shape.parse(self.shape)
        except ValueError as e:
            raise click.BadParameter(str(e), param_hint="--shape") from e

    def events(self) -> Sequence[HostEvent]:
        """Return what happens to hosts.

        Raises
        ------
        click.ClickException
            The file is wrong; one line says how.
        """
        from ....simulator.events import EventsError, read_events

        if self.events_file is None:
            return ()
        try:
            return read_events(self.events_file, self._shape())
        except EventsError as e:
            raise click.ClickException(str(e)) from e

    def traces(self, session: CommandSession) -> Sequence[Trace]:
        """Return the requests, as one or several traces.

        Raises
        ------
        TraceError, click.ClickException
        """
        if self.synthetic is not None:
            from ....simulator.traces import synthetic_trace

            read = [
                synthetic_trace(
                    self.synthetic,
                    rate_per_h=self.rate,
                    mean_lifetime_h=self.lifetime,
                    seed=self.seed,
                )
            ]
        else:
            read = read_traces(session, self.paths, self.columns, self.history)
        if self.is_cloud:
            read = [trace.repeated() for trace in read]
        n_requests = self.n_requests
        return read if n_requests is None else [t.first(n_requests) for t in read]


def simulation_input(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the requests and hosts; the command gets them as `given`."""

    @functools.wraps(command)
    def with_input(*args: object, **options: Any) -> None:  # noqa: ANN401 - click's
        names = [field.name for field in dataclasses.fields(SimulationInput)]
        given = SimulationInput(**{name: options.pop(name) for name in names})
        given.check()
        command(*args, given=given, **options)

    for option in reversed(_OPTIONS):
        with_input = option(with_input)
    return with_input


def read_traces(
    session: CommandSession,
    paths: Sequence[Path],
    columns: str | None,
    history_s: float | None,
) -> list[Trace]:
    """Return the traces of files, or of the stored decisions of so many seconds.

    Files of equal names in several directories are named by their paths.

    Raises
    ------
    TraceError, click.ClickException
    """
    from ....simulator.traces import parse_columns, read_trace

    if history_s is not None:
        return [_history(session, history_s)]
    names = None if columns is None else parse_columns(columns)
    traces = [read_trace(path, names) for path in paths]
    n_of_name = Counter(trace.name for trace in traces)
    return [
        dataclasses.replace(trace, name=safe(path, 4096))
        if n_of_name[trace.name] > 1
        else trace
        for path, trace in zip(paths, traces, strict=True)
    ]


def requested_flavors(traces: Sequence[Trace], n_flavors: int) -> list[str]:
    """Return the most frequent flavors of requests, as `fragmentation_flavors`.

    Raises
    ------
    click.ClickException
        The option can name none of them.
    """
    from ....weighers.fragmentation import mix_of
    from ...request import Request

    requests = []
    for trace in traces:
        needs_room = trace.amounts().any(axis=1)  # unlike bare metal
        n_of_spec = Counter(trace.spec_of[needs_room].tolist())
        requests += [(Request.of(trace.specs[i]), n) for i, n in n_of_spec.items()]
    mix = mix_of(requests, n_flavors)
    if not mix:
        raise click.ClickException(
            "No request needs CPUs of a host, so that fragmentation_flavors would be "
            "empty"
        )
    return mix


def _history(session: CommandSession, max_age_s: float) -> Trace:
    """Return the stored decisions that selected or refused hosts, as a trace."""
    from ....simulator.traces import history_trace
    from ...drivers.record import Outcome

    since = max(0.0, session.api().now() - max_age_s)
    unreadable: list[str] = []

    def decisions() -> Iterator[tuple[float, Sequence[str], RequestSpec]]:
        for answer in stored_records(session.api(), _MAX_HISTORY, since=since):
            stored = read_record(answer)
            if stored.outcome is Outcome.FAILED:
                continue
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


def options_of(
    files: Sequence[str], settings: Sequence[Setting], view: StoredView | None
) -> cfg.ConfigOpts:
    """Return the options of files and settings, the others of them from a view.

    Raises
    ------
    click.ClickException
        A file cannot be read, a value is invalid, or an option does not exist.
    """
    from ...clock import now_s
    from ...conf import registered_opts
    from ...drivers.plugins import load_plugin_set
    from ...views import UnreadableView
    from ...views.options import apply_options
    from ..checks.files import FileOptions
    from ..checks.option_table import unread_options

    conf = read_options_with(files, settings)
    try:
        if view is not None and not apply_options(conf, view.options):
            # Loading plugins registers their options, which can be set only afterwards.
            load_plugin_set(conf, now_s)
            apply_options(conf, view.options)
    except UnreadableView as e:
        raise click.ClickException(f"The cloud's options cannot be read: {e}") from e
    load_plugin_set(conf, now_s)  # it registers the options of plugins
    registered = {
        (group or "DEFAULT", opt.dest) for group, opt, _ in registered_opts(conf)
    }
    keys = {*FileOptions(files), *((group, option) for group, option, _ in settings)}
    for (group, option), why in sorted(unread_options(keys, registered).items()):
        raise click.ClickException(f"[{group}] {option}: {why}")
    return conf


@contextlib.contextmanager
def progress_bar(n_requests: int) -> Iterator[Callable[[int], None]]:
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


def print_scale(
    console: Console, skipped: Mapping[str, Mapping[str, str]], first: Result
) -> None:
    """Print how many instances and hosts a run has, and what its traces leave out."""
    for trace, by_cause in skipped.items():
        for cause, text in by_cause.items():
            console.print(cell(f"{trace}: left out {text} {cause}", "yellow"))
    bound = "" if first.lower_bound is None else (
        f", {first.n_hosts / first.lower_bound:.2f} times the fewest that could hold "
        f"them ({first.lower_bound:,})"
    )  # fmt: skip
    console.print(
        cell(f"{first.n_requests:,} instances on {first.n_hosts:,} hosts{bound}")
    )
    if first.n_too_large:
        text = f"Larger than any host: {first.n_too_large:,} instance(s)"
        console.print(cell(text, "yellow"))
