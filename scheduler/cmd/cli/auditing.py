# SPDX-License-Identifier: Apache-2.0
"""The command `moorage audit`."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from rich.console import Console

from ...display import age
from ...errors import SchedulerError
from ...failures import one_line
from .answering import FiniteNumber, age_s, print_answer, print_notes
from .client import read_options
from .session import CommandSession
from .tables import Answer, make_table
from .text import cell, safe

if TYPE_CHECKING:
    from ...audit import AuditReport

#: Findings of each kind that a table has.
_MAX_SHOWN: Final = 20


class _AuditFailed(click.ClickException):
    """Raised when the source or Placement cannot be read."""

    exit_code = 2


@click.command()
@click.option(
    "--pause", "pause_s", type=FiniteNumber(0, 86400), default=10.0,
    show_default=True, metavar="SECONDS",
    help="The time between two comparisons: what only one finds is not reported.",
)  # fmt: skip
@click.option(
    "--older-than", "min_age_s", metavar="AGE", callback=age_s, default="60s",
    show_default=True,
    help="Report only what began before that, where the time is known; 0s: report all.",
)  # fmt: skip
@click.option(
    "--rate", type=FiniteNumber(0, min_open=True), default=20.0, show_default=True,
    metavar="N",
    help="GETs a second to Placement, if its database is not configured.",
)  # fmt: skip
@click.option(
    "--format", "output", type=click.Choice(["table", "json", "prometheus"]),
    default="table", show_default=True,
    help="prometheus: the counts, for the textfile collector of node_exporter.",
)  # fmt: skip
@click.pass_context
def audit(
    context: click.Context, pause_s: float, min_age_s: float, rate: float, output: str
) -> None:
    """Compare Placement with the hosts and instances.

    It lists allocations that no instance uses, instances without an allocation or with
    a wrong one, and providers, inventories and aggregates that differ, each with the
    command that repairs it. Nothing is changed.

    It asks no API of Moorage: the configuration names the source and Placement. The
    exit status is 0 if nothing was found, 1 if something was, and 2 if the source or
    Placement could not be read.
    """
    session: CommandSession = context.obj
    if session.snapshot is not None or session.url is not None:
        raise click.UsageError(
            "moorage audit reads Placement and the source themselves: pass "
            "--config-file instead of --snapshot or --url"
        )
    report = _audited(session, pause_s, min_age_s, rate)
    if output == "prometheus":
        from ...telemetry.audit_metrics import audit_metrics

        click.echo(audit_metrics(report), nl=False)
    elif output == "json":
        click.echo(json.dumps(_to_dict(report), indent=2))
    else:
        print_answer(False, _to_dict(report), _show)
    context.exit(1 if report.findings else 0)


def _audited(
    session: CommandSession, pause_s: float, min_age_s: float, rate: float
) -> AuditReport:
    from oslo_service import backend

    with contextlib.suppress(backend.exceptions.BackendAlreadySelected):
        # Must precede the import of oslo.messaging, which otherwise selects eventlet.
        backend.init_backend(backend.BackendType.THREADING)
    # Their warnings concern the start of a scheduler; what matters here is raised.
    logging.getLogger("moorage").addHandler(logging.NullHandler())
    from ...audit import audit as run

    try:
        conf = read_options(session.config_files)
    except click.ClickException as e:
        _fail(e.message)
    try:
        return run(
            conf,
            pause_s=pause_s,
            min_age_s=min_age_s,
            rate=rate,
            note=lambda text: click.echo(text, err=True),
        )
    except (SchedulerError, OSError) as e:
        _fail(f"The audit failed: {e}")


def _fail(text: str) -> NoReturn:
    raise _AuditFailed(safe(one_line(text), 600))


def _to_dict(report: AuditReport) -> dict[str, Any]:
    return {
        "began_at": report.began_at,
        "ended_at": report.ended_at,
        "n_hosts": report.n_hosts,
        "n_providers": report.n_providers,
        "n_consumers": report.n_consumers,
        "counts": {kind.value: n for kind, n in report.counts.items()},
        "findings": [
            {
                "kind": finding.kind.value,
                "title": finding.kind.title,
                "subject": finding.subject,
                "host": finding.name or None,
                "evidence": finding.evidence,
                "since": finding.since,
                "repair": list(finding.repair),
            }
            for finding in report.findings
        ],
        "notes": list(report.notes),
    }


def _show(console: Console, answer: Answer) -> None:
    console.print(
        f"{answer['n_consumers']:,} consumers, {answer['n_providers']:,} resource "
        f"providers and {answer['n_hosts']:,} compute nodes compared in "
        f"{answer['ended_at'] - answer['began_at']:.0f} s: "
        f"{len(answer['findings']):,} findings.",
        markup=False,
    )
    by_title: dict[str, list[Answer]] = {}
    for finding in answer["findings"]:
        by_title.setdefault(finding["title"], []).append(finding)
    for title, findings in by_title.items():
        table = make_table(
            f"{title}: {len(findings):,}",
            "UUID",
            "age",
            "evidence, and what repairs it",
        )
        for finding in findings[:_MAX_SHOWN]:
            since = finding["since"]
            text = cell(finding["evidence"])
            for command in finding["repair"]:
                text.append(f"\n{safe(command, 2000)}", "bold")
            seconds = None if since is None else answer["ended_at"] - since
            table.add_row(cell(finding["subject"]), cell(age(seconds)), text)
        console.print(table)
        if len(findings) > _MAX_SHOWN:
            n_more = len(findings) - _MAX_SHOWN
            console.print(f"and {n_more:,} more; --format json has all", markup=False)
    print_notes(console, answer["notes"])
