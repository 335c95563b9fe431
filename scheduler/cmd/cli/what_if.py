# SPDX-License-Identifier: Apache-2.0
"""The commands closest and capacity: what would have to change, and what still fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...decoding import load_yaml
from .answering import json_option, print_answer, print_notes, stored_id
from .session import CommandSession
from .tables import Answer, make_table
from .text import cell, names, safe

_MAX_FILE: Final = 200 * 1024
#: Characters of a change that are shown.
_MAX_CHANGE: Final = 500


@click.command()
@click.argument("id_", metavar="INSTANCE|REQUEST_ID", callback=stored_id)
@json_option
@click.pass_obj
def closest(session: CommandSession, id_: str, as_json: bool) -> None:
    """Show what would have to change for a request to fit now.

    The hosts that fail one check only, by the change that would admit them; pairs of
    changes, if no single one does. Each change was tried on the hosts.
    """
    answer = session.api().post("closest", {"stored": id_})
    print_answer(as_json, answer, _show_closest)


def _show_closest(console: Console, answer: Answer) -> None:
    if answer["n_passing"]:
        console.print(f"{answer['n_passing']:,} host(s) pass every check now.")
    if answer["refusal"]:
        text = (
            f"{answer['n_fitting']:,} of {answer['n_instances']:,} instances fit at "
            f"once: {answer['refusal']}"
        )
        console.print(cell(text))
    if answer["groups"]:
        console.print(_closest_table(answer))
    elif not answer["n_passing"]:
        console.print("No change of two checks at most admits a host.")
    print_notes(console, answer["notes"])


def _closest_table(answer: Answer) -> Table:
    table = make_table(
        "", "change", "by", "instances", "hosts", "zones", "such as",
        right=("instances", "hosts"),
    )  # fmt: skip
    for group in answer["groups"]:
        zones = (f"{safe(zone)} {n_hosts:,}" for zone, n_hosts in group["zones"])
        changes = group["changes"]
        text = Text(safe(group["text"], _MAX_CHANGE), overflow="fold")
        for change in changes:
            for label, key in (
                ("hosts have", "offered"),
                ("or, by an operator", "alternative"),
            ):
                # A server of an earlier release sends neither.
                if detail := change.get(key):
                    text.append(f"\n{label}: {safe(detail, _MAX_CHANGE)}", "dim")
        needs_operator = any(change.get("needs_operator") for change in changes)
        table.add_row(
            text,
            "operator" if needs_operator else "user",
            _fitting(group),
            f"{group['n_hosts']:,}",
            cell(", ".join(zones)),
            cell(names(group["hosts"])),
        )
    return table


def _fitting(group: Answer) -> str:
    """Return how many instances fit the hosts that a change admits."""
    n_instances = group.get("n_instances")
    if n_instances is None:
        return "-"
    return f"{'' if group['is_exact'] else '≤ '}{n_instances:,}"


@click.command()
@click.option(
    "--flavors", "path", metavar="FILE", type=click.Path(path_type=Path),
    help="A YAML or JSON file: a list of flavors with name, vcpus, memory_mb, root_gb, "
    "ephemeral_gb, swap_mb and extra_specs.",
)  # fmt: skip
@click.option(
    "--from", "source", type=click.Choice(["decisions", "nova"]),
    help="Without a file: the flavors of recent decisions, the default, or of nova's "
    "database.",
)  # fmt: skip
@click.option("--flavor", "name", help="Only the flavor of this name.")
@click.option("--project", help="As this project: its isolation and aggregates count.")
@click.option(
    "--hosts", "n_hosts", type=click.IntRange(0, 1000), default=0, metavar="N",
    help="Also list N hosts of each flavor, those first that the weighers prefer.",
)  # fmt: skip
@json_option
@click.pass_obj
def capacity(
    session: CommandSession,
    path: Path | None,
    source: str | None,
    name: str | None,
    project: str | None,
    n_hosts: int,
    as_json: bool,
) -> None:
    """Show how many more instances of each flavor fit now.

    By zone and cell, beside the requests for that flavor in the last day. Each number
    holds if no instance of another flavor comes: it is how many a loop of requests
    would place, by Placement, filters, NUMA cells and PCI devices.
    """
    if path is not None and source is not None:
        raise click.UsageError("Pass --flavors or --from, not both")
    body: dict[str, Any] = (
        {"from": source or "decisions"} if path is None else {"flavors": _read(path)}
    )
    asked = {"name": name, "project": project, "hosts": n_hosts or None}
    body |= {key: value for key, value in asked.items() if value is not None}
    answer = session.api().post("capacity", body)
    print_answer(as_json, answer, _show_capacity)


def _show_capacity(console: Console, answer: Answer) -> None:
    console.print(_capacity_table(answer))
    for flavor in answer["flavors"]:
        for note in flavor["notes"]:
            console.print(cell(f"{flavor['flavor']}: {note}", "yellow"))
    if any(flavor["hosts"] for flavor in answer["flavors"]):
        console.print(_hosts_table(answer))
    print_notes(console, answer["notes"])


def _hosts_table(answer: Answer) -> Table:
    """Return the table of the hosts with room, in the order of their weights."""
    table = make_table(
        "Where they would go, the best host first",
        "flavor", "host", "zone", "instances",
        right=("instances",),
    )  # fmt: skip
    for flavor in answer["flavors"]:
        name = cell(flavor["flavor"] or "-", "bold")
        for host in flavor["hosts"]:
            node = "" if host["node"] == host["host"] else f" {safe(host['node'])}"
            table.add_row(
                name,
                cell(host["host"]).append(node, "dim"),
                cell(host["zone"]),
                f"{host['n_instances']:,}",
            )
            name = cell("")
        if n_more := flavor["n_hosts"] - len(flavor["hosts"]):
            table.add_row(name, cell(f"and {n_more:,} more host(s)", "dim"))
    return table


def _capacity_table(answer: Answer) -> Table:
    right = ("vCPU", "RAM", "disk", "instances", "hosts", "asked in 1 d", "no host")
    cells = {
        place["cell_uuid"] for flavor in answer["flavors"] for place in flavor["places"]
    }
    cell_column = ("cell",) if len(cells) > 1 else ()
    table = make_table(
        "", "flavor", *right[:3], "zone", *cell_column, *right[3:], right=right
    )
    for flavor in answer["flavors"]:
        sizes = (
            f"{flavor['vcpus']:,}",
            f"{flavor['memory_mb']:,} MiB",
            f"{flavor['disk_gb']:,} GB",
        )
        total = _instances(flavor), f"{flavor['n_hosts']:,}", *_demand(flavor)
        empty = ("",) if cell_column else ()
        table.add_row(
            cell(flavor["flavor"] or "-", "bold"), *sizes, "all", *empty, *total
        )
        for place in flavor["places"] if len(flavor["places"]) > 1 else ():
            in_cell = (
                (cell(place.get("cell") or place["cell_uuid"], "dim"),)
                if cell_column
                else ()
            )
            counts = f"{place['n_instances']:,}", f"{place['n_hosts']:,}"
            table.add_row("", "", "", "", cell(place["zone"]), *in_cell, *counts)
    return table


def _demand(flavor: Answer) -> tuple[str, str]:
    """Return how many requests the last day had, and how many got no host."""
    if (demand := flavor["demand"]) is None:
        return "unknown", "unknown"
    return f"{demand['n_requests']:,}", f"{demand['n_refused']:,}"


def _instances(flavor: Answer) -> str:
    if flavor["is_exact"]:
        return f"{flavor['n_instances']:,}"
    # The note has the reason, and "at most 0" would say less.
    return f"≤ {flavor['n_instances']:,}" if flavor["n_instances"] else "0, see note"


def _read(path: Path) -> list[Mapping[str, Any]]:
    """Return the flavors of a file; the API checks each."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise click.ClickException(f"--flavors {path} is larger than 200 KiB")
        flavors = load_yaml(data)
    except OSError as e:
        raise click.ClickException(
            f"--flavors {path} cannot be read: {e.strerror}"
        ) from e
    except ValueError as e:
        line = " ".join(str(e).split())[:200]
        raise click.ClickException(f"--flavors {path}: {line}") from e
    if not isinstance(flavors, list) or not flavors:
        raise click.ClickException(f"--flavors {path} must be a list of flavors")
    for number, flavor in enumerate(flavors, 1):
        _require_json(path, number, flavor)
    return flavors


def _require_json(path: Path, number: int, flavor: object) -> None:
    """Refuse a value of a flavor that YAML has and JSON lacks, such as a date."""
    name = flavor.get("name") if isinstance(flavor, dict) else None
    where = f"--flavors {path}, flavor {number if name is None else safe(name)}"
    n_characters = 0
    try:
        # In pieces: YAML's anchors may make a short file endless.
        for piece in json.JSONEncoder(allow_nan=False).iterencode(flavor):
            n_characters += len(piece)
            if n_characters > _MAX_FILE:
                raise click.ClickException(f"{where} is larger than 200 KiB")
    except RecursionError as e:
        raise click.ClickException(f"{where} is nested too deeply") from e
    except (TypeError, ValueError) as e:
        raise click.ClickException(
            f"{where} has what is neither a text nor a number of JSON: {e}"
        ) from e
