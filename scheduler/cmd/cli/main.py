# SPDX-License-Identifier: Apache-2.0
"""The commands of moorage, and their options."""

from __future__ import annotations

import contextlib
import json
import select
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import get_completion_class
from rich.console import Console

from .... import __version__
from . import (
    explaining,
    host_query,
    replaying,
    requesting,
    snapshotting,
    tables,
    what_if,
)
from .answering import (
    age_s,
    json_option,
    print_answer,
    print_notes,
    stored_id,
)
from .client import ApiClient
from .locality.commands import locality
from .place_tree import show_tree
from .session import CommandSession
from .tables import Answer
from .text import cell

_FOLLOW_S: Final = 2.0
#: Seconds by which a decision may be stored later than a newer one.
_LATE_S: Final = 10.0
#: Hosts that are asked for at once.
_PAGE: Final = 1000
_SHELLS: Final = ("bash", "zsh", "fish")


def main() -> None:
    """Run with the process's arguments; exit."""
    cli(prog_name="moorage", windows_expand_args=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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

    The commands ask the API of moorage-api.
    """
    context.obj = CommandSession(url, token_file, config_files, snapshot)


cli.add_command(replaying.replay)
cli.add_command(requesting.request)
cli.add_command(snapshotting.snapshot)
cli.add_command(locality)


@cli.command()
@click.option("--instance", metavar="UUID", help="Only decisions on this instance.")
@click.option("--project", metavar="ID", help="Only decisions for this project.")
@click.option("--host", help="Only decisions that selected, or tried, this host.")
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
    "--limit",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="The number of decisions.",
)
@click.option("--follow", "-f", is_flag=True, help="Print new decisions until Ctrl-C.")
@json_option
@click.pass_obj
def decisions(
    session: CommandSession,
    /,
    follow: bool,
    since: float | None,
    as_json: bool,
    **query: Any,
) -> None:
    """List decisions, the newest last.

    Use it to find the request id of an instance or of a failure.
    """
    if follow and session.snapshot is not None:
        raise click.UsageError("--follow: a snapshot gets no new decisions")
    api = session.api()
    if since is not None:
        query["since"] = max(0.0, api.now() - since)
    answer = api.get("decisions", **query)
    found = list(reversed(answer["decisions"]))
    if not follow:
        print_answer(as_json, {**answer, "decisions": found}, _list)
        return
    with contextlib.suppress(KeyboardInterrupt):
        _follow(api, query, found, as_json=as_json)


def _list(console: Console, answer: Answer) -> None:
    if answer["decisions"]:
        console.print(tables.decisions_table(answer["decisions"]))
    else:
        console.print("No stored decision matches.")


def _follow(
    api: ApiClient, query: dict[str, Any], found: Sequence[Answer], *, as_json: bool
) -> None:
    """Print decisions, then those that are stored later, until the reader leaves."""
    known: set[str] = set()
    first_at = found[0]["decided_at"] if found else 0.0
    query = {**query, "limit": 200}
    while True:
        new = [
            each
            for each in found
            if each["id"] not in known and each["decided_at"] >= first_at
        ]
        if as_json:
            for each in new:
                click.echo(json.dumps(each))
        elif new:
            print_answer(False, {"decisions": new}, _list)
        known = {each["id"] for each in found}
        # A worker may store a decision late: look back, and skip what was printed.
        newest = max((each["decided_at"] for each in found), default=0.0)
        query["since"] = max(query.get("since") or 0.0, newest - _LATE_S)
        if _reader_left(_FOLLOW_S):
            return
        found = list(reversed(api.get("decisions", **query)["decisions"]))


def _reader_left(seconds: float) -> bool:
    """Wait; return whether the reader of the output, such as head, has closed it.

    Without new decisions, no write would notice that.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(seconds * 1000))


