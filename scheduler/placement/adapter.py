# SPDX-License-Identifier: Apache-2.0
"""The adapter that sends HTTP requests to Placement, as ``[placement]`` says."""

from __future__ import annotations

import enum
from typing import Any, Final, Protocol

from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1 import loading as ks_loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from ..conf.keystoneauth import load_auth
from ..errors import (
    PlacementUnauthorized,
    PlacementUnavailable,
)
from ..failures import Failure
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
    for each in set(session.session.adapters.values()):
        each.init_poolmanager(_SERVERS, _CONNECTIONS)  # type: ignore[attr-defined]
    return ks_loading.load_adapter_from_conf_options(
        conf, _GROUP, session=session, auth=auth, raise_exc=False
    )
