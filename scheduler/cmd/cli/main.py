# SPDX-License-Identifier: Apache-2.0
"""The commands of moorage, and their options."""

from __future__ import annotations

import contextlib
import json
import logging
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import get_completion_class
from rich.console import Console

from .... import __version__
from ...errors import MAX_MESSAGE
from ..output import explained_output
from . import (
    auditing,
    explaining,
    learning,
    planning,
    replaying,
    requesting,
    simulating,
    snapshotting,
    tables,
    tuning,
    what_if,
)
from .answering import (
    age_s,
    json_option,
    print_answer,
    seconds_of_time,
)
from .client import ApiClient
from .hosts import hosts
from .locality.commands import locality
from .session import CommandSession
from .tables import Answer
from .text import safe

_FOLLOW_S: Final = 2.0
#: Seconds by which a decision may be stored later than a newer one.
_LATE_S: Final = 10.0
#: Decisions that are read to be counted by cause.
_SHELLS: Final = ("bash", "zsh", "fish")


def main() -> None:
    """Run with the process's arguments; exit."""
    # They warn of a Keystone, and of each attempt to reach a broker; the command says
    # so in its error.
    logging.getLogger("keystoneauth").setLevel(logging.ERROR)
    logging.getLogger("oslo.messaging").setLevel(logging.CRITICAL)
    with explained_output("Error: ", status=1):
        cli(prog_name="moorage", windows_expand_args=False)


class _Commands(click.Group):
    """The commands; their errors may quote files and the API, which are not trusted."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an argument that cannot be sent or stored is an error.

        Control characters of errors are escaped.
        """
        try:
            return super().invoke(ctx)
        except UnicodeEncodeError as e:
            if e.encoding != "utf-8":  # a terminal that lacks a character
                raise
            # In an argument, Python keeps a byte that is not UTF-8 as a surrogate.
            raise click.UsageError(f"{e.object[:50]!r} is not UTF-8") from e
        except click.ClickException as e:
            lines = [safe(line, MAX_MESSAGE) for line in e.message.split("\n")]
            e.message = "\n".join(lines)  # type: ignore[misc]  # click shows it
            raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="moorage")
@click.option(
    "--url",
    envvar="MOORAGE_URL",
    show_envvar=True,
    help="The URL of the API, such as http://127.0.0.1:8790.",
)
@click.option(
    "--token-file",
    envvar="MOORAGE_TOKEN_FILE",
    show_envvar=True,
    type=click.Path(),
    help="A file with the token for [web] auth = token, or a token of Keystone.",
)
@click.option(
    "--config-file",
    "config_files",
    multiple=True,
    type=click.Path(),
    help="Moorage's configuration file, which names the API if --url does not.",
)
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    help="Ask a file that `moorage snapshot` wrote, instead of the API.",
)
@click.pass_context
def cli(
    context: click.Context,
    url: str | None,
    token_file: str | None,
    config_files: Sequence[str],
    snapshot: Path | None,
) -> None:
    """Show what Moorage decided, why, and what it would decide now.

    An instance found no host: `moorage decisions --failed` finds the request, `moorage
    explain` shows which step left no host, and `moorage why-not` shows every reason why
    a certain host was not possible.

    The commands ask the API of moorage-api, unless their help says otherwise.
    """
    context.obj = CommandSession(url, token_file, config_files, snapshot)


for _command in (
    explaining.explain,
    explaining.why_not,
    what_if.closest,
    what_if.capacity,
    hosts,
    planning.plan,
    replaying.replay,
    requesting.request,
    requesting.schedule,
    simulating.simulate,
    simulating.flavor_mix,
    tuning.tune,
    learning.lifetimes,
    auditing.audit,
    snapshotting.snapshot,
    locality,
):
    cli.add_command(_command)


