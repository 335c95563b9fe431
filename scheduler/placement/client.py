# SPDX-License-Identifier: Apache-2.0
"""The client of Placement's API, which maps every failure to one typed error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import requests
from urllib3.exceptions import NewConnectionError, ProtocolError, ReadTimeoutError

from .. import tracing
from ..candidates import MICROVERSION, AllocationCandidates, CandidatesQuery
from ..errors import (
    InvalidRequest,
    PlacementError,
    PlacementIncompatible,
    PlacementRejected,
    PlacementUnauthorized,
    PlacementUnavailable,
    shortened,
)
from ..failures import cause_of, one_line
from .adapter import AUTH_ERRORS, AnswerLost, PlacementAdapter, Response, Verb
from .answers import (
    ConsumerAllocations,
    WriteAnswer,
    as_tuple,
    read_body,
    read_candidates,
    read_consumer,
    read_versions,
    read_write_answer,
    rejected,
)
from .health import CallOutcome, PlacementHealth

_T = TypeVar("_T")

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

#: The adapter must not retry a write, whatever [placement] configures: the answer to
#: the second attempt would hide what the first one did.
_NO_RETRIES: Final = {"connect_retries": 0, "status_code_retries": 0}

#: A consumer that does not exist: a GET of its allocations costs next to nothing.
_NO_CONSUMER = "00000000-0000-0000-0000-000000000000"


class PlacementClient:
    """Call one Placement through an adapter.

    Its only state is the health. It is as thread-safe as its adapter (keystoneauth1's
    is). Every method raises PlacementUnavailable,
    PlacementUnauthorized or PlacementIncompatible; for a malformed query,
    PlacementRejected; for a request that HTTP cannot carry, InvalidRequest; for a write
    whose response was lost, AnswerLost. While Placement is down, nearly all calls raise
    PlacementUnavailable at once and send nothing. `global_request_id` is sent as
    X-Openstack-Request-Id.

    Parameters
    ----------
    adapter : PlacementAdapter
        keystoneauth1's Adapter, or anything with its call shape.
    health : PlacementHealth, optional
        None: a new one.
    """

    def __init__(
        self, adapter: PlacementAdapter, *, health: PlacementHealth | None = None
    ) -> None:
        self._adapter = adapter
        self.health = health or PlacementHealth()

    def version_range(self) -> tuple[str, str]:
        """Return the lowest and highest microversion; every Placement supports 1.0."""
        return self._read("/", read_versions, microversion="1.0")

    def check(self) -> None:
        """Raise PlacementIncompatible unless Placement supports `MICROVERSION`."""
        low, high = self.version_range()
        if not as_tuple(low) <= as_tuple(MICROVERSION) <= as_tuple(high):
            raise PlacementIncompatible(
                f"Placement supports microversions {low} to {high}; {MICROVERSION} to "
                f"{MICROVERSION} is needed. Upgrade Placement to Ussuri or later."
            )

    def probe(self) -> None:
        """Raise the error that a claim would end in now; nothing is written.

        One cheap GET verifies that Placement supports the microversion, accepts the
        credentials and reaches its database. `check` verifies less.
        """
        self.allocations(_NO_CONSUMER)

    def is_empty(self) -> bool:
        """Return whether Placement is known to have no resource provider at all.

        For a query without candidates. It costs an occasional GET until there is a
        provider, and nothing afterwards. It raises nothing: it is a hint to operators.
        """
        return self.health.is_empty(lambda: self.read("/resource_providers"))

    def allocation_candidates(
        self, query: CandidatesQuery, *, global_request_id: str | None = None
    ) -> AllocationCandidates:
        """Return a query's candidates; PlacementRejected if the query is malformed."""
        candidates = self._read(
            query.path,
            read_candidates,
            microversion=query.microversion,
            global_request_id=global_request_id,
        )
        if candidates.n_requests:
            self.health.set_registered()
        return candidates

    def allocations(
        self, consumer_uuid: str, *, global_request_id: str | None = None
    ) -> ConsumerAllocations:
        """Return a consumer's allocations; none if it does not exist."""
        url = f"/allocations/{consumer_uuid}"
        return self._read(
            url,
            lambda body: read_consumer(url, body),
            global_request_id=global_request_id,
        )

    def put_allocations(
        self,
        consumer_uuid: str,
        body: Mapping[str, object],
        *,
        global_request_id: str | None = None,
    ) -> WriteAnswer:
        """Replace one consumer's allocations. A refusal (400, 404, 409) is returned."""
        url = f"/allocations/{consumer_uuid}"
        return self.write(Verb.PUT, url, body, global_request_id=global_request_id)

    def post_allocations(
        self,
        bodies: Mapping[str, Mapping[str, object]],
        *,
        global_request_id: str | None = None,
    ) -> WriteAnswer:
        """Replace several consumers' allocations, all or none; as put_allocations."""
        return self.write(
            Verb.POST, "/allocations", bodies, global_request_id=global_request_id
        )

    def delete_allocations(
        self, consumer_uuid: str, *, global_request_id: str | None = None
    ) -> bool:
        """Delete a consumer's allocations; return whether it had any."""
        url = f"/allocations/{consumer_uuid}"
        answer = self.write(Verb.DELETE, url, global_request_id=global_request_id)
        if not answer.is_done and answer.status != 404:
            raise rejected(Verb.DELETE, url, answer.status, answer.detail)
        return answer.is_done

    def read(
        self,
        url: str,
        *,
        microversion: str = MICROVERSION,
        global_request_id: str | None = None,
    ) -> object:
        """GET any URL of Placement and return the decoded body."""
        return self._read(
            url,
            lambda body: body,
            microversion=microversion,
            global_request_id=global_request_id,
        )

    def write(
        self,
        verb: Verb,
        url: str,
        body: object = None,
        *,
        global_request_id: str | None = None,
    ) -> WriteAnswer:
        """Send one write; a refusal by Placement itself is returned.

        Raises
        ------
        AnswerLost
            It was sent, and the response does not show whether it was done.
        """
        with self.health.guarding(_outcome):
            response = self._call(verb, url, MICROVERSION, body, global_request_id)
            return read_write_answer(verb, url, response)

    def _read(
        self,
        url: str,
        parse: Callable[[object], _T],
        *,
        microversion: str = MICROVERSION,
        global_request_id: str | None = None,
    ) -> _T:
        """Return the parsed body of the answer to a GET."""
        # Parsed inside the guard: a proxy's error page may be JSON too.
        with self.health.guarding(_outcome):
            response = self._call(Verb.GET, url, microversion, None, global_request_id)
            return parse(read_body(url, response, microversion))

    def _call(
        self,
        verb: Verb,
        url: str,
        microversion: str,
        body: object,
        global_request_id: str | None,
    ) -> Response:
        """Send one request; return the response, whatever its status.

        A client for conductors changes the request here.

        Raises
        ------
        PlacementUnauthorized
            Keystone refuses the credentials, or knows no endpoint.
        PlacementUnavailable
            There was no response; a write was not sent.
        AnswerLost
            A write was sent, and there was no response.
        InvalidRequest
            HTTP cannot carry the request.
        """
        headers = {
            "Accept": "application/json",
            "OpenStack-API-Version": f"placement {microversion}",
        }
        if global_request_id:
            headers["X-Openstack-Request-Id"] = global_request_id
        options: dict[str, Any] = {"headers": headers, "raise_exc": False}
        if verb is not Verb.GET:
            options |= _NO_RETRIES
        if verb in (Verb.PUT, Verb.POST):
            options["json"] = body
        try:
            with tracing.http_call(verb, url, headers) as span:
                send = getattr(self._adapter, verb.lower())
                response: Response = send(url, **options)
                if span is not None:
                    status = response.status_code
                    span.set_attribute("http.response.status_code", status)
                return response
        except AUTH_ERRORS as e:
            raise PlacementUnauthorized(
                f"{verb} {shortened(url)} of Placement failed to authenticate or to "
                f"find the endpoint: {one_line(e)}. Check auth_type, its options and "
                "endpoint_override in [placement]."
            ) from e
        except Exception as e:
            # A custom adapter may raise anything, and a write whose outcome is unknown
            # must be settled whatever was raised.
            raise _failure(verb, url, e) from e


def _outcome(e: PlacementError) -> CallOutcome:
    if isinstance(e, PlacementRejected):
        return CallOutcome.ANSWERED
    # Placement may be healthy: on PostgreSQL, for example, the first claims of a new
    # project race to create it, and all but one fail so. Reading the consumer shows it.
    if isinstance(e, AnswerLost) and not e.is_in_flight:
        return CallOutcome.UNCLEAR
    return CallOutcome.FAILED


def _failure(verb: Verb, url: str, e: Exception) -> PlacementError | InvalidRequest:
    request = f"{verb} {shortened(url)} of Placement"
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
    """Yield the chain of causes; urllib3 has it in `reason`, requests in `args`."""
    while e is not None:
        yield e
        inner = next((a for a in e.args if isinstance(a, BaseException)), None)
        if inner is not None:
            yield inner
            reason = getattr(inner, "reason", None)
            if isinstance(reason, BaseException):
                yield reason
        e = e.__cause__ or e.__context__
