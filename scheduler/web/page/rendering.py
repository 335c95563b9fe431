# SPDX-License-Identifier: Apache-2.0
"""Templates and their filters, and one decision as a file of its own."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

import jinja2
from flask import has_request_context, request
from markupsafe import Markup

from .... import __version__
from ...clock import utc_text
from ...display import STEP_MEANINGS, age, number, rank_text, request_rows, safe, why
from . import charts, formats

# Headers of each page, which loads nothing from elsewhere, and is not framed or cached.
_POLICY: Final = (
    "default-src 'none'",
    "style-src 'self'",
    "script-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
)
HEADERS: Final = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


#: In the WSGI environment of a request that a cookie has signed in.
SIGNED_IN: Final = "moorage.signed_in"
_PACKAGE: Final = __name__.rpartition(".")[0]
_MAX_MESSAGE: Final = 2000
#: Pages that the navigation links: path and title.
NAVIGATION: Final = (
    ("/", "Cloud"),
    ("/decisions", "Decisions"),
    ("/failures", "Failures"),
    ("/hosts", "Hosts"),
    ("/why-not", "Why not"),
    ("/closest", "Closest"),
    ("/dry-run", "Dry run"),
    ("/capacity", "Capacity"),
    ("/plans/drain", "Plans"),
)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "age": age,
        "capitalized": formats.capitalized,
        "claims_line": charts.claims_line,
        "clock_time": formats.clock_time,
        "count": formats.count,
        "disk": formats.disk,
        "iso_time": utc_text,
        "memory": formats.memory,
        "message": _message,
        "milliseconds": formats.milliseconds,
        "percent": formats.percent,
        "rank_text": rank_text,
        "request_rows": request_rows,
        "score_bars": charts.score_bars,
        "shown": _shown,
        "signed": number,
        "times_bar": charts.times_bar,
        "utc_time": formats.utc_time,
        "why": why,
    }
    environment.filters.update(filters)
    environment.globals.update(
        decision_path=formats.decision_path,
        funnel_bar=charts.funnel_bar,
        host_path=formats.host_path,
        navigation=NAVIGATION,
        question_path=formats.question_path,
        share_bar=charts.share_bar,
        step_meanings=STEP_MEANINGS,
        version=__version__,
    )
    return environment


def render(template: str, /, **values: object) -> str:
    """Return a page of HTML."""
    is_signed_in = has_request_context() and SIGNED_IN in request.environ
    return (
        _environment()
        .get_template(template)
        .render({"is_signed_in": is_signed_in, **values})
    )


def decision_file(id_: str, decisions: Sequence[Mapping[str, Any]]) -> str:
    """Return the decisions of a request as one file that needs no other.

    Parameters
    ----------
    decisions : sequence of mapping
        The decisions in the form in which the API returns them.
    """
    style = (resources.files(_PACKAGE) / "static" / "page.css").read_text("utf-8")
    return render(
        "decision_file.html", id=id_, decisions=decisions, style=Markup(style)
    )


def _shown(value: object) -> str:
    """Return a name as `safe` does: a page must not hold control characters either."""
    return safe("" if value is None else value)


def _message(value: object) -> str:
    """Return a sentence, which may be longer than a name."""
    return safe("" if value is None else value, _MAX_MESSAGE)