@cli.command()
@click.argument("id_", metavar="INSTANCE|REQUEST_ID", callback=stored_id)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write a self-contained page to this file instead.",
)
@json_option
@click.pass_obj
def explain(
    session: CommandSession, id_: str, html: Path | None, as_json: bool
) -> None:
    """Show why an instance is where it is, or found no host.

    Funnel, scores by weigher, claims, alternates and times of the newest decision on an
    instance, or of a request id as it stands in nova's logs.
    """
    answer = session.api().get("decisions", id_)
    if html is not None:
        page = explaining.page(id_, answer["decisions"])
        try:
            # The page names hosts and requests: only its owner may read it.
            # A device such as /dev/stdout keeps its mode.
            html.touch(mode=0o600)
            if html.is_file():
                html.chmod(0o600)
            html.write_text(page, "utf-8")
        except OSError as e:
            raise click.ClickException(f"--html {html}: {e.strerror}") from e
        click.echo(f"{html} written.", err=True)
        return
    print_answer(as_json, answer, _show)


def _show(console: Console, answer: Answer) -> None:
    found = answer["decisions"]
    explaining.show(console, found[0])
    if len(found) > 1:
        console.print(f"There are {len(found) - 1} earlier decisions: see --json.")


@cli.command("why-not")
@click.argument("host")
@click.argument("id_", metavar="INSTANCE|REQUEST_ID", callback=stored_id)
@json_option
@click.pass_obj
def why_not(session: CommandSession, host: str, id_: str, as_json: bool) -> None:
    """Show every reason why HOST cannot serve a stored request now.

    Each check runs alone: resources, traits and aggregates in Placement, restrictions
    of the request, and all filters.
    """
    answer = session.api().post("why-not", {"host": host, "stored": id_})
    print_answer(as_json, answer, _verdicts)


def _verdicts(console: Console, answer: Answer) -> None:
    for verdict in answer["nodes"]:
        if verdict["passes"]:
            name = cell(verdict["host"]).append(" passes every check now")
            console.print(name.append(" (it may have been full then, or scored less)."))
            continue
        console.print(tables.reasons_table(verdict))
        if verdict["providers_from"] == "placement":
            console.print("Placement's part was read from Placement now.", style="dim")
    print_notes(console, answer["notes"])


@cli.command()
@click.option(
    "--dry-run", is_flag=True, help="Claim nothing; required, as nothing else is done."
)
@click.option(
    "--request", "id_", metavar="ID", callback=stored_id,
    help="Use the stored request of this id or instance, as it is.",
)  # fmt: skip
@requesting.request_options
@click.option(
    "--count", type=click.IntRange(1, 100), default=1, show_default=True,
    help="The number of instances.",
)  # fmt: skip
@json_option
@click.pass_obj
def schedule(
    session: CommandSession, /, dry_run: bool, count: int, as_json: bool, **options: Any
) -> None:
    """Show where instances would go now, without claiming anything.

    The request is that of a stored decision (--request), or is made of --vcpus, --ram
    and the other options. The exit status is 3 if no host was found.
    """
    if not dry_run:
        raise click.UsageError("moorage schedules nothing by itself: add --dry-run")
    body = {"count": count, **_request_body(options)}
    answer = session.api().post("dry-run", body)
    print_answer(as_json, answer, _dry)
    if answer["decision"]["outcome"] != "selected":
        sys.exit(requesting.NO_VALID_HOST)


def _dry(console: Console, answer: Answer) -> None:
    explaining.show(console, answer["decision"])
    print_notes(console, answer["notes"])


