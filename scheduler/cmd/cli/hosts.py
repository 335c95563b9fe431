# SPDX-License-Identifier: Apache-2.0
"""The commands `moorage hosts`: list hosts as a table or by place; disable hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from . import host_query, tables
from .answering import json_option, print_answer, print_notes
from .host_tables import instances_table, room_text, show_host
from .session import CommandSession
from .tables import Answer
from .text import MAX_TEXT, cell, names

#: Hosts that are asked for at once.
_PAGE: Final = 10_000
_NO_HOST: Final = "No host matches."


class _HostGroup(click.Group):
    """A group whose command `show` need not be named: `moorage hosts HOST`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that arguments begin with, or else `show`."""
        if args and args[0] not in self.commands:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_HostGroup, invoke_without_command=True)
@click.option(
    "--limit", type=click.IntRange(0), default=40, show_default=True,
    help="The number of hosts; 0: all.",
)  # fmt: skip
@click.option(
    "--state", "states", multiple=True,
    type=click.Choice(["up", "down", "disabled", "forced down"]),
    help="Only hosts in this state; may be repeated.",
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
@click.option("--instances", is_flag=True, help="Also list the instances on each host.")
@click.option("--tree", is_flag=True, help="Show all hosts by room, row and rack.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
@click.pass_context
def hosts(  # noqa: PLR0913 - one parameter an option
    context: click.Context,
    limit: int,
    states: Sequence[str],
    zone: str | None,
    in_place: str | None,
    where: str,
    sort: str | None,
    instances: bool,
    tree: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """List hosts: state, age, fill and room; or show one HOST.

    Values for --where and --sort: host, node, cell, zone, state and the levels of
    places are texts, compared by = and != with patterns such as z*; place:LEVEL is a
    level that has the name of another value, such as zone. vcpu, ram and disk (used, in
    percent), free_vcpu, free_ram (MiB), free_disk (GB), seen (seconds), instances,
    claims, stranded_vcpu, stranded_ram, stranded_disk and fits:FLAVOR are numbers.

    "seen" is the age of the newest report; vCPU, RAM and disk are the used share of
    the total multiplied by the allocation ratio; "claims" are those that no report of
    the host includes yet. "fits" is how many more instances of the largest recently
    requested flavors fit; "stranded" is free, and of no use to any recent flavor.
    """
    if context.invoked_subcommand is not None:
        _pass_on_json(context, context.invoked_subcommand)
        return
    formats = {"--tree": tree, "--csv": as_csv, "--json": as_json and as_csv}
    if len(chosen := [name for name, is_set in formats.items() if is_set]) > 1:
        raise click.UsageError(f"Pass {chosen[0]} or {chosen[1]}, not both")
    conditions = [host_query.equals("zone", zone)] if zone else []
    conditions += [] if in_place is None else [host_query.in_place(in_place)]
    conditions += host_query.parse_where(where) if where else []
    needs_all = bool(tree or conditions or states or sort)
    api, after = context.obj.api(), None
    listed: list[Answer] = []
    while True:
        n_wanted = limit - len(listed) if limit and not needs_all else _PAGE
        answer = api.get(
            "hosts",
            after=after,
            limit=min(n_wanted, _PAGE),
            instances=instances or None,
        )
        listed += answer["hosts"]
        after = answer["next"]
        if after is None or (len(listed) == limit and not needs_all):
            break
    n_hosts = answer["n_hosts"]
    if states:
        listed = [host for host in listed if host["condition"] in states]
        n_hosts = len(listed)
    if conditions or sort:
        try:
            listed = host_query.select_hosts(listed, conditions, sort)
        except click.BadParameter as e:
            # Without the room, no host has fits:FLAVOR, and a note says why.
            notes = [] if answer.get("room") else answer.get("notes", [])
            raise click.BadParameter(". ".join([e.message, *notes])) from None
        n_hosts = len(listed)
    if limit and not tree:
        del listed[limit:]
    if as_csv:
        click.echo(host_query.hosts_csv(listed), nl=False)
        return
    answer = {
        "hosts": listed,
        "n_hosts": n_hosts,
        # A server of an earlier release sends neither.
        "room": answer.get("room"),
        "notes": answer.get("notes", []),
    }
    print_answer(as_json, answer, show_tree if tree else _hosts)


def _pass_on_json(context: click.Context, command: str) -> None:
    """Pass --json before HOST to `show`; refuse other options before a command.

    Raises
    ------
    click.UsageError
    """
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is not click.core.ParameterSource.COMMANDLINE:
            continue
        if option.name == "as_json" and command == "show":
            context.default_map = {"show": {"as_json": True}}
            continue
        raise click.UsageError(
            f"{option.opts[0]} is an option of the list of hosts, not of `{command}`"
        )


def _hosts(console: Console, answer: Answer) -> None:
    if not answer["hosts"]:
        console.print(_NO_HOST)
        return
    console.print(tables.hosts_table(answer["hosts"]))
    n_more = answer["n_hosts"] - len(answer["hosts"])
    if n_more > 0:
        console.print(f"and {n_more:,} more: --limit 0")
    if any(host.get("instances") is not None for host in answer["hosts"]):
        console.print(instances_table(answer["hosts"]))
    if answer["room"] is not None:
        console.print(cell(room_text(answer["room"]), limit=MAX_TEXT))
    print_notes(console, answer["notes"])


@hosts.command()
@click.argument("host")
@json_option
@click.pass_obj
def show(session: CommandSession, host: str, as_json: bool) -> None:
    """Show all that is known of HOST, which may be a compute node.

    State, places, aggregates, resource providers with inventory, use and traits,
    instances; claims, refusals and reports in time, the newest first. The word `show`
    may be left out.
    """
    print_answer(as_json, session.api().get("hosts", host), show_host)


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


def show_tree(console: Console, answer: Answer) -> None:
    """Print rooms, rows and racks with their hosts, and conflicts of places."""
    from ...locality.conflicts import find_conflicts  # NumPy is slow to import

    hosts = answer["hosts"]
    if not hosts:
        console.print(_NO_HOST)
        return
    levels = list(hosts[0]["places"])
    if not levels:
        console.print(cell("No level is configured: see [locality] levels."))
        return
    tree = Tree(cell(f"{len(hosts)} hosts"))
    _add_places(tree, hosts, levels[::-1])
    console.print(tree)
    print_notes(
        console, find_conflicts({host["node"]: host["places"] for host in hosts})
    )


def _add_places(tree: Tree, hosts: Sequence[Answer], levels: Sequence[str]) -> None:
    """Add the places of the first level, the largest, and the places inside them."""
    if not levels:
        tree.add(Text(names(sorted(host["node"] for host in hosts))))
        return
    by_place: defaultdict[str, list[Answer]] = defaultdict(list)
    for host in hosts:
        by_place[_place_name(levels[0], host["places"][levels[0]])].append(host)
    for name, hosts_inside in sorted(by_place.items()):
        branch = tree.add(cell(f"{name} ({len(hosts_inside)})"))
        _add_places(branch, hosts_inside, levels[1:])


def _place_name(level: str, names: Sequence[str]) -> str:
    if not names:
        return f"no {level}"
    return f"{level} {' and '.join(names)}"
