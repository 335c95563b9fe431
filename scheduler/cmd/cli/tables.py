# SPDX-License-Identifier: Apache-2.0
"""Tables of decisions, explanations and hosts, from the API's answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from ...display import age, request_rows
from .text import MAX_TEXT, cell, names, number, safe, timestamp, why

#: An answer of the API: an object of JSON.
Answer = Mapping[str, Any]

#: Hosts of a decision or claim that are named, and instances that are listed.
_MAX_HOSTS: Final = 4
_MAX_PLACED: Final = 20
#: Characters up to which the names of hosts are not wrapped.
_MAX_WHOLE: Final = 20
_OUTCOMES: Final = {"selected": "green", "no valid host": "yellow", "failed": "red"}
_CONDITIONS: Final = {"up": "green", "disabled": "yellow"}
#: Amounts of a host in the order of its allocation ratios, with divisor and unit.
_AMOUNTS: Final = (("vcpus", 1, ""), ("memory_mb", 1024, " GiB"), ("disk_gb", 1, " GB"))


def make_table(title: str, *columns: str, right: Sequence[str] = ()) -> Table:
    """Return a table; `right` names the columns of numbers."""
    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for name in columns:
        is_number = name in right
        justify: Any = "right" if is_number else "left"
        table.add_column(name, justify=justify, no_wrap=is_number, overflow="fold")
    return table


def request_table(request: Answer) -> Table:
    """Return the table of what was requested."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in request_rows(request):
        table.add_row(cell(label), cell(text, limit=MAX_TEXT))
    return table


def decisions_table(decisions: Iterable[Answer]) -> Table:
    """Return the table of decisions in short; ids are whole at any width."""
    table = make_table("", "time")
    table.add_column("request id, instance", no_wrap=True, overflow="fold")
    table.add_column("outcome: hosts, or the reason", overflow="fold")
    for decision in decisions:
        table.add_row(
            timestamp(decision["decided_at"]),
            cell(decision["request_id"] or "-").append(
                f"\n{_first_of(decision)}", "dim"
            ),
            _outcome(decision),
        )
    return table


def _first_of(decision: Answer) -> str:
    """Return the first instance of a decision, and how many more there are."""
    uuids = decision["instance_uuids"]
    if not uuids:
        return f"{decision['n_instances']} instance(s)"
    n_more = decision["n_instances"] - 1
    return f"{safe(uuids[0])}{f' and {n_more} more' if n_more > 0 else ''}"


def _outcome(decision: Answer) -> Text:
    outcome = decision["outcome"] or "open"
    hosts = decision["hosts"]
    hosts_or_reason = names(hosts[:_MAX_HOSTS]) if hosts else why(decision)
    text = cell(outcome, _OUTCOMES.get(outcome, "")).append(
        f": {safe(hosts_or_reason)}", "none"
    )
    if decision.get("is_stale"):
        text.append(f" (host state {decision['view_age_s']:.0f} s old)", "yellow")
    return text


def groups_table(groups: Iterable[Answer]) -> Table:
    """Return the table of decisions without a host, by cause and request."""
    table = make_table(
        "", "decisions", "cause", "requested", "projects", "newest", "such as",
        right=("decisions",),
    )  # fmt: skip
    for group in groups:
        table.add_row(
            f"{group['n_decisions']:,}",
            cell(group["cause"]),
            cell(group["flavor"] or "-").append(f"\n{safe(group['shape'])}", "dim"),
            f"{len(group['projects']):,}",
            timestamp(group["newest"]),
            cell(group["example"] or "-", "dim"),
        )
    return table


