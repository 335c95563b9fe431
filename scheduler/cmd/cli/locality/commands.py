# SPDX-License-Identifier: Apache-2.0
"""The command `moorage locality apply`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..answering import json_option, print_answer, print_notes
from ..client import read_options
from ..session import CommandSession
from ..tables import Answer, make_table
from ..text import cell, names


@click.group()
def locality() -> None:
    """Put hosts into racks, rows and other places."""


@locality.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show the changes, and make none.")
@click.option(
    "--placement",
    "in_placement",
    is_flag=True,
    help="Use aggregates of Placement that are none of nova's, with the options of "
    "[placement], and write the file [locality] places.",
)
@json_option
@click.pass_obj
def apply(
    session: CommandSession,
    file: Path,
    dry_run: bool,
    in_placement: bool,
    as_json: bool,
) -> None:
    """Put hosts into the places that FILE, a CSV file, has.

    \b
    host,rack,row
    node1,r1
    node2,r1
    ,r1,a

    A line without a host says where a place is. The places are host aggregates of nova.
    They are created, and hosts enter and leave them, through nova's API with the
    options of [nova]. Other aggregates, levels and hosts stay as they are.

    Only what differs is changed: run it again after an error, or a change of FILE. A
    host that is unknown or refused is named, the others are moved, and the exit status
    is 1.
    """
    from .applying import Application  # oslo.config and keystoneauth1 are slow

    session.refuse_snapshot()
    conf = read_options(session.config_files)
    application = Application(conf, file, in_placement=in_placement)
    try:
        if not dry_run:
            application.carry_out()
        application.raise_if_refused()
    finally:
        answer = application.answer(is_dry=dry_run)
        print_answer(as_json, answer, _show)


def _show(console: Console, answer: Answer) -> None:
    changes = answer["changes"]
    if changes:
        console.print(_table(changes))
    hosts = f"{answer['n_hosts']:,} host(s)"
    for refusal in answer["refused"]:
        text = f"Host {refusal['host']} is left: {refusal['why']}"
        console.print(cell(text, "yellow"), soft_wrap=True)
    if answer["n_left"]:
        console.print(f"{len(changes):,} change(s) made, {answer['n_left']:,} left.")
    elif not changes and not answer["refused"]:
        console.print(f"Nothing to change: {hosts} are where the file has them.")
    else:
        done = "would be made" if answer["dry_run"] else "made"
        console.print(f"{len(changes):,} change(s) {done} for {hosts}.")
    print_notes(console, (f"{note}." for note in answer["notes"]))


def _table(changes: list[Answer]) -> Table:
    """Return the changes, those of one place together."""
    hosts_of_change: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for change in changes:
        hosts = hosts_of_change[change["change"], change["level"], change["place"]]
        if "host" in change:
            hosts.append(change["host"])
    table = make_table("", "change", "level", "place", "hosts")
    for key, hosts in hosts_of_change.items():
        table.add_row(*map(cell, key), Text(names(hosts) if hosts else ""))
    return table