@cli.command()
@click.option("--instance", metavar="UUID", help="Only decisions on this instance.")
@click.option("--project", metavar="ID", help="Only decisions for this project.")
@click.option("--host", help="Only decisions that selected, or tried, this host.")
@click.option("--flavor", help="Only requests for the flavor of this name.")
@click.option(
    "--outcome",
    type=click.Choice(["selected", "no valid host", "failed"]),
    help="Only decisions with this outcome.",
)
@click.option(
    "--failed/--selected",
    default=None,
    help="Only decisions that found no host or failed, or only the others.",
)
@click.option(
    "--since",
    metavar="AGE",
    callback=age_s,
    help="Only decisions not older than this: 90s, 15m, 6h, 2d.",
)
@click.option(
    "--from",
    "from_",
    metavar="TIME",
    callback=seconds_of_time,
    help="Only decisions from this local time on: 14:03, 2026-11-26T14:03.",
)
@click.option(
    "--to", metavar="TIME", callback=seconds_of_time, help="Only decisions before it."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="The number of decisions.",
)
@click.option(
    "--group",
    is_flag=True,
    help="Count those without a host by cause and what was requested, of the newest "
    "1,000.",
)
@click.option("--follow", "-f", is_flag=True, help="Print new decisions until Ctrl-C.")
@json_option
@click.pass_obj
def decisions(
    session: CommandSession,
    /,
    follow: bool,
    since: float | None,
    from_: float | None,
    to: float | None,
    group: bool,
    as_json: bool,
    **query: Any,
) -> None:
    """List decisions, the newest last.

    Use it to find the request id of an instance or of a failure. A decision whose state
    of hosts was older than [moorage] max_view_age is marked.
    """
    if follow and session.snapshot is not None:
        raise click.UsageError("--follow: a snapshot gets no new decisions")
    if follow and group:
        raise click.UsageError("Pass --follow or --group, not both")
    if group and query["failed"] is False:
        raise click.UsageError("Pass --group or --selected, not both")
    if since is not None and from_ is not None:
        raise click.UsageError("Pass --since or --from, not both")
    api = session.api()
    query |= {"since": from_, "until": to}
    if since is not None:
        query["since"] = max(0.0, api.now() - since)
    if group:
        names = ("instance", "project", "host", "flavor", "outcome", "since", "until")
        searched = {name: query[name] for name in names}
        print_answer(as_json, api.get("failures", **searched), _show_groups)
        return
    answer = api.get("decisions", **query)
    listed = list(reversed(answer["decisions"]))
    if not follow:
        print_answer(as_json, {**answer, "decisions": listed}, _list)
        return
    with contextlib.suppress(KeyboardInterrupt):
        _follow(api, query, {**answer, "decisions": listed}, as_json=as_json)


def _list(console: Console, answer: Answer) -> None:
    if not answer["decisions"]:
        console.print("No stored decision matches.")
        return
    if answer.get("next") is not None:
        console.print(f"There are earlier ones than these {len(answer['decisions'])}:")
    console.print(tables.decisions_table(answer["decisions"]))
    if any(decision["is_stale"] for decision in answer["decisions"]):
        limit_s = answer["max_view_age_s"]
        console.print(
            f"Host state older than [moorage] max_view_age, {limit_s:.0f} s, is stale.",
            markup=False,
        )


def _show_groups(console: Console, answer: Answer) -> None:
    if not answer["groups"]:
        console.print("No stored decision without a host matches.")
        return
    console.print(tables.groups_table(answer["groups"]))
    if not answer["is_complete"]:
        n_decisions = answer["n_decisions"]
        console.print(
            f"There are more than these {n_decisions:,}: narrow with --from or --since."
        )


def _follow(
    api: ApiClient, query: dict[str, Any], answer: Answer, *, as_json: bool
) -> None:
    """Print decisions, then each that is stored later, until the output is closed."""
    printed: set[str] = set()
    listed = answer["decisions"]
    first_at = listed[0]["decided_at"] if listed else 0.0
    query = {**query, "limit": 200}
    while True:
        new_decisions = [
            decision
            for decision in listed
            if decision["id"] not in printed and decision["decided_at"] >= first_at
        ]
        if as_json:
            for decision in new_decisions:
                click.echo(json.dumps(decision))
        elif new_decisions:
            answer = {**answer, "decisions": new_decisions, "next": None}
            print_answer(False, answer, _list, uses_pager=False)
        printed = {decision["id"] for decision in listed}
        # A worker may store a decision late: read the last seconds again.
        newest = max((decision["decided_at"] for decision in listed), default=0.0)
        query["since"] = max(query.get("since") or 0.0, newest - _LATE_S)
        if _output_closes(_FOLLOW_S):
            return
        listed = list(reversed(api.get("decisions", **query)["decisions"]))


def _output_closes(seconds: float) -> bool:
    """Wait; return whether the reader of the output, such as head, has closed it.

    While no decision is stored, no write would fail and show it.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(seconds * 1000))


@cli.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script with which a shell completes this command.

    For fish: moorage completion fish > ~/.config/fish/completions/moorage.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(cli, {}, "moorage", "_MOORAGE_COMPLETE").source()
    click.echo(script)
