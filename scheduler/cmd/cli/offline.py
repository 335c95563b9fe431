# SPDX-License-Identifier: Apache-2.0
"""The HTTP API over a snapshot, in this process; commands with --snapshot ask it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from werkzeug.test import Client

from ...decision_store import (
    DecisionPage,
    DecisionQuery,
    Demand,
    StoredDecision,
    UnreadableRecord,
)
from ...drivers.record import Outcome
from ...errors import SchedulerError
from ...explain import Explainer
from ...views import OfflineParts, StoredView, UnreadableView
from ...web import Answers, make_app
from .client import ApiClient, read_options
from .snapshotting import Snapshot, read_snapshot, refused

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_URL: Final = "http://snapshot"


def offline_api(path: Path, config_files: Sequence[str]) -> ApiClient:
    """Return a client of the API of a snapshot.

    Parameters
    ----------
    config_files : sequence of str
        Options to use instead of those of the snapshot.

    Raises
    ------
    click.ClickException
        The snapshot cannot be used; one line says why.
    """
    snapshot = read_snapshot(path)
    conf = read_options(config_files) if config_files else None
    try:
        offline = OfflineParts(StoredView.decode(snapshot.view), conf)
        decisions = SnapshotDecisions(snapshot)
    except (UnreadableView, UnreadableRecord, SchedulerError) as e:
        raise refused(path, str(e)) from e
    explainer = Explainer(lambda: offline.parts, offline.providers)
    api = ApiClient(_URL, now=lambda: snapshot.taken_at)
    api.mount(_URL, _InProcess(make_app(Answers(explainer, decisions))))
    return api


class SnapshotDecisions:
    """The decisions of a snapshot, with the queries of a store.

    Raises
    ------
    UnreadableRecord
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._views = snapshot.views
        self._decisions = [StoredDecision.read(*record) for record in snapshot.records]
        self._decisions.sort(key=lambda decision: decision.id, reverse=True)

    def page(self, query: DecisionQuery) -> DecisionPage:
        """Return decisions, the newest first, or the oldest with `newer_than`."""
        matching = [
            decision for decision in self._decisions if _matches(query, decision)
        ]
        if query.newer_than is not None:
            matching.reverse()
        decisions = matching[: query.limit]
        return DecisionPage(
            decisions, decisions[-1].id if 0 < len(decisions) < len(matching) else None
        )

    def demand(
        self, query: DecisionQuery, flavors: Collection[str]
    ) -> dict[str, Demand]:
        """Return how many decisions of the snapshot were for each flavor."""
        counted = {}
        for name in flavors:
            of_flavor = dataclasses.replace(query, flavor=name)
            outcomes = [
                decision.outcome
                for decision in self._decisions
                if _matches(of_flavor, decision)
            ]
            n_refused = len(outcomes) - outcomes.count(Outcome.SELECTED)
            counted[name] = Demand(len(outcomes), n_refused)
        return counted

    def view(self, id_: str) -> bytes | None:
        """Return the view of a decision; None: the snapshot does not have it."""
        return self._views.get(id_)


def _matches(query: DecisionQuery, decision: StoredDecision) -> bool:
    return query.matches(decision) and all(_bounds(query, decision))


def _bounds(query: DecisionQuery, decision: StoredDecision) -> Iterator[bool]:
    """Yield for each bound of a query whether a decision is within it."""
    if query.since_s is not None:
        yield decision.decided_at >= query.since_s
    if query.until_s is not None:
        yield decision.decided_at < query.until_s
    if query.outcome is not None:
        yield decision.outcome is query.outcome
    if query.after is not None:
        yield decision.id < query.after
    if query.newer_than is not None:
        yield decision.id > query.newer_than
    if query.failed is not None:
        yield (decision.outcome is not Outcome.SELECTED) is query.failed


class _InProcess(BaseAdapter):
    """Sends the requests of a session to a WSGI application."""

    def __init__(self, app: WSGIApplication) -> None:
        super().__init__()
        self._client = Client(app)

    def send(
        self,
        request: requests.PreparedRequest,
        *_args: object,
        **_options: object,
    ) -> requests.Response:
        """Return the application's answer."""
        parts = urlsplit(request.url or "")
        answer = self._client.open(
            parts.path,
            method=request.method,
            query_string=parts.query,
            data=request.body,
            headers=list(request.headers.items()),
        )
        response = requests.Response()
        response.status_code = answer.status_code
        response.headers.update(answer.headers)
        response._content = answer.data  # noqa: SLF001 - as other adapters do
        response.request, response.url = request, request.url or ""
        return response

    def close(self) -> None:
        """Do nothing: there is no connection."""