def funnel_table(record: Answer, title: str = "Hosts left after each step") -> Table:
    """Return the table of the steps of a decision."""
    n_instances = record["n_instances"]
    of_first = f", for the first of {n_instances} instances" if n_instances > 1 else ""
    table = make_table(
        f"{title}{of_first}",
        "step", "hosts in", "hosts out", "rejected because",
        right=("hosts in", "hosts out"),
    )  # fmt: skip
    for step in record["funnel"]:
        style = "" if step["n_out"] else "bold red"
        n_in = "" if step["n_in"] is None else f"{step['n_in']:,}"
        out = Text(f"{step['n_out']:,}", style=style)
        instance = step.get("instance", 1)  # a server of an earlier release lacks it
        of_later = f", instance {instance}" if instance > 1 else ""
        name = cell(f"{step['name']}{of_later}", style)
        table.add_row(name, n_in, out, cell(step["reason"]))
    return table


def scores_table(
    hosts: Sequence[Answer],
    title: str,
    *,
    origins: Mapping[str, str],
    n_shown: int = 5,
) -> Table:
    """Return the table of the best hosts with each weigher's part of their weight.

    Parameters
    ----------
    origins : mapping
        By weigher; see `DecisionRecord`.
    """
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("weigher", no_wrap=True)
    # For further instances of a request, only the chosen host's parts are stored.
    shown_hosts = [host for host in hosts if host["parts"]][:n_shown]
    # The nodes of an Ironic service have one host.
    name = (
        "host"
        if len({host["host"] for host in shown_hosts}) == len(shown_hosts)
        else "node"
    )
    for host in shown_hosts:
        table.add_column(cell(host[name]), justify="right")
    n_zero = 0
    for parts in zip(*(host["parts"] for host in shown_hosts), strict=True):
        if any(part["weighted"] != 0 for part in parts):
            table.add_row(cell(parts[0]["name"]), *map(_part, parts))
        else:
            n_zero += 1
    table.add_section()
    weights = (Text(number(host["weight"]), style="bold") for host in shown_hosts)
    table.add_row("weight", *weights)
    zeros = f"; {n_zero} more weigher(s) gave each of these hosts 0" if n_zero else ""
    multipliers = "".join(
        f"\n{names(n for n in origins if origins[n] == origin)}: {safe(origin)}"
        for origin in dict.fromkeys(origins.values())
    )
    table.caption = Text(f"weighted part (raw weight){zeros}{multipliers}")
    table.caption_justify = "left"
    return table


def _part(part: Answer) -> Text:
    raw = "-" if part["raw"] is None else f"{part['raw'] + 0.0:,.0f}"
    return Text(number(part["weighted"])).append(f" ({raw})", style="dim")


def _node(placed: Answer) -> str:
    """Return the compute node of an instance, if its name is not the host's."""
    node = placed.get("node")  # a server of an earlier release lacks it
    return f" {safe(node)}" if node else ""


def placed_table(record: Answer) -> Table:
    """Return the table of the instances with their hosts and alternates."""
    table = make_table("Selected", "instance", "host", "weight", "alternates")
    instances = record["instances"]
    for instance in instances[:_MAX_PLACED]:
        table.add_row(
            cell(instance["instance_uuid"] or "-"),
            cell(instance["host"], "green").append(_node(instance), "dim"),
            number(instance["weight"]),
            cell(names(instance["alternates"])),
        )
    if (n_more := len(instances) - _MAX_PLACED) > 0:
        table.caption = Text(f"and {n_more} more: --json")
        table.caption_justify = "left"
    return table


def claims_table(claims: Iterable[Answer]) -> Table:
    """Return the table of claims and of Placement's answers."""
    table = make_table(
        "Claims", "hosts", "instances", "result", "attempts", "detail",
        right=("instances", "attempts"),
    )  # fmt: skip
    for claim in claims:
        table.add_row(
            cell(names(claim["hosts"][:_MAX_HOSTS])),
            str(len(claim["instance_uuids"])),
            cell(claim["result"]),
            str(claim["n_attempts"]),
            cell(claim["detail"]),
        )
    return table


def reasons_table(verdict: Answer) -> Table:
    """Return the table of all reasons why a host cannot serve a request."""
    table = make_table(
        f"{safe(verdict['host'])} ({safe(verdict['node'])})",
        "step", "check", "reason", "required", "available",
    )  # fmt: skip
    for reason in verdict["reasons"]:
        table.add_row(
            cell(reason["stage"], "dim"),
            cell(reason["check"], "bold red"),
            cell(reason["reason"]),
            cell(reason["required"]),
            cell(reason["available"]),
        )
    return table


