# SPDX-License-Identifier: Apache-2.0
"""The adapter that sends HTTP requests to Placement, as ``[placement]`` says."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

import requests
from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1 import loading as ks_loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from urllib3.exceptions import NewConnectionError, ProtocolError, ReadTimeoutError

from ..conf.keystoneauth import load_auth
from ..errors import (
    InvalidRequest,
    PlacementError,
    PlacementUnauthorized,
    PlacementUnavailable,
    shortened,
)
from ..failures import Failure, cause_of, one_line
from .allocations.limits import PLACEMENT_TIMEOUT_S

_GROUP: Final = "placement"
#: Size of a connection pool, one for each thread that serves requests by default, and
#: the number of pools: one for Placement, one for Keystone.
_CONNECTIONS: Final = 64
_SERVERS: Final = 2

#: What keystoneauth1 raises where it cannot authenticate or finds no endpoint.
AUTH_ERRORS: Final = (
    ksa_errors.AuthorizationFailure,
    ksa_errors.AuthPluginException,
    ksa_errors.EndpointNotFound,
    ksa_errors.Forbidden,
    ksa_errors.MissingAuthMethods,
    ksa_errors.MissingAuthPlugin,
    ksa_errors.Unauthorized,
)

#: What HTTP libraries raise for a header or a body that cannot be sent.
_UNSENDABLE: Final = (
    UnicodeError,
    requests.exceptions.InvalidHeader,
    requests.exceptions.InvalidJSONError,
)
_NEVER_CONNECTED: Final = (NewConnectionError, requests.ConnectTimeout)
_POSSIBLY_SENT: Final = (ProtocolError, ReadTimeoutError, requests.ReadTimeout)
#: The beginning of urllib3's text in an error of requests.
_POOL: Final = re.compile(r": HTTPS?ConnectionPool\(")


class AnswerLost(PlacementUnavailable):
    """Raised when a write was sent and its outcome is unknown.

    `is_in_flight` is false if Placement itself reported a failure, so that the write
    cannot be executed later.
    """

    def __init__(self, message: str, *, is_in_flight: bool) -> None:
        super().__init__(message)
        self.is_in_flight = is_in_flight


class Verb(enum.StrEnum):
    """HTTP methods of Placement's API."""

    GET = "GET"
    PUT = "PUT"
    POST = "POST"
    DELETE = "DELETE"


class Response(Protocol):
    """The part of ``requests.Response`` that is used."""

    @property
    def status_code(self) -> int:
        """HTTP status."""

    @property
    def text(self) -> str:
        """Body."""

    @property
    def content(self) -> bytes:
        """Body, undecoded."""

    def json(self) -> Any:  # noqa: ANN401 - JSON's own types
        """Body, decoded."""


class PlacementAdapter(Protocol):
    """The part of keystoneauth1's Adapter that is used.

    The microversion is among the headers, so that an adapter needs no service type. For
    writes, `retries` are `connect_retries` and `status_code_retries`, both 0.
    """

    def get(self, url: str, *, headers: dict[str, str], raise_exc: bool) -> Response:
        """GET `url`, relative to Placement's endpoint."""

    def delete(
        self, url: str, *, headers: dict[str, str], raise_exc: bool, **retries: int
    ) -> Response:
        """DELETE `url`, once."""

    def put(
        self,
        url: str,
        *,
        json: object,
        headers: dict[str, str],
        raise_exc: bool,
        **retries: int,
    ) -> Response:
        """PUT `json` to `url`, once."""

    def post(
        self,
        url: str,
        *,
        json: object,
        headers: dict[str, str],
        raise_exc: bool,
        **retries: int,
    ) -> Response:
        """POST `json` to `url`, once."""


def make_adapter(conf: cfg.ConfigOpts) -> Adapter:
    """Return an adapter configured by ``[placement]``.

    It sends nothing yet. Without auth_type, requests carry no token.

    Raises
    ------
    PlacementUnauthorized
        auth_type or an option of it cannot be used.
    """
    timeout = conf.placement.timeout or PLACEMENT_TIMEOUT_S
    try:
        auth = load_auth(conf, _GROUP)
        session = ks_loading.load_session_from_conf_options(
            conf, _GROUP, auth=auth, timeout=timeout
        )
    except AUTH_ERRORS as e:
        failure = Failure.of("[placement] auth_type", conf.placement.auth_type, e)
        raise PlacementUnauthorized(f"{failure}") from e
    for http_adapter in set(session.session.adapters.values()):
        http_adapter.init_poolmanager(_SERVERS, _CONNECTIONS)  # type: ignore[attr-defined]
    return ks_loading.load_adapter_from_conf_options(
        conf, _GROUP, session=session, auth=auth, raise_exc=False
    )


def call_failure(verb: Verb, url: str, e: Exception) -> PlacementError | InvalidRequest:
    """Return the error for an adapter's exception, by whether the request was sent."""
    request = f"{verb} {shortened(url)} of Placement"
    if isinstance(e, AUTH_ERRORS):
        return PlacementUnauthorized(
            f"{request} failed to authenticate or to find the endpoint: {one_line(e)}. "
            "Check auth_type, its options and endpoint_override in [placement]."
        )
    causes = list(_causes(e))
    if any(isinstance(cause, _UNSENDABLE) for cause in causes):
        return InvalidRequest(f"{request} cannot be sent: {shortened(str(e))}")
    # The root cause instead of urllib3's wrapping.
    text = one_line(_POOL.split(str(e), maxsplit=1)[0])
    root = cause_of(causes[-1])
    message = (
        f"{request} got no answer: {text if root in text else f'{text}: {root}'}. "
        "Check that it runs, and the options endpoint_override, auth_url, timeout and "
        "those of TLS in [placement]."
    )
    # keystoneauth1 chains the errors of its retries: if one attempt had a connection,
    # the request may have arrived.
    was_never_sent = any(isinstance(cause, _NEVER_CONNECTED) for cause in causes) and (
        not any(isinstance(cause, _POSSIBLY_SENT) for cause in causes)
    )
    if verb is Verb.GET or was_never_sent:
        return PlacementUnavailable(message)
    return AnswerLost(message, is_in_flight=True)


def _causes(e: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, some in requests' args or urllib3's reason."""
    while e is not None:
        yield e
        inner = next(
            (argument for argument in e.args if isinstance(argument, BaseException)),
            None,
        )
        if inner is not None:
            yield inner
            reason = getattr(inner, "reason", None)
            if isinstance(reason, BaseException):
                yield reason
        e = e.__cause__ or e.__context__
