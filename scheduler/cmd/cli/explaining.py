# SPDX-License-Identifier: Apache-2.0
"""The commands `moorage explain` and `why-not`: decisions on a screen, or as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import click
from rich.console import Console
from rich.text import Text

from ...display import listed, rank_text
from . import tables
from .answering import json_option, print_answer, print_notes, stored_id
from .replacing import write_output
from .replaying import past_host
from .session import CommandSession
from .tables import Answer
from .text import cell, safe, timestamp, why

_MAX_DETAIL: Final = 1000
_MAX_PLACES: Final = 8


@click.command()
@click.argument("id_", metavar="INSTANCE|REQUEST_ID", callback=stored_id)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write a self-contained page to this file instead.",
)
@click.option(
    "--host",
    help="Also show the checks, the rank and the weight of this host at the decision.",
)
@json_option
@click.pass_obj
def explain(
    session: CommandSession,
    id_: str,
    html: Path | None,
    host: str | None,
    as_json: bool,
) -> None:
    """Show why an instance is where it is, or found no host.

    Funnel, scores by weigher, claims, alternates and times of the newest decision on an
    instance, or of a request id as it stands in nova's logs. With --host, the same of
    any host beyond the best five, from the state of all hosts that is stored with the
    decision.
    """
    if html is not None and host is not None:
        raise click.UsageError("Pass --html or --host, not both")
    answer = session.api().get("decisions", id_)
    if html is not None:
        text = page(id_, answer["decisions"])
        try:
            # The page names hosts and requests: only its owner may read it.
            write_output(html, text, mode=0o600)
        except OSError as e:
            raise click.ClickException(f"--html {html}: {e.strerror}") from e
        click.echo(f"{html} written.", err=True)
        return
    if host is not None:
        answer = {**answer, "then": _then(session, id_, host)}
    print_answer(as_json, answer, _show)


def _then(session: CommandSession, id_: str, host: str) -> Answer:
    """Return a host at a decision: from the record if it was one of the best hosts.

    Otherwise from the stored state of all hosts, if it is stored, which takes longer.
    """
    api = session.api()
    try:
        then: Answer | None = api.post("why-not", {"host": host, "stored": id_})["then"]
    except click.ClickException:
        # The host may have been removed since.
        return past_host(api, id_, host).to_dict()
    if then is not None and then["ranks"]:
        return then
    try:
        return past_host(api, id_, host).to_dict()
    except click.ClickException:
        if then is None:
            raise
        return then


def _show(console: Console, answer: Answer) -> None:
    newest, *earlier = answer["decisions"]
    show(console, newest)
    if then := answer.get("then"):
        _show_then(console, then)
    if earlier:
        console.print(f"There are {len(earlier)} earlier decisions: see --json.")


@click.command("why-not")
@click.argument("host")
@click.argument("id_", metavar="INSTANCE|REQUEST_ID", callback=stored_id)
@click.option(
    "--then",
    "with_view",
    is_flag=True,
    help="Show all checks and the exact rank at the decision, from the state of all "
    "hosts that is stored with it.",
)
@json_option
@click.pass_obj
def why_not(
    session: CommandSession, host: str, id_: str, with_view: bool, as_json: bool
) -> None:
    """Show every reason why HOST cannot serve a stored request now.

    Each check runs alone: resources, traits and aggregates in Placement, restrictions
    of the request, and all filters. The rank and weight that HOST had at the decision
    follow, if it was among the best hosts; --then computes them for any host.
    """
    api = session.api()
    answer = api.post("why-not", {"host": host, "stored": id_})
    if with_view:
        answer = {**answer, "then": past_host(api, id_, host).to_dict()}
    print_answer(as_json, answer, _verdicts)


def _verdicts(console: Console, answer: Answer) -> None:
    for verdict in answer["nodes"]:
        _show_verdict(console, verdict, "now")
    # A server of an earlier release sends no past state of the host.
    if past := answer.get("then"):
        _show_then(console, past)
    print_notes(console, answer["notes"])


def _show_then(console: Console, past: Answer) -> None:
    console.print(f"\nAt the decision, {timestamp(past['at'])}:")
    for verdict in past["nodes"]:
        _show_verdict(console, verdict, "then")
    # Names of several weighers are longer than a cell.
    console.print(Text(rank_text(past)))


def _show_verdict(console: Console, verdict: Answer, when: str) -> None:
    if verdict["passes"]:
        console.print(cell(verdict["host"]).append(f" passes every check {when}."))
        return
    console.print(tables.reasons_table(verdict))
    if verdict["providers_from"] == "placement":
        console.print("Placement's part was read from Placement now.", style="dim")


def show(console: Console, decision: Answer) -> None:
    """Print one decision: outcome, funnel, scores, claims, alternates, times."""
    console.print(_headline(decision))
    if decision.get("request"):
        console.print(tables.request_table(decision["request"]))
    if decision["funnel"]:
        console.print(tables.funnel_table(decision))
    for attachment in decision.get("attachments", ()):
        console.print(Text(_attachment(attachment)))
    for query in _queries(decision):
        console.print(Text(f"Asked of Placement: {query}"))
    instances = decision["instances"]
    if instances:
        first_instance = instances[0]
        if any(host["parts"] for host in first_instance["top_hosts"]):
            title = (
                f"Scores of the best hosts: {safe(first_instance['host'])} was selected"
            )
            # A server of an earlier release sends no origins.
            origins = decision.get("origins", {})
            hosts = first_instance["top_hosts"]
            console.print(tables.scores_table(hosts, title, origins=origins))
        console.print(tables.placed_table(decision))
    if decision["claims"]:
        console.print(tables.claims_table(decision["claims"]))
    if note := decision.get("note"):
        console.print(Text(safe(note)))
    console.print(Text(_times(decision), style="dim"))


def _headline(decision: Answer) -> Text:
    outcome = decision["outcome"] or "open"
    text = Text()
    text.append(safe(decision["request_id"] or "-"), style="bold")
    text.append(f"  {timestamp(decision['started_at'])}")
    if decision.get("project_id"):
        text.append(f"  project {safe(decision['project_id'])}")
    text.append(f"\n{decision['n_instances']} instance(s): ")
    text.append(safe(outcome), style="green" if outcome == "selected" else "bold red")
    if reason := why(decision):
        text.append(f". {safe(reason)}")
    return text


def _attachment(attachment: Answer) -> str:
    """Return the places of a volume or port, or why they are not used."""
    label = f"{safe(attachment['hint'])} {safe(attachment['uuid'])}"
    if attachment["problem"]:
        result = "failed" if attachment["level"] else "dropped"
        return f"{label} {result}: {safe(attachment['detail'], _MAX_DETAIL)}"
    places = [safe(f"{level} {name}") for level, name in attachment["places"]]
    return f"{label}: {listed(places, _MAX_PLACES)}"


def _queries(decision: Answer) -> Iterator[str]:
    """Yield what Placement was asked for, each query once."""
    for url in dict.fromkeys(decision["queries"]):
        pairs = parse_qsl(urlsplit(url).query)
        parts = (f"{name} {value}" for name, value in pairs if name != "limit")
        yield safe("; ".join(parts))


def _times(decision: Answer) -> str:
    times = (f"{safe(step)} {ms:.1f} ms" for step, ms in decision["times_ms"].items())
    age = decision.get("view_age_s")
    as_of = "" if age is None else f"hosts as of {age:.1f} s before; "
    return f"{as_of}{', '.join(times)}"


def page(id_: str, decisions: Sequence[Answer]) -> str:
    """Return a self-contained page of HTML on the decisions of a request."""
    # The import loads the API and NumPy, which takes longer than all other commands.
    from ...web import decision_file

    return decision_file(id_, decisions)
