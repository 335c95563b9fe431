# SPDX-License-Identifier: Apache-2.0
"""The HTTP API and the page as a WSGI application, and its server on ``[web] port``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
from flask import Flask, Response, request
from oslo_config import cfg
from werkzeug.exceptions import HTTPException, MethodNotAllowed, UnsupportedMediaType

from ..decision_store import DecisionQuery
from ..drivers.record import Outcome
from ..errors import ConfigurationError, InvalidRequest, excerpt
from ..http_server import WebServer, listen
from ..placement.allocations.limits import WEB_THREADS
from .answers import MAX_GROUPED, Answers, finite
from .openapi import BODIES, PARAMETERS, document
from .page import failed, make_page
from .specs import check
from .statuses import describe

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

#: Maximum number of bytes of a body: a plan of the most instances fits.
_MAX_BODY: Final = 2 * 1024 * 1024
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def make_app(answers: Answers) -> Flask:
    """Return the application, without access control: see `make_access`."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = _MAX_BODY
    app.register_error_handler(HTTPException, _http_failed)
    app.register_error_handler(Exception, _failed)
    app.register_blueprint(make_page(answers))
    _add_stored(app, answers)
    _add_questions(app, answers)
    return app


def _add_stored(app: Flask, answers: Answers) -> None:
    """Add the paths of stored decisions and views."""

    @app.get("/v1/decisions")
    def decisions() -> Response:
        args = _arguments("/v1/decisions")
        return _answer(answers.decisions(_query(args)))

    @app.get("/v1/failures")
    def failures() -> Response:
        args = _arguments("/v1/failures")
        return _answer(answers.failures(_query({**args, "limit": MAX_GROUPED})))

    @app.get("/v1/decisions/<path:id_>")
    def decision(id_: str) -> Response:
        check(id_, PARAMETERS["/v1/decisions/{id}"]["id"], "id")
        return _answer(answers.decision(id_))

    @app.get("/v1/records")
    def records() -> Response:
        args = _arguments("/v1/records")
        return _answer(answers.records(args.get("id"), _query(args)))

    @app.get("/v1/views/<id_>")
    def view(id_: str) -> Response:
        check(id_, PARAMETERS["/v1/views/{id}"]["id"], "id")
        return _answer(answers.view(id_))


def _add_questions(app: Flask, answers: Answers) -> None:
    """Add the paths that ask about present hosts and providers, and the document."""

    @app.post("/v1/why-not")
    def why_not() -> Response:
        body = _body("/v1/why-not")
        return _answer(answers.why_not(body["host"], body))

    @app.post("/v1/dry-run")
    def dry_run() -> Response:
        body = _body("/v1/dry-run")
        return _answer(answers.dry_run(body.get("count", 1), body))

    @app.post("/v1/closest")
    def closest() -> Response:
        return _answer(answers.closest(_body("/v1/closest")))

    @app.post("/v1/capacity")
    def capacity() -> Response:
        return _answer(answers.capacity(_body("/v1/capacity")))

    @app.post("/v1/plans/drain")
    def plan_drain() -> Response:
        return _answer(answers.plan_drain(_body("/v1/plans/drain")))

    @app.post("/v1/plans/make-room")
    def plan_make_room() -> Response:
        return _answer(answers.plan_make_room(_body("/v1/plans/make-room")))

    @app.post("/v1/plans/defragment")
    def plan_defragment() -> Response:
        return _answer(answers.plan_defragment(_body("/v1/plans/defragment")))

    @app.post("/v1/plans/check")
    def check_plan() -> Response:
        return _answer(answers.check_plan(_body("/v1/plans/check")))

    @app.get("/v1/hosts")
    def hosts() -> Response:
        args = _arguments("/v1/hosts")
        page = answers.hosts(
            after=args.get("after", ""),
            limit=args["limit"],
            has_instances=args["instances"],
        )
        try:
            # A tenth of the time of json, which matters for 10,000 hosts.
            text = msgspec.json.encode(page)
        except UnicodeEncodeError:  # a name has half of a pair of surrogates
            return _answer(dataclasses.asdict(page))
        return Response(text, HTTPStatus.OK, _HEADERS, mimetype="application/json")

    @app.get("/v1/hosts/<path:host>")
    def host(host: str) -> Response:
        check(host, PARAMETERS["/v1/hosts/{host}"]["host"], "host")
        return _answer(answers.host(host))

    @app.get("/v1/openapi.json")
    def openapi() -> Response:
        return _answer(document())


