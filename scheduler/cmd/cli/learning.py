# SPDX-License-Identifier: Apache-2.0
"""The command `moorage lifetimes`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import SchedulerError
from .answering import age_s
from .client import read_options
from .session import CommandSession
from .text import safe

if TYPE_CHECKING:
    from ....simulator.traces import Trace
    from ....weighers.lifetime_model import Life


@click.command("lifetimes")
@click.argument("traces", nargs=-1, type=click.Path(path_type=Path), metavar="[TRACE]…")
@click.option("--columns", metavar="NAME=COLUMN,…", help="As for simulate.")
@click.option(
    "--first", "n_requests", type=click.IntRange(1), metavar="N",
    help="Learn from the first N requests of each trace, and from what was known when "
    "the last of them arrived.",
)  # fmt: skip
@click.option(
    "--since", "max_age_s", metavar="AGE", callback=age_s,
    help="Learn from the last days only, such as 30d; without a trace.",
)  # fmt: skip
@click.pass_obj
def lifetimes(
    session: CommandSession,
    traces: Sequence[Path],
    columns: str | None,
    n_requests: int | None,
    max_age_s: float | None,
) -> None:
    """Print how long instances live, for lifetime_model.

    Without a trace, it is learned from all cells of the nova databases that the
    configuration names: from the instances that live, and from those that were deleted,
    until nova archives them. Save the output as the file that [filter_scheduler]
    lifetime_model names, with a lifetime_weight_multiplier above 0. A model is learned
    by project, CPUs with memory, and image; groups of few instances are part of larger
    ones.
    """
    from ....simulator.traces import TraceError, parse_columns, read_trace
    from ....weighers.lifetime_model import learn

    if traces and max_age_s is not None:
        raise click.UsageError("--since has no use with a trace: pass --first")
    if n_requests is not None and not traces:
        raise click.UsageError("--first needs a trace: pass --since")
    try:
        if traces:
            names = None if columns is None else parse_columns(columns)
            lives = [
                life
                for path in traces
                for life in _lives_of(read_trace(path, names), n_requests)
            ]
        else:
            lives = list(_lives_in_nova(session, max_age_s))
        model = learn(lives)
    except (TraceError, SchedulerError, ValueError) as e:
        raise click.ClickException(safe(str(e), 400)) from e
    click.echo(model.to_json(), nl=False)


def _lives_of(trace: Trace, n_requests: int | None) -> Iterator[Life]:
    """Yield what was observed from a trace's beginning to its last arrival."""
    from ....weighers.lifetime_model import Life, group_of
    from ...request import Request

    part = trace if n_requests is None else trace.first(n_requests)
    groups = [group_of(Request.of(spec)) for spec in part.specs]
    since, until = max(0.0, part.arrivals[0]), part.arrivals[-1]
    rows = zip(
        part.spec_of.tolist(),
        part.arrivals.tolist(),
        part.departures.tolist(),
        strict=True,
    )
    for spec, arrival_s, departure_s in rows:
        life = Life.observed(groups[spec], arrival_s, departure_s, since, until)
        if life is not None:
            yield life


def _lives_in_nova(session: CommandSession, max_age_s: float | None) -> Iterator[Life]:
    """Yield what nova's databases show of instances up to now."""
    from ....weighers.lifetime_model import Life
    from ...audit.nova_cloud import NovaReader
    from ...clock import now_s

    now = now_s()
    with closing(NovaReader(read_options(session.config_files))) as reader:
        launches = list(reader.launches())
    # Rows that were deleted earlier are archived, or there were none.
    first_end = min((ended_at for _, ended_at in launches), default=math.inf)
    if math.isinf(first_end):
        raise click.ClickException(
            "nova's databases have no deleted instance to learn from; "
            "`nova-manage db archive_deleted_rows` removes them"
        )
    since = first_end if max_age_s is None else max(first_end, now - max_age_s)
    for launch, ended_at in launches:
        life = Life.observed(launch[1:], launch[0], ended_at, since, now)
        if life is not None:
            yield life
