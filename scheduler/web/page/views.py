# SPDX-License-Identifier: Apache-2.0
"""The functions that render the web page, one for each path: Flask's view functions."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from flask import Blueprint, Response, g, request
from werkzeug.exceptions import HTTPException

from ...database import StoreUnavailable
from ...decision_store import DecisionQuery
from ...errors import SchedulerError
from ...explain import BY_ZONE
from ..answers import MAX_WHOLE, Answers, finite
from ..statuses import describe
from . import forms
from .charts import minutes_bars
from .heat_map import HeatLayout, heat_data, heat_maps
from .last_hour import LastHour
from .rendering import HEADERS, render

_STATIC: Final = "/static"
#: Compute nodes of one page of the list of hosts.
_HOSTS: Final = 100
#: The latest decisions that the start page shows.
_LATEST: Final = 8
#: Groups of hosts of one page of the heat map: zones, cells or places.
_GROUPS: Final = 100
#: Instances of a decision whose places are looked up.
_PLACED: Final = 200
#: Hosts that the page of the capacity names for each flavor.
_HOSTS_OF_FLAVOR: Final = 20
#: Seconds for which a page waits for the store of decisions, in all.
_STORE_S: Final = 3.0
#: Only an answer with more bytes is compressed.
_LARGE: Final = 4096

_T = TypeVar("_T")


def make_page(answers: Answers) -> Blueprint:
    """Return the paths of the page, without access control: see `make_access`."""
    page = Blueprint(
        "page", __name__, static_folder="static", static_url_path="/static"
    )
    page.register_error_handler(Exception, failed)
    page.after_request(_finished)
    views = _Views(answers)
    page.add_url_rule("/", view_func=views.cloud)
    page.add_url_rule("/decisions", view_func=views.decisions)
    page.add_url_rule("/decisions/<path:id_>", view_func=views.decision)
    page.add_url_rule("/hosts", view_func=views.hosts)
    page.add_url_rule("/hosts/<path:host>", view_func=views.host)
    page.add_url_rule("/why-not", view_func=views.why_not)
    page.add_url_rule("/closest", view_func=views.closest)
    page.add_url_rule("/capacity", view_func=views.capacity)
    page.add_url_rule("/dry-run", view_func=views.dry_run)
    return page


class _Views:
    """The view functions; each returns a page of HTML, or the page and its status."""

    def __init__(self, answers: Answers) -> None:
        self._unbounded = answers
        self._last_hour = LastHour(lambda query: self._answers.store.page(query))

    @property
    def _answers(self) -> Answers:
        """The answers for this HTTP request, which waits `_STORE_S` for the store."""
        if "answers" not in g:
            g.answers = self._unbounded.within(_STORE_S)
        answers: Answers = g.answers
        return answers

    def cloud(self) -> str:
        """Show how full hosts are, the latest decisions, and reasons of rejections."""
        grouping = forms.text(request.args, "by") or BY_ZONE
        fill = self._answers.explainer.fill(grouping)
        first_group = forms.number(request.args, "first")
        # The page's script requests the other parts more often than the heat map.
        is_small = "small" in request.args
        shown_groups = (
            () if is_small else fill.groups[first_group : first_group + _GROUPS]
        )
        layout = HeatLayout.of(sum(len(group.hosts) for group in shown_groups))
        query = DecisionQuery(limit=_LATEST)
        room, _ = _attempt(self._answers.cloud_room)
        latest, error = _attempt(lambda: self._answers.decisions(query))
        hour, _ = _attempt(self._last_hour.read)
        return render(
            "cloud.html",
            path="/",
            fill=fill,
            first=first_group,
            next=first_group + _GROUPS
            if first_group + _GROUPS < len(fill.groups)
            else None,
            maps=[(group, heat_maps(group, layout)) for group in shown_groups],
            data=heat_data(shown_groups, layout),
            room=room,
            latest=finite(latest["decisions"]) if latest else [],
            hour=hour,
            minutes=minutes_bars(hour.minutes) if hour else "",
            error=error,
        )

    def decisions(self) -> tuple[str, int]:
        """Show stored decisions, the newest first."""
        args = request.args

        def find() -> Any:  # noqa: ANN401 - JSON
            return finite(self._answers.decisions(forms.decision_query(args)))

        answer, error = _attempt(find)
        page = render(
            "decisions.html",
            path="/decisions",
            args=_shown(args),
            ages=forms.AGES,
            answer=answer or {"decisions": [], "next": None},
            error=error,
        )
        return page, error.status if error else HTTPStatus.OK

    def decision(self, id_: str) -> str:
        """Show the decisions of a request id or an instance."""
        forms.check_name("id", id_)
        decisions = finite(self._answers.decision(id_))["decisions"]
        return render(
            "decision.html",
            path="/decisions",
            id=id_,
            decisions=decisions,
            places=self._places(decisions),
        )

    def _places(self, decisions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the places of the hosts that were selected."""
        instances = [
            instance
            for decision in decisions
            for instance in decision["instances"][:_PLACED]
        ]
        return self._answers.explainer.places_of(
            {instance["host"] for instance in instances}
        )

    def hosts(self) -> str:
        """Show the compute nodes in pages."""
        after = request.args.get("after", "")
        answer = self._answers.hosts(after, _HOSTS)
        next_ = answer.next
        next_page = (
            f"/hosts?{urlencode({'after': next_}, errors='replace')}" if next_ else ""
        )
        return render(
            "hosts.html", path="/hosts", answer=answer, after=after, more=next_page
        )

    def host(self, host: str) -> str:
        """Show all that is known of one host, and decisions that selected it."""
        forms.check_name("host", host)
        detail = finite(self._answers.host(host))
        host = detail["host"]
        query = forms.decision_query({"host": host})
        answer, error = _attempt(lambda: finite(self._answers.decisions(query)))
        decisions = answer["decisions"][:MAX_WHOLE] if answer else []
        return render(
            "host.html",
            path="/hosts",
            host=host,
            detail=detail,
            decisions=decisions,
            error=error,
        )

    def why_not(self) -> tuple[str, int]:
        """Show every reason why a host cannot serve a request."""
        host, id_ = (forms.text(request.args, name) for name in ("host", "request"))

        def find() -> Any:  # noqa: ANN401 - JSON
            if not host or not id_:
                return None
            forms.check_name("host", host)
            forms.check_name("request", id_)
            return self._answers.why_not(host, {"host": host, "stored": id_})

        return self._asked("why_not.html", "/why-not", find)

    def closest(self) -> tuple[str, int]:
        """Show what would have to change for a request to fit."""
        id_ = forms.text(request.args, "request")

        def find() -> Any:  # noqa: ANN401 - JSON
            if not id_:
                return None
            forms.check_name("request", id_)
            return self._answers.closest({"stored": id_})

        return self._asked("closest.html", "/closest", find)

    def dry_run(self) -> tuple[str, int]:
        """Show where instances would go now."""

        def find() -> Any:  # noqa: ANN401 - JSON
            body = forms.dry_run_body(request.args)
            if body is None:
                return None
            return finite(self._answers.dry_run(body["count"], body))

        return self._asked("dry_run.html", "/dry-run", find)

    def capacity(self) -> tuple[str, int]:
        """Show how many more instances of recently requested flavors fit, and where."""

        def find() -> Any:  # noqa: ANN401 - JSON
            body: dict[str, Any] = {"hosts": _HOSTS_OF_FLAVOR}
            for name, field in (("name", "flavor"), ("project", "project")):
                if value := forms.text(request.args, field):
                    forms.check_name(field, value)
                    body[name] = value
            return finite(self._answers.capacity(body))

        return self._asked("capacity.html", "/capacity", find)

    def _asked(
        self, template: str, path: str, find: Callable[[], Any]
    ) -> tuple[str, int]:
        """Return a page with a form, and below the form the answer or the error."""
        answer, error = _attempt(find)
        page = render(
            template, path=path, args=_shown(request.args), answer=answer, error=error
        )
        return page, error.status if error else HTTPStatus.OK