def hosts_table(hosts: Sequence[Answer]) -> Table:
    """Return the table of compute nodes: state, age, fill, pending claims, room.

    The room is how many more instances fit of the largest recent flavors, and what is
    stranded; without it, if it is not known of any host.
    """
    right: tuple[str, ...] = ("seen", "vCPU", "RAM", "disk", "instances", "claims")
    flavors = next((list(fits) for host in hosts if (fits := host.get("fits"))), [])
    if flavors:
        right = (*right, "fits", "stranded")
    # Ironic's nodes have other names than their service host.
    node_column = (
        ("node",) if any(host["node"] != host["host"] for host in hosts) else ()
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    longest = max((len(host["host"]) for host in hosts), default=0)
    for name in ("host", *node_column, "zone", "state", *right):
        # On a narrow terminal, amounts are wrapped, and short names of hosts are not.
        table.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",
            no_wrap=name == "host" and longest <= _MAX_WHOLE,
        )
    for host in hosts:
        condition = host["condition"]
        is_named = host["node"] != host["host"]
        table.add_row(
            cell(host["host"]),
            *([cell(host["node"] if is_named else "", "dim")] if node_column else ()),
            cell(host["zone"]),
            cell(condition, _CONDITIONS.get(condition, "red")).append(_since(host)),
            "unknown" if host["seen_s"] is None else f"{age(host['seen_s'])} ago",
            *(
                _fill(host[name], ratio, divisor, unit)
                for (name, divisor, unit), ratio in zip(
                    _AMOUNTS, host["allocation_ratios"], strict=True
                )
            ),
            "unknown" if host["n_instances"] is None else str(host["n_instances"]),
            str(host["n_claims"]),
            *(_room(host, flavors) if flavors else ()),
        )
    if flavors:
        table.caption = Text(f"fits: {' / '.join(map(safe, flavors))}")
        table.caption_justify = "right"
    return table


def _since(host: Answer) -> str:
    """Return why a host is disabled, or since when it is down."""
    if host["condition"] == "down":
        seen_at = host.get("seen_at")  # a server of an earlier release lacks it
        since = "an unknown time" if seen_at is None else timestamp(seen_at)
        return f" since {since}"
    reason = host.get("disabled_reason")
    return f": {safe(reason)}" if reason else ""


def _room(host: Answer, flavors: Sequence[str]) -> tuple[str, str]:
    """Return how many instances of flavors fit, and what is stranded."""
    fits = " / ".join(f"{host['fits'][name]:,}" for name in flavors)
    if host["stranded"] is None:
        return fits, "-"
    vcpus, memory_mb, _ = host["stranded"]
    return fits, f"{vcpus:,} vCPU {memory_mb / 1024:,.0f} GiB"


def _fill(pair: Sequence[int], ratio: float, divisor: int, unit: str) -> str:
    """Return the used share of the capacity, which includes the allocation ratio."""
    used, capacity = pair[0], pair[1] * ratio
    share = f"{used / capacity:.0%}" if capacity else "-"
    return f"{share} of {capacity / divisor:,.0f}{unit}"


def differences_table(differences: Iterable[Answer]) -> Table:
    """Return the table of the differences between a decision and its replay."""
    table = make_table("The replay differs", "what", "recorded", "replayed")
    for difference in differences:
        table.add_row(
            cell(difference["what"]), cell(_plain(difference["recorded"])),
            cell(_plain(difference["replayed"])),
        )  # fmt: skip
    return table


def _plain(value: object) -> str:
    """Return a value of JSON as text for a person."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(entry)}" for name, entry in value.items())
    if isinstance(value, list):
        # A list of pairs, such as a host and its weight: "h2 3; h3 2.25".
        separator = "; " if any(isinstance(entry, list) for entry in value) else " "
        return separator.join(map(_plain, value)) or "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)