def _query(args: Mapping[str, Any]) -> DecisionQuery:
    return DecisionQuery(
        instance_uuid=args.get("instance"),
        project_id=args.get("project"),
        host=args.get("host"),
        since_s=args.get("since"),
        flavor=args.get("flavor"),
        until_s=args.get("until"),
        failed=args.get("failed"),
        outcome=Outcome(args["outcome"]) if "outcome" in args else None,
        after=int(args["after"]) if "after" in args else None,
        limit=args["limit"],
    )


# -- what a client sends -----------------------------------------------------------


def _arguments(path: str) -> dict[str, Any]:
    """Return the query's parameters, converted to their schemas' types, with defaults.

    Raises
    ------
    InvalidRequest
        A parameter is unknown, repeated or invalid.
    """
    schemas = PARAMETERS[path]
    arguments = {
        name: schema["default"]
        for name, schema in schemas.items()
        if "default" in schema
    }
    for name, values in request.args.lists():
        if name not in schemas:
            raise InvalidRequest(f"There is no parameter {name[:50]!r} of {path}")
        if len(values) > 1:
            raise InvalidRequest(f"{name}: it is given {len(values)} times")
        arguments[name] = _converted(name, values[0], schemas[name])
    return arguments


def _converted(name: str, text: str, schema: Mapping[str, Any]) -> object:
    """Return the value of a parameter, of the type that its schema names."""
    value: object = text
    if schema["type"] == "boolean":
        if text not in ("true", "false"):
            raise InvalidRequest(f"{name}: {text[:50]!r} is neither true nor false")
        value = text == "true"
    elif schema["type"] in ("integer", "number"):
        try:
            value = int(text) if schema["type"] == "integer" else float(text)
        except ValueError as e:
            raise InvalidRequest(f"{name}: {text[:50]!r} is not a number") from e
        if not text.isascii() or value != value or "_" in text or text != text.strip():
            raise InvalidRequest(f"{name}: {text[:50]!r} is not a number")
    check(value, schema, name)
    return value


def _body(path: str) -> dict[str, Any]:
    """Return the body of a request, which matches its path's schema.

    Raises
    ------
    UnsupportedMediaType
        The Content-Type is not JSON.
    InvalidRequest
        The body is not JSON, or does not match the schema.
    """
    if not request.is_json:
        raise UnsupportedMediaType(
            "The body must be JSON, with the header Content-Type: application/json"
        )
    try:
        body = json.loads(request.get_data(), parse_constant=_refuse_constant)
        check(body, BODIES[path])
    except RecursionError as e:
        raise InvalidRequest("the body: it is nested too deeply") from e
    except ValueError as e:
        raise InvalidRequest(f"the body is no JSON: {e}") from e
    converted: dict[str, Any] = _with_integers(body)
    return converted


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _with_integers(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON with 2.0 as 2: both are integers to a JSON schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _with_integers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_with_integers(entry) for entry in value]
    return value


# -- what a client receives --------------------------------------------------------


def _answer(data: object, status: int = HTTPStatus.OK) -> Response:
    text = json.dumps(finite(data), allow_nan=False)
    return Response(text, status, _HEADERS, mimetype="application/json")


def _error(text: str, status: int) -> Response:
    return _answer({"error": text}, status)


def _http_failed(error: HTTPException) -> Response:
    if not request.path.startswith("/v1/"):
        return failed(error)
    response = _error(_describe_http(error), error.code or 500)
    # The header Allow of a 405 names the methods.
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _describe_http(error: HTTPException) -> str:
    """Return the text of an error, which names what the client sent."""
    path = excerpt(request.path)
    if isinstance(error, MethodNotAllowed):
        return f"{path} takes {' or '.join(sorted(error.valid_methods or ()))} only"
    if error.code == HTTPStatus.NOT_FOUND:
        return f"There is no path {path}; /v1/openapi.json has all of them"
    if error.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return f"The body has more than {_MAX_BODY} bytes"
    return error.description or error.name


def _failed(error: Exception) -> Response:
    status, text = describe(error, f"{request.method} {request.path}")
    return _error(text, status)


def make_web_server(conf: cfg.ConfigOpts, app: WSGIApplication) -> WebServer:
    """Return a server whose port is already listened on.

    Parameters
    ----------
    app : WSGI application
        With access control; see `make_access`.

    Raises
    ------
    ConfigurationError
        The port is not set, or cannot be listened on.
    """
    options = conf.web
    if options.port is None:
        raise ConfigurationError(
            "[web] port is not set: set the port on which to serve the HTTP API"
        )
    listening = listen(options.address, options.port, option="[web] port")
    return WebServer(listening, app, threads=WEB_THREADS, name="moorage web")
