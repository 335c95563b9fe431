# SPDX-License-Identifier: Apache-2.0
"""The commands `moorage plan`: moves that empty hosts, and what has become of them."""

from __future__ import annotations

import json
import math
import operator
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from .answering import FiniteNumber, json_option, print_answer, print_notes
from .session import CommandSession
from .tables import Answer, make_table
from .text import MAX_TEXT, cell, names, safe

#: Bytes of a file that is read as a plan: some three times the largest one.
_MAX_FILE: Final = 16 * 1024 * 1024
#: The fields of a step that are checked.
_CHECKED: Final = ("number", "instance", "source", "destination", "destination_node")
#: The fields of an instance that stays.
_OF_LEFT: Final = ("instance", "host", "why")
#: Reasons that are shown for one instance; JSON has all.
_MAX_REASONS: Final = 3


_format_option = click.option(
    "--format", "format_", type=click.Choice(["table", "openstack"]),
    default="table", show_default=True,
    help="Print tables, or the commands of the openstack client.",
)  # fmt: skip


def _output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all plans have."""
    parallel = click.option(
        "--parallel", type=click.IntRange(1, 1000), default=1, show_default=True,
        metavar="N", help="The most moves at the same time.",
    )  # fmt: skip
    return parallel(_format_option(command))


_seconds_option = click.option(
    "--seconds", type=FiniteNumber(0, 600), default=60, show_default=True,
    metavar="S", help="End the search, and show the best plan so far.",
)  # fmt: skip


@click.group()
def plan() -> None:
    """Plan moves of instances, or check a plan; nothing is moved.

    A plan is computed from the hosts and providers as they are now. nova moves the
    instances, and decides and claims each move as usual.
    """


@plan.command()
@click.argument("hosts", nargs=-1, metavar="[HOST]…")
@click.option(
    "--place", metavar="LEVEL=NAME", help="All hosts in this place, such as rack=r1."
)
@click.option("--aggregate", help="All hosts of this host aggregate, by name or UUID.")
@click.option(
    "--keep-up", type=click.IntRange(0), default=0, show_default=True, metavar="N",
    help="Do not empty N of the hosts, those whose instances use the most memory.",
)  # fmt: skip
@_output_options
@json_option
@click.pass_obj
def drain(  # noqa: PLR0913 - one for each option
    session: CommandSession,
    hosts: Sequence[str],
    place: str | None,
    aggregate: str | None,
    keep_up: int,
    parallel: int,
    format_: str,
    as_json: bool,
) -> None:
    """Show where the instances of hosts can go, and in which order.

    Each HOST is a service host or a compute node. The configured filters and weighers
    choose each destination, and its claim is counted before the next one is chosen;
    instances with few choices go first. What cannot move is listed with every reason.
    Write the JSON to a file for `moorage plan check`.
    """
    given = {"hosts": list(hosts), "place": place, "aggregate": aggregate}
    named = {name: value for name, value in given.items() if value}
    if len(named) != 1:
        raise click.UsageError("Pass either HOST, --place or --aggregate")
    body: dict[str, Any] = {**named, "keep_up": keep_up, "parallel": parallel}
    _print_plan(session, "drain", body, format_, as_json=as_json)


@plan.command("make-room")
@click.option("--flavor", required=True, help="The name of the flavor.")
@click.option(
    "--from", "source", type=click.Choice(["decisions", "nova"]), default="decisions",
    show_default=True, help="Where the flavor is read.",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(1, 1000), default=1, show_default=True, metavar="N",
    help="How many instances are to fit.",
)  # fmt: skip
@click.option("--host", help="The service host on which they are to fit.")
@_seconds_option
@_output_options
@json_option
@click.pass_obj
def make_room(  # noqa: PLR0913 - one for each option
    session: CommandSession,
    flavor: str,
    source: str,
    count: int,
    host: str | None,
    seconds: float,
    parallel: int,
    format_: str,
    as_json: bool,
) -> None:
    """Show the fewest moves after which N more instances of a flavor fit.

    Of plans with equally few moves it is the one with the least memory. The hosts that
    lack the least are searched. No move needs room that another one frees.
    """
    body = {"flavor": flavor, "from": source, "count": count, "seconds": seconds}
    body |= {"parallel": parallel, **({"host": host} if host else {})}
    _print_plan(session, "make-room", body, format_, as_json=as_json)


@plan.command()
@click.option(
    "--max-moves", type=click.IntRange(1, 4000), default=200, show_default=True,
    metavar="N", help="The most moves.",
)  # fmt: skip
@click.option(
    "--max-gib", type=FiniteNumber(0), metavar="G",
    help="The most memory that is moved, GiB.",
)  # fmt: skip
@_seconds_option
@_output_options
@json_option
@click.pass_obj
def defragment(
    session: CommandSession,
    max_moves: int,
    max_gib: float | None,
    seconds: float,
    parallel: int,
    format_: str,
    as_json: bool,
) -> None:
    """Show the moves that empty the most hosts, for the least memory moved.

    A host is emptied, or none of its instances moves; no instance goes to an empty
    host.
    """
    body = {"max_moves": max_moves, "seconds": seconds, "parallel": parallel}
    body |= {} if max_gib is None else {"max_gib": max_gib}
    _print_plan(session, "defragment", body, format_, as_json=as_json)


def _print_plan(
    session: CommandSession,
    kind: str,
    body: dict[str, Any],
    format_: str,
    *,
    as_json: bool,
) -> None:
    _check_format(format_, as_json=as_json)
    answer = session.api().post(f"plans/{kind}", body)
    if format_ == "openstack":
        click.echo("\n".join(_commands(answer)))
        return
    print_answer(as_json, answer, _show_plan)


def _check_format(format_: str, *, as_json: bool) -> None:
    if as_json and format_ != "table":
        raise click.UsageError("Pass --json or --format, not both")


def _commands(answer: Answer) -> Iterator[str]:
    """Yield the commands that do a plan; what is left is in comments."""
    if answer["hosts"]:
        yield "# The hosts get no new instances:"
    for host in answer["hosts"]:
        yield (
            "openstack compute service set --disable --disable-reason "
            f"{shlex.quote('emptied by a plan of moorage')} {shlex.quote(host)} "
            "nova-compute"
        )
    by_wave = sorted(answer["steps"], key=lambda step: (step["wave"], step["number"]))
    wave = 0
    for step in by_wave:
        if step["wave"] != wave:
            wave = step["wave"]
            after = "" if wave == 1 else ", once those before are over"
            yield f"# Wave {wave} of {answer['n_waves']}{after}:"
        yield (
            "openstack --os-compute-api-version 2.30 server migrate --live-migration "
            f"--host {shlex.quote(step['destination'])} {shlex.quote(step['instance'])}"
        )
    for stuck in answer["stuck"]:
        yield f"# Fits on no other host: {safe(stuck['instance'])} on " + safe(
            f"{stuck['host']}: {stuck['why']}", 300
        )
    for unknown in answer["unknown"]:
        yield f"# Not planned: {safe(unknown['instance'])} on " + safe(
            f"{unknown['host']}: {unknown['why']}", 300
        )


def _show_plan(console: Console, answer: Answer) -> None:
    steps, left = answer["steps"], [*answer["stuck"], *answer["unknown"]]
    kept = f"; {names(answer['kept_up'])} stay up" if answer["kept_up"] else ""
    moves = (
        f"{len(steps):,} move(s) in {answer['n_waves']:,} wave(s), "
        f"{answer['memory_mb'] / 1024:,.1f} GiB of memory"
    )
    if answer["goal"]:
        _show_goal(console, answer["goal"], moves)
    else:
        emptied = f"{len(answer['hosts']):,} host(s) to empty{kept}: "
        console.print(cell(f"{emptied}{moves}; {len(left):,} instance(s) stay"))
    if steps:
        table = make_table(
            "", "wave", "instance", "flavor", "from", "to", "GiB", "choices",
            "free there then", right=("wave", "GiB", "choices"),
        )  # fmt: skip
        for step in sorted(steps, key=lambda step: (step["wave"], step["number"])):
            room = step["room_after"]
            table.add_row(
                f"{step['wave']:,}",
                cell(step["instance"]),
                cell(step["flavor"] or "-"),
                cell(step["source"]),
                cell(step["destination"], "bold"),
                f"{step['memory_mb'] / 1024:,.1f}",
                f"{step['n_choices']:,}",
                f"{room['vcpus']:,.0f} vCPU, {room['memory_mb'] / 1024:,.1f} GiB",
            )
        console.print(table)
    if left:
        table = make_table("What cannot be moved", "instance", "flavor", "on", "why")
        for instance in left:
            table.add_row(
                cell(instance["instance"]),
                cell(instance.get("flavor") or "-"),
                cell(instance["host"]),
                _why(instance),
            )
        console.print(table)
        n_never = answer["n_never_fit"]
        n_stuck = len(answer["stuck"])
        if n_stuck > n_never:
            console.print(
                f"{n_stuck - n_never:,} of them fit somewhere before the other moves; "
                f"{n_never:,} fit nowhere, whatever the order."
            )
    if answer["n_unnamed"]:
        text = (
            f"Note: the hosts count {answer['n_unnamed']:,} more instance(s), which "
            "no source names"
        )
        console.print(cell(text, "yellow"))
    _show_failure(console, answer["failure"])
    notes = Counter(note for step in steps for note in step["notes"])
    print_notes(
        console, [f"{count:,} move(s): {note}" for note, count in notes.items()]
    )
    print_notes(console, answer["notes"])


def _show_goal(console: Console, goal: Answer, moves: str) -> None:
    n_after, n_wanted = goal["n_after"], goal["n_wanted"]
    if goal["flavor"]:
        text = f"{goal['n_before']:,} of {n_wanted:,} {goal['flavor']} fit now"
        if n_after > goal["n_before"]:
            text += (
                f", {n_after:,} after {moves}; no plan with these "
                f"{goal['n_searched']:,} host(s) has fewer than "
                f"{goal['n_least_moves']:,}"
            )
        elif n_after < n_wanted and not goal["n_searched"]:
            text += (
                "; no host would have room, even if its instances that can be moved "
                "were elsewhere"
            )
        elif n_after < n_wanted:
            text += (
                f"; no moves of the instances on {goal['n_searched']:,} host(s), those "
                "that lack the least, were found that make room"
            )
    else:
        text = (
            f"{n_after:,} empty host(s) after {moves}; {goal['n_before']:,} now, at "
            f"most {n_wanted:,} with any plan within the limits"
        )
    console.print(cell(text, "yellow" if goal["flavor"] and n_after < n_wanted else ""))
    if goal["is_cut_short"]:
        console.print(cell("The search ended before all was tried.", "yellow"))


def _why(instance: Mapping[str, Any]) -> Text:
    """Return why an instance stays: a line for each check that most hosts fail."""
    reasons = instance.get("reasons") or ()
    lines = [
        f"{reason['check']} ({reason['n_hosts']:,} hosts): {reason['text']}"
        for reason in reasons[:_MAX_REASONS]
    ]
    if len(reasons) > _MAX_REASONS:
        lines.append(f"{len(reasons) - _MAX_REASONS} more: --json")
    return Text("\n").join(
        cell(line, "yellow", MAX_TEXT) for line in lines or [instance["why"]]
    )


def _show_failure(console: Console, failure: Answer | None) -> None:
    if failure is None:
        return
    n_instances, unplaced = failure["n_instances"], failure["unplaced"]
    host = f"If {safe(failure['host'])}, the fullest host then, fails as well: "
    if unplaced:
        text = f"{len(unplaced):,} of its {n_instances:,} instance(s) fit nowhere"
    else:
        text = (
            f"its {n_instances - len(failure['unknown']):,} instance(s) fit elsewhere"
        )
    if failure["unknown"]:
        text += f"; the requests of {len(failure['unknown']):,} are not known"
    is_bad = bool(unplaced or failure["unknown"])
    console.print(cell(host + text, "yellow" if is_bad else ""))


@plan.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@_format_option
@json_option
@click.pass_context
def check(context: click.Context, path: Path, format_: str, as_json: bool) -> None:
    """Show which steps of a plan, in FILE, still hold, and what has changed since.

    FILE has the JSON of a plan, as `moorage plan drain --json` prints it. The steps are
    checked in order, and those that hold are counted. With --format openstack, the
    commands of these steps are printed. The exit status is 1 if a step does not hold,
    or if an instance has come to a host that the plan empties.
    """
    _check_format(format_, as_json=as_json)
    document = _read(path)
    body = {
        "hosts": document["hosts"],
        "left": [
            instance["instance"]
            for instance in (*document["stuck"], *document["unknown"])
        ],
        "steps": [
            {name: step[name] for name in _CHECKED} for step in document["steps"]
        ],
    }
    session: CommandSession = context.obj
    answer = session.api().post("plans/check", body)
    age_s = max(0.0, answer["now"] - document["made_at"])

    def show(console: Console, checked: Answer) -> None:
        _show_checked(console, checked, age_s)

    if format_ == "openstack":
        click.echo("\n".join(_commands_left(document, answer)))
    else:
        print_answer(as_json, answer, show)
    context.exit(0 if answer["is_whole"] else 1)


def _commands_left(document: Answer, checked: Answer) -> Iterator[str]:
    """Yield the commands of the steps that hold; what has changed is in comments."""
    state_of = {step["number"]: step["state"] for step in checked["steps"]}
    holding = [
        step for step in document["steps"] if state_of[step["number"]] == "holds"
    ]
    yield from _commands({**document, "steps": holding})
    for step in checked["steps"]:
        if step["why"]:
            text = f"{step['instance']} on {step['source']}: {'; '.join(step['why'])}"
            yield f"# Step {step['number']} no longer holds: {safe(text, 300)}"
    for new in checked["new"]:
        yield f"# Came since: {safe(new['instance'])} on {safe(new['host'])}"


def _show_checked(console: Console, answer: Answer, age_s: float) -> None:
    counts = Counter(step["state"] for step in answer["steps"])
    steps = ", ".join(f"{state} {count:,}" for state, count in counts.items())
    age = f"Planned {age_s / 60:,.0f} min ago, {len(answer['steps']):,} step(s)"
    console.print(cell(f"{age}: {steps}" if steps else age))
    failed = [step for step in answer["steps"] if step["why"]]
    if failed:
        table = make_table(
            "Steps that no longer hold", "step", "instance", "from", "to", "state",
            "why", right=("step",),
        )  # fmt: skip
        for step in failed:
            why = "; ".join(safe(reason, 200) for reason in step["why"])
            table.add_row(
                f"{step['number']:,}",
                cell(step["instance"]),
                cell(step["source"]),
                cell(step["destination"]),
                cell(step["state"], "yellow"),
                cell(why, limit=MAX_TEXT),
            )
        console.print(table)
    if answer["new"]:
        table = make_table("Instances that came since", "instance", "on")
        for instance in answer["new"]:
            table.add_row(cell(instance["instance"]), cell(instance["host"]))
        console.print(table)
    if not answer["is_whole"]:
        console.print("Plan again for what is left.")


def _read(path: Path) -> dict[str, Any]:
    """Return the plan of a file.

    Raises
    ------
    click.ClickException
        The file cannot be read, or has no plan; one line says what is wrong.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as e:
        raise click.ClickException(f"{path} cannot be read: {e.strerror}") from e
    if len(data) > _MAX_FILE:
        raise click.ClickException(f"{path} is no plan: it is larger than 16 MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as e:
        what = "it is no JSON" if data else "it is empty"
        raise click.ClickException(f"{path} is no plan: {what}") from e
    version = document.get("version") if isinstance(document, dict) else None
    if not isinstance(document, dict) or "steps" not in document:
        raise click.ClickException(
            f"{path} is no plan: it must have the output of moorage plan drain --json"
        )
    if version != 1:
        raise click.ClickException(
            f"{path} is a plan of version {safe(str(version), 20)!r}, and this command "
            "reads version 1: plan again"
        )
    try:
        made_at = document["made_at"]
        if not isinstance(made_at, int | float) or not math.isfinite(made_at):
            raise ValueError(f"made_at: {safe(repr(made_at), 40)} is no finite number")
        for kind in ("stuck", "unknown"):
            _ = [instance[name] for instance in document[kind] for name in _OF_LEFT]
        _ = [step[name] for step in document["steps"] for name in _CHECKED]
        _ = [operator.index(step["wave"]) for step in document["steps"]]
        _ = document["hosts"], operator.index(document["n_waves"])
    except (KeyError, OverflowError, TypeError, ValueError) as e:
        missing = f"{e.args[0]} is missing" if isinstance(e, KeyError) else str(e)
        raise click.ClickException(
            f"{path} is a damaged plan: {safe(missing, 200)}"
        ) from e
    return document
