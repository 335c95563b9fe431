# SPDX-License-Identifier: Apache-2.0
"""The pages for monitoring, /metrics, /healthz and /readyz, as a WSGI application."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from flask import Blueprint, Flask, request
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.wrappers import Response

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

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
