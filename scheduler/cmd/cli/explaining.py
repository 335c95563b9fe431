# SPDX-License-Identifier: Apache-2.0
"""One decision on a screen, and as a file of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from rich.console import Console
from rich.text import Text

from ...display import listed
from . import tables
from .tables import Answer
from .text import safe, timestamp, why

_MAX_DETAIL: Final = 1000
_MAX_PLACES: Final = 8


def show(console: Console, decision: Answer) -> None:
    """Print one decision: what, funnel, scores, claims, alternates, times."""
    console.print(_headline(decision))
    if decision.get("request"):
        console.print(tables.request_table(decision["request"]))
    if decision["funnel"]:
        console.print(tables.funnel_table(decision))
    for attachment in decision.get("attachments", ()):
        console.print(Text(_attachment(attachment)))
    if not decision["instances"]:
        for query in _queries(decision):
            console.print(Text(f"Asked of Placement: {query}"))
    instances = decision["instances"]
    if instances:
        first = instances[0]
        if any(host["parts"] for host in first["top_hosts"]):
            title = f"Scores of the best hosts: {safe(first['host'])} was selected"
            console.print(tables.scores_table(first["top_hosts"], title))
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
    """Return where a volume or port is, or why it does not count."""
    named = f"{safe(attachment['hint'])} {safe(attachment['uuid'])}"
    if attachment["problem"]:
        result = "failed" if attachment["level"] else "dropped"
        return f"{named} {result}: {safe(attachment['detail'], _MAX_DETAIL)}"
    places = [safe(f"{level} {name}") for level, name in attachment["places"]]
    return f"{named}: {listed(places, _MAX_PLACES)}"


def _queries(decision: Answer) -> Iterator[str]:
    """Yield what Placement was asked for, each query once."""
    for url in dict.fromkeys(decision["queries"]):
        pairs = parse_qsl(urlsplit(url).query)
        parts = (f"{name} {value}" for name, value in pairs if name != "limit")
        yield safe("; ".join(parts))


def _times(decision: Answer) -> str:
    times = (f"{safe(step)} {ms:.1f} ms" for step, ms in decision["times_ms"].items())
    age = decision.get("view_age_s")
    seen = "" if age is None else f"hosts as of {age:.1f} s before; "
    return f"{seen}{', '.join(times)}"


def page(id_: str, decisions: Sequence[Answer]) -> str:
    """Return a self-contained page of HTML on the decisions of a request."""
    # It imports the API and NumPy, which takes longer than all other commands.
    from ...web import decision_file

    return decision_file(id_, decisions)
