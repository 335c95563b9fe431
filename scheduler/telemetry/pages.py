# SPDX-License-Identifier: Apache-2.0
"""/metrics, /healthz and /readyz as a WSGI application, and what a relay exports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from flask import Blueprint, Flask, request
from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.wrappers import Response

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from ..relay import RelayStatus  # only a relay has the library of Kafka

_HEADERS: Final = {"Cache-Control": "no-store"}


def make_app(pages: Blueprint) -> Flask:
    """Return an application of these pages only."""
    app = Flask(__name__, static_folder=None)
    app.register_blueprint(pages)
    app.register_error_handler(HTTPException, _failed)
    return app


def make_pages(
    metrics: WSGIApplication, readiness: Callable[[], tuple[bool, str]]
) -> Blueprint:
    """Return the pages, for an application.

    Parameters
    ----------
    metrics : WSGI application
        Answers GET of /metrics.
    readiness : callable
        Returns whether requests can be served, and the text of /readyz.
    """
    pages = Blueprint("telemetry", __name__)

    @pages.get("/metrics")
    def metrics_page() -> Response:
        # prometheus_client's application refuses HEAD.
        environ = {**request.environ, "REQUEST_METHOD": "GET"}
        answer = Response.from_app(metrics, environ, buffered=True)
        answer.headers.update(_HEADERS)
        return answer

    @pages.get("/healthz")
    def healthz() -> Response:
        return _text("Alive.")

    @pages.get("/readyz")
    def readyz() -> Response:
        is_ready, text = readiness()
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return _text(text, status)

    return pages


def _failed(error: HTTPException) -> Response:
    response = _text(error.description or error.name, error.code or 500)
    if isinstance(error, NotFound):
        response.data = b"Not found; available: /metrics, /healthz, /readyz.\n"
    return response


def _text(text: str, status: int = HTTPStatus.OK) -> Response:
    return Response(f"{text}\n", status, _HEADERS, mimetype="text/plain")


# -- moorage-relay ---------------------------------------------------------------------


class RelayMetrics(Collector):
    """Exports the state of a relay."""

    def __init__(self, status: RelayStatus) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Return the relay's role, its number of hosts, and the written messages."""
        status = self._status
        yield GaugeMetricFamily(
            "moorage_relay_leader",
            "1 if this relay leads, else 0.",
            value=float(status.is_leader),
        )
        yield GaugeMetricFamily(
            "moorage_relay_hosts",
            "Compute nodes of the leader's source.",
            value=status.n_hosts,
        )
        written = CounterMetricFamily(
            "moorage_relay_messages",
            "Messages that this relay has written to Kafka.",
            labels=["kind"],
        )
        for kind, number in status.n_written.copy().items():
            written.add_metric([kind], number)
        yield written
        if status.last_write_at is not None:
            yield GaugeMetricFamily(
                "moorage_relay_last_write_timestamp_seconds",
                "When this relay last wrote to Kafka, since the epoch.",
                value=status.last_write_at,
            )


def make_relay_app(status: RelayStatus) -> WSGIApplication:
    """Return an application with /metrics, /healthz and /readyz."""
    registry = CollectorRegistry()
    registry.register(RelayMetrics(status))
    pages = make_pages(make_wsgi_app(registry), lambda: (status.is_ready, status.text))
    return make_app(pages)