@dataclasses.dataclass(frozen=True, slots=True)
class PageError:
    """An error that a page shows beside its other content."""

    status: HTTPStatus
    text: str


def _attempt(find: Callable[[], _T]) -> tuple[_T | None, PageError | None]:
    """Return what a function returns, or the error that it raises."""
    try:
        return find(), None
    except (SchedulerError, StoreUnavailable) as e:
        return None, PageError(*describe(e, f"{request.method} {request.path}"))


def _shown(args: Mapping[str, str]) -> dict[str, str]:
    """Return the first 50 fields of a form, with the first value of each."""
    return {name: args[name] for name in list(args)[:50]}


def failed(error: Exception) -> Response:
    """Return the page that shows an error."""
    if isinstance(error, HTTPException):
        status, text = error.code or 500, error.description or error.name
    else:
        status, text = describe(error, f"{request.method} {request.path}")
    page = render("error.html", path="", status=HTTPStatus(status), text=text)
    return Response(page, status, HEADERS)


def _finished(response: Response) -> Response:
    """Add the headers of a page to its response; compress a large response."""
    if request.endpoint == "page.static":
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response
    response.headers.update(HEADERS)
    response.vary.add("Accept-Encoding")
    accepts_gzip = request.accept_encodings.quality("gzip") > 0
    if accepts_gzip and len(response.data) > _LARGE:
        response.data = gzip.compress(response.data, compresslevel=3, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
    return response