def _request_body(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a body that has the request, from the command's options."""
    if options["id_"] is None:
        if options["vcpus"] is None or options["ram"] is None:
            raise click.UsageError("Pass --request, or --vcpus and --ram")
        return {"request": requesting.request_document(options)}
    given = click.get_current_context().command.params
    for option in given:
        if option.name in requesting.REQUEST_OPTIONS and options[option.name]:
            raise click.UsageError(f"Pass --request or {option.opts[0]}, not both")
    return {"stored": options["id_"]}


cli.add_command(what_if.closest)
cli.add_command(what_if.capacity)


@cli.group(invoke_without_command=True)
@click.option(
    "--limit", type=click.IntRange(0), default=40, show_default=True,
    help="The number of hosts; 0: all.",
)  # fmt: skip
@click.option(
    "--state", type=click.Choice(["up", "down", "disabled", "forced down"]),
    help="Only hosts in this state.",
)  # fmt: skip
@click.option("--zone", help="Only hosts in this availability zone.")
@click.option(
    "--place", "in_place", metavar="LEVEL=NAME",
    help="Only hosts in this place, such as rack=r1.",
)  # fmt: skip
@click.option(
    "--where", metavar="EXPR", default="",
    help="Only hosts for which this holds, such as 'vcpu>80 and free_ram<=4096'.",
)  # fmt: skip
@click.option(
    "--sort", metavar="NAME", help="Sort by this value; -NAME: the largest first."
)
@click.option("--tree", is_flag=True, help="Show all hosts by room, row and rack.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
@click.pass_context
def hosts(  # noqa: PLR0913 - one parameter an option
    context: click.Context,
    limit: int,
    state: str | None,
    zone: str | None,
    in_place: str | None,
    where: str,
    sort: str | None,
    tree: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """List hosts: state, age, fill and pending claims.

    Values for --where and --sort: host, node, cell, zone, state and the levels of
    places are texts, compared by = and != with patterns such as z*; vcpu, ram and disk
    (used, in percent), free_vcpu, free_ram (MiB), free_disk (GB), seen (seconds),
    instances and claims are numbers.

    "seen" is the age of the newest report; vCPU, RAM and disk are the used share of
    the total multiplied by the allocation ratio; "claims" are those that no report of
    the host includes yet.
    """
    if context.invoked_subcommand is not None:
        return
    level, _, place = (in_place or "").partition("=")
    exact = {"state": state, "zone": zone, level: place}
    conditions = [host_query.equals(*pair) for pair in exact.items() if pair[1]]
    conditions += host_query.parse_where(where) if where else []
    needs_all = bool(tree or conditions or sort)
    api, after = context.obj.api(), None
    listed: list[Answer] = []
    while True:
        n_open = limit - len(listed) if limit and not needs_all else _PAGE
        answer = api.get("hosts", after=after, limit=min(n_open, _PAGE))
        listed += answer["hosts"]
        after = answer["next"]
        if after is None or (len(listed) == limit and not needs_all):
            break
    n_hosts = answer["n_hosts"]
    if conditions or sort:
        listed = host_query.select_hosts(listed, conditions, sort)
        n_hosts = len(listed)
    if limit and not tree:
        del listed[limit:]
    if as_csv:
        click.echo(host_query.hosts_csv(listed), nl=False)
        return
    answer = {"hosts": listed, "n_hosts": n_hosts}
    print_answer(as_json, answer, show_tree if tree else _hosts)


def _hosts(console: Console, answer: Answer) -> None:
    if not answer["hosts"]:
        console.print("No host matches.")
        return
    console.print(tables.hosts_table(answer["hosts"]))
    n_more = answer["n_hosts"] - len(answer["hosts"])
    if n_more > 0:
        console.print(f"and {n_more:,} more: --limit 0")


@hosts.command()
@click.argument("host")
@click.option("--reason", required=True, help="Why, for other operators.")
@click.pass_obj
def disable(session: CommandSession, host: str, reason: str) -> None:
    """Give HOST no more instances; those that it has stay.

    With the source push, its store keeps that; with file, the inventory file is edited.
    nova keeps it itself with nova_db: the command then names nova's.
    """
    from .switching import switch  # takes a second: it reads inventories

    session.refuse_snapshot()
    click.echo(switch(session.config_files, host, reason, off=True))


@hosts.command()
@click.argument("host")
@click.option("--reason", default="", help="Why; it is not kept.")
@click.pass_obj
def enable(session: CommandSession, host: str, reason: str) -> None:
    """Undo `disable`."""
    from .switching import switch  # takes a second: it reads inventories

    session.refuse_snapshot()
    click.echo(switch(session.config_files, host, reason, off=False))


@cli.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script with which a shell completes this command.

    For bash: moorage completion bash > /etc/bash_completion.d/moorage
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, "moorage", "_MOORAGE_COMPLETE").source())
