# SPDX-License-Identifier: Apache-2.0
"""The functions that render the web page, one for each path: Flask's view functions."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

from flask import Blueprint, Response, g, redirect, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as BaseResponse

from ...database import StoreUnavailable
from ...decision_store import DecisionQuery
from ...errors import SchedulerError
from ...explain import BY_ZONE, NOT_UP, HostCondition, HostSearch
from ..answers import MAX_WHOLE, Answers, finite
from ..statuses import describe
from . import forms
from .charts import minutes_bars
from .formats import capitalized, decision_path, host_path, question_path
from .heat_map import HeatLayout, PlanPicture, heat_data, heat_maps
from .last_hour import LastHour
from .rendering import HEADERS, render

_STATIC: Final = "/static"
#: Compute nodes of one page of the list of hosts.
_HOSTS: Final = 100
#: The latest decisions that the start page shows.
_LATEST: Final = 8
#: Groups of hosts of one page of the heat map: zones, cells or places.
_GROUPS: Final = 100
#: Groups of the heat map from which on each is folded.
_OPEN_GROUPS: Final = 16
#: Hosts that a search lists.
_FOUND: Final = 50
#: What a search finds decisions by.
_DECISION_NAMES: Final[Mapping[str, Callable[[str], DecisionQuery]]] = {
    "request": lambda name: DecisionQuery(request_id=name, limit=1),
    "instance": lambda name: DecisionQuery(instance_uuid=name, limit=1),
    "project": lambda name: DecisionQuery(project_id=name, limit=1),
    "flavor": lambda name: DecisionQuery(flavor=name, limit=1),
}
#: Instances of a decision whose places are looked up.
_PLACED: Final = 200
#: Hosts that the page of the capacity names for each flavor.
_HOSTS_OF_FLAVOR: Final = 20
#: Seconds for which a page waits for the store of decisions, in all.
_STORE_S: Final = 3.0
#: Seconds for which a page waits for the search of a plan.
_PLAN_S: Final = 20.0
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
    page.add_url_rule("/failures", view_func=views.failures)
    page.add_url_rule("/search", view_func=views.search)
    page.add_url_rule("/decisions/<path:id_>", view_func=views.decision)
    page.add_url_rule("/hosts", view_func=views.hosts)
    page.add_url_rule("/hosts/<path:host>", view_func=views.host)
    page.add_url_rule("/why-not", view_func=views.why_not)
    page.add_url_rule("/closest", view_func=views.closest)
    page.add_url_rule("/capacity", view_func=views.capacity)
    page.add_url_rule("/dry-run", view_func=views.dry_run)
    kinds = ",".join(f'"{kind}"' for kind in forms.PLANS)
    page.add_url_rule(f"/plans/<any({kinds}):kind>", view_func=views.plan)
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
            cells=self._answers.explainer.cell_names(),
            components=self._answers.components(),
            max_open=_OPEN_GROUPS,
        )

    def search(self) -> tuple[str, int] | BaseResponse:
        """Show what has a name: a host, a request, an instance, a project, a flavor."""
        name = forms.text(request.args, "q")
        if not name:
            return redirect("/")
        forms.check_name("q", name)
        answers, found = self._answers, dict[str, str]()
        matching = answers.explainer.hosts(
            node_uuids=frozenset(
                answers.explainer.find_hosts(HostSearch(text=name))[:_FOUND]
            )
        ).hosts
        hosts = list(dict.fromkeys(node.host for node in matching))
        if name in hosts and (path := host_path(name)):
            found[f"Host {name}"] = path
        _, error = _attempt(lambda: found.update(self._found_decisions(name)))
        if error is None and len(found) == 1:
            return redirect(next(iter(found.values())))
        page = render(
            "search.html",
            path="/search",
            q=name,
            found=found,
            hosts=hosts,
            is_cut=len(matching) == _FOUND,
            error=error,
        )
        is_found = found or hosts
        status = HTTPStatus.OK if is_found or not error else error.status
        return page, status if is_found or error else HTTPStatus.NOT_FOUND

    def _found_decisions(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield what has decisions of this name, and the path of its page."""
        store = self._answers.store
        names = dict.fromkeys((name, name.lower()))  # UUIDs have no case
        for kind, query_of in _DECISION_NAMES.items():
            for spelling in names:
                if store.page(query_of(spelling)).decisions:
                    path = (
                        question_path("decisions", **{kind: spelling})
                        if kind in ("project", "flavor")
                        else decision_path(spelling)
                    )
                    if path:
                        yield f"{capitalized(kind)} {spelling}", path
                    break

    def decisions(self) -> tuple[str, int]:
        """Show stored decisions, the newest first."""
        return self._searched(
            "decisions",
            forms.decision_args(_shown(request.args)),
            forms.OUTCOMES,
            self._answers.decisions,
            {"decisions": [], "next": None, "max_view_age_s": 0},
        )

    def failures(self) -> tuple[str, int]:
        """Show decisions without a host by cause and what was requested."""
        return self._searched(
            "failures",
            forms.decision_args(_shown(request.args), "1h"),
            forms.FAILURES,
            self._answers.failures,
            {"groups": [], "n_decisions": 0, "is_complete": True},
        )

    def _searched(
        self,
        name: str,
        args: Mapping[str, str],
        outcomes: Mapping[str, str],
        find: Callable[[DecisionQuery], Any],
        nothing: Mapping[str, Any],
    ) -> tuple[str, int]:
        """Show what `find` returns for a form's query; `nothing` if it failed."""
        answer, error = _attempt(lambda: finite(find(forms.decision_query(args))))
        page = render(
            f"{name}.html",
            path=f"/{name}",
            args=args,
            ages=forms.AGES,
            outcomes=outcomes,
            answer=answer or nothing,
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
            max_view_age_s=self._answers.explainer.max_view_age_s,
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
        """Show the compute nodes that match, sorted, in pages."""
        explainer, first = self._answers.explainer, forms.number(request.args, "first")
        search = forms.host_search(request.args)
        uuids = explainer.find_hosts(search)
        shown_uuids = uuids[first : first + _HOSTS]
        page = self._answers.hosts(node_uuids=frozenset(shown_uuids))
        nodes = {node.node_uuid: node for node in page.hosts}
        return render(
            "hosts.html",
            path="/hosts",
            args=_shown(request.args),
            search=search,
            states=[*HostCondition, NOT_UP],
            hosts=[nodes[uuid] for uuid in shown_uuids if uuid in nodes],
            flavors=() if page.room is None else page.room.flavors,
            n_hosts=page.n_hosts,
            n_matching=len(uuids),
            first=first,
            next=first + _HOSTS if first + _HOSTS < len(uuids) else None,
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
            cells=self._answers.explainer.cell_names(),
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

    def plan(self, kind: str) -> tuple[str, int]:
        """Show the moves that empty hosts or make room, and the hosts before and after.

        Parameters
        ----------
        kind : str
            One of `forms.PLANS`.
        """
        answers = self._answers
        make = {
            "drain": answers.plan_drain,
            "make-room": answers.plan_make_room,
            "defragment": answers.plan_defragment,
        }[kind]

        def find() -> Any:  # noqa: ANN401 - JSON
            body = forms.plan_body(kind, request.args)
            if body is None:
                return None
            limit = {} if kind == "drain" else {"seconds": _PLAN_S}
            plan = finite(make({**body, **limit}))
            sources = {*plan["hosts"], *(step["source"] for step in plan["steps"])}
            return {
                "plan": plan,
                "picture": PlanPicture.of(plan["changes"], sources),
                "command": forms.plan_command(kind, body),
            }

        return self._asked(
            "plan.html", "/plans/drain", find, kind=kind, kinds=forms.PLANS
        )

    def _asked(
        self, template: str, path: str, find: Callable[[], Any], **values: object
    ) -> tuple[str, int]:
        """Return a page with a form, and below the form the answer or the error."""
        answer, error = _attempt(find)
        page = render(
            template,
            path=path,
            args=_shown(request.args),
            answer=answer,
            error=error,
            cells=self._answers.explainer.cell_names(),
            **values,
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
