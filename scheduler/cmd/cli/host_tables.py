# SPDX-License-Identifier: Apache-2.0
"""All that is known of one host, as tables, and what belongs to the table of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from .answering import print_notes
from .tables import Answer, hosts_table, make_table
from .text import MAX_TEXT, cell, names, safe, timestamp

#: Events and instances of one host that are printed.
_MAX_EVENTS: Final = 30
_MAX_INSTANCES: Final = 200
_LABELS: Final = {"vcpus": "vCPUs", "memory_mb": "memory", "disk_gb": "disk"}


def show_host(console: Console, answer: Answer) -> None:
    """Print all that is known of one service host."""
    states = [node["state"] for node in answer["nodes"]]
    console.print(hosts_table(states))
    for state in states:
        places = ", ".join(
            f"{level} {names(inside)}" for level, inside in state["places"].items()
        )
        if places:
            console.print(cell(f"{state['node']}: {places}"))
    for node in answer["nodes"]:
        if node["problem"]:
            text = f"Providers of {node['state']['node']}: unknown: {node['problem']}"
            console.print(cell(text, "yellow"))
        else:
            console.print(_providers_table(node))
    _show_aggregates(console, answer["aggregates"])
    _show_instances(console, answer)
    console.print(_events_table(answer["events"]))
    print_notes(console, answer["notes"])


def _providers_table(node: Answer) -> Table:
    table = make_table(
        f"Providers of {safe(node['state']['node'])}",
        "provider", "inventory", "used", "reserved", "total", "ratio",
        right=("used", "reserved", "total", "ratio"),
    )  # fmt: skip
    for provider in node["providers"]:
        shown = cell(provider["uuid"])
        for name, use in provider["inventories"].items():
            table.add_row(
                shown,
                cell(name),
                f"{use['used']:,}",
                f"{use['reserved']:,}",
                f"{use['total']:,}",
                f"{use['allocation_ratio']:.4g}",
            )
            shown = cell("")
        if not provider["inventories"]:
            table.add_row(shown, cell("no inventory", "dim"))
        for label in ("traits", "aggregates"):
            if provider[label]:
                text = f"{label}: {names(provider[label])}"
                table.add_row("", cell(text, "dim", MAX_TEXT))
    return table


def _show_aggregates(console: Console, aggregates: Sequence[Answer] | None) -> None:
    if aggregates is None:
        console.print("Aggregates: unknown: the source of hosts reports none.")
    elif not aggregates:
        console.print("Aggregates: none.")
    else:
        table = make_table("Aggregates", "name", "zone", "metadata")
        for aggregate in aggregates:
            pairs = (f"{key}={value}" for key, value in aggregate["metadata"].items())
            table.add_row(
                cell(aggregate["name"]), cell(aggregate["zone"] or "-"),
                cell(names(pairs), limit=MAX_TEXT),
            )  # fmt: skip
        console.print(table)


def _show_instances(console: Console, answer: Answer) -> None:
    """Print the instances of a host, and whether there may be others."""
    instances, n_unnamed = answer["instances"], answer["n_unnamed"]
    if instances:
        table = make_table("Instances", "instance", "pending claim")
        for instance in instances[:_MAX_INSTANCES]:
            claimed_at = instance["claimed_at"]
            table.add_row(
                cell(instance["uuid"]),
                "" if claimed_at is None else f"since {timestamp(claimed_at)}",
            )
        console.print(table)
    if n_unnamed is None:
        what = "others are unknown" if instances else "unknown"
        console.print(f"Instances: {what}: the source of hosts reports none.")
        return
    n_more = n_unnamed + max(0, len(instances) - _MAX_INSTANCES)
    if n_more:
        console.print(f"and {n_more:,} more instances")
    elif not instances:
        console.print("Instances: none.")


def _events_table(events: Sequence[Answer]) -> Table:
    table = make_table("Events, the newest first", "time", "event", "what", "request")
    for event in events[:_MAX_EVENTS]:
        table.add_row(
            timestamp(event["at"]),
            cell(event["kind"]),
            cell(event["text"]),
            cell(event["request_id"] or "-", "dim"),
        )
    return table


def instances_table(hosts: Sequence[Answer]) -> Table:
    """Return the table of the known instances of each host."""
    table = make_table("Known instances", "host", "instance")
    shown: set[str] = set()
    for host in hosts:
        if host["host"] in shown:  # another node of the same service
            continue
        shown.add(host["host"])
        name = cell(host["host"])
        for uuid in host["instances"] or ():
            table.add_row(name, cell(uuid))
            name = cell("")
        if not host["instances"]:
            is_known = host["n_instances"] == 0
            table.add_row(name, cell("none" if is_known else "unknown", "dim"))
    return table


def room_text(room: Answer) -> str:
    """Return how many more instances fit in all, and how much room is stranded."""
    counts = (
        f"{safe(flavor['name'])} {_count(flavor['n_instances'], flavor['is_exact'])} "
        f"on {flavor['n_hosts']:,} host(s)"
        for flavor in room["flavors"]
    )
    stranded = (
        f"{room['stranded'][name]:.0%} of the free {label}"
        for name, label in _LABELS.items()
        if room["stranded"][name] is not None
    )
    return (
        f"Fits in all, if no other flavor comes: {', '.join(counts) or '-'}. Stranded: "
        f"{', '.join(stranded) or 'nothing is free'} on hosts that are up."
    )


def _count(n_instances: int, is_exact: bool) -> str:
    """Return how many instances fit, with a sign if fewer may fit."""
    sign = "≤ " if n_instances and not is_exact else ""
    return f"{sign}{n_instances:,}"
