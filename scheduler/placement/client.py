# SPDX-License-Identifier: Apache-2.0
"""The client of Placement's API, which maps every failure to one typed error."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import requests
from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1 import loading as ks_loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from urllib3.exceptions import NewConnectionError, ProtocolError, ReadTimeoutError

from .. import tracing
from ..candidates import (
    MICROVERSION,
    AllocationCandidates,
    AllocationRequest,
    CandidatesQuery,
)
from ..conf.keystoneauth import load_auth
from ..decoding import loads
from ..errors import (
    InvalidRequest,
    PlacementError,
    PlacementIncompatible,
    PlacementRejected,
    PlacementUnauthorized,
    PlacementUnavailable,
    shortened,
)
from ..failures import Failure, cause_of, one_line
from .answers import read_candidates
from .circuit import CallOutcome, Circuit
from .registration import RegistrationCheck

_T = TypeVar("_T")

#: A consumer that does not exist: a GET of its allocations costs next to nothing.
_NO_CONSUMER = "00000000-0000-0000-0000-000000000000"

_GROUP = "placement"
#: Size of a connection pool, one for each thread that serves requests by default, and
#: the number of pools: one for Placement, one for Keystone.
_CONNECTIONS = 64
_SERVERS = 2
_N_WORDS = 12  # enough to distinguish a proxy's HTML page from Placement's answer
_AUTH_ERRORS = (
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
        """Take the request and response as text; `is_in_flight`: it may yet be done."""
        super().__init__(message)
        self.is_in_flight = is_in_flight


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

    The microversion is among the headers, so that an adapter needs no service type.
    """

    def get(self, url: str, *, headers: dict[str, str], raise_exc: bool) -> Response:
        """GET `url`, relative to Placement's endpoint."""

    def delete(
        self, url: str, *, headers: dict[str, str], raise_exc: bool, **retries: int
    ) -> Response:
        """DELETE `url`, once: `connect_retries` and `status_code_retries` are 0."""

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


class Verb(enum.StrEnum):
    """HTTP methods of Placement's API."""

    GET = "GET"
    PUT = "PUT"
    POST = "POST"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """Placement's answer to a write: done, or refused and why.

    `code` and `detail` are those of Placement's error, empty if it was done;
    `body` is the decoded body, if there is one.
    """

    status: int
    code: str = ""
    detail: str = ""
    body: object = None

    @property
    def is_done(self) -> bool:
        """Whether it was done."""
        return self.status < 300

    @property
    def is_concurrent_update(self) -> bool:
        """Whether it was refused because of a generation."""
        return self.code == "placement.concurrent_update"

    @property
    def is_consumer_conflict(self) -> bool:
        """Whether it was a consumer's generation, which only the text shows."""
        conflict = "consumer generation conflict" in self.detail
        return self.is_concurrent_update and conflict


@dataclass(frozen=True, slots=True)
class ConsumerAllocations:
    """The allocations of one consumer.

    Attributes
    ----------
    resources : mapping
        {provider UUID: {resource class: amount}}; empty without allocations.
    consumer_generation : int or None
        None without allocations: Placement does not report it then.
    project_id, user_id : str or None
        Owner; None without allocations.
    """

    resources: Mapping[str, Mapping[str, int]]
    consumer_generation: int | None = None
    project_id: str | None = None
    user_id: str | None = None

    @property
    def request(self) -> AllocationRequest:
        """The allocation request for the same resources."""
        parts = {uuid: {"resources": dict(r)} for uuid, r in self.resources.items()}
        return {"allocations": parts}

    def matches(self, request: AllocationRequest) -> bool:
        """Return whether they are exactly those of an allocation request."""
        allocations = request["allocations"]
        wanted = {u: dict(part["resources"]) for u, part in allocations.items()}
        return wanted == self.resources


def make_adapter(conf: cfg.ConfigOpts) -> Adapter:
    """Return an adapter configured by ``[placement]``.

    It sends nothing yet. Without auth_type, requests carry no token.

    Raises
    ------
    PlacementUnauthorized
        auth_type or an option of it cannot be used.
    """
    timeout = conf.placement.timeout or conf.moorage.placement_timeout
    try:
        auth = load_auth(conf, _GROUP)
        session = ks_loading.load_session_from_conf_options(
            conf, _GROUP, auth=auth, timeout=timeout
        )
    except _AUTH_ERRORS as e:
        failure = Failure.of("[placement] auth_type", conf.placement.auth_type, e)
        raise PlacementUnauthorized(f"{failure}") from e
    for each in set(session.session.adapters.values()):
        each.init_poolmanager(_SERVERS, _CONNECTIONS)  # type: ignore[attr-defined]
    return ks_loading.load_adapter_from_conf_options(
        conf, _GROUP, session=session, auth=auth, raise_exc=False
    )


class PlacementClient:
    """Call one Placement through an adapter.

    Its only state is the version range, the circuit and whether Placement is empty. It
    is as thread-safe as its adapter (keystoneauth1's is). Every method raises
    PlacementUnavailable, PlacementUnauthorized or PlacementIncompatible; for a
    malformed query, PlacementRejected; for a request that HTTP cannot carry,
    InvalidRequest; for a write whose response was lost, AnswerLost. While the circuit
    is open, nearly all calls raise PlacementUnavailable at once and send nothing.
    `global_request_id` is sent as X-Openstack-Request-Id.

    Attributes
    ----------
    circuit : Circuit
        Whether Placement is down, since when, why, and when it is retried.
    """

    def __init__(
        self, adapter: PlacementAdapter, *, circuit: Circuit | None = None
    ) -> None:
        """Take keystoneauth1's Adapter, or anything with its call shape.

        Parameters
        ----------
        circuit : Circuit, optional
            None: a new one.
        """
        self._adapter = adapter
        self.circuit = circuit or Circuit()
        self._range: tuple[str, str] | None = None
        self._registration = RegistrationCheck(self.read)

    def version_range(self) -> tuple[str, str]:
        """Return the lowest and highest microversion; the result is cached."""
        if self._range is None:
            # Every Placement supports 1.0.
            self._range = self._read("/", _versions, microversion="1.0")
        return self._range

    def check(self) -> None:
        """Raise PlacementIncompatible unless Placement supports `MICROVERSION`."""
        low, high = self.version_range()
        if not _as_tuple(low) <= _as_tuple(MICROVERSION) <= _as_tuple(high):
            self._range = None  # Placement may be upgraded while this process runs
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
        return self._registration.is_empty()

    @property
    def was_empty(self) -> bool:
        """The last result of `is_empty`, without a GET."""
        return self._registration.was_empty

    def allocation_candidates(
        self, query: CandidatesQuery, *, global_request_id: str | None = None
    ) -> AllocationCandidates:
        """Return a query's candidates; PlacementRejected if the query is malformed."""
        answer = self._read(
            query.path,
            read_candidates,
            microversion=query.microversion,
            global_request_id=global_request_id,
        )
        if answer.n_requests:
            self._registration.set_registered()
        return answer

    def allocations(
        self, consumer_uuid: str, *, global_request_id: str | None = None
    ) -> ConsumerAllocations:
        """Return a consumer's allocations; none if it does not exist."""
        url = f"/allocations/{consumer_uuid}"

        def held(body: object) -> ConsumerAllocations:
            return _consumer(url, body)

        return self._read(url, held, global_request_id=global_request_id)

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
            raise _rejected(Verb.DELETE, url, answer.status, answer.detail)
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
            _unparsed,
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
        with self.circuit.guarding(_outcome):
            response = self._send(verb, url, MICROVERSION, body, global_request_id)
            return _write_answer(verb, url, response)

    def _read(
        self,
        url: str,
        parse: Callable[[object], _T],
        *,
        microversion: str = MICROVERSION,
        global_request_id: str | None = None,
    ) -> _T:
        # Parsed inside the guard: a proxy's error page may be JSON too.
        with self.circuit.guarding(_outcome):
            response = self._send(Verb.GET, url, microversion, None, global_request_id)
            return parse(_read_answer(url, response, microversion))

    def _send(
        self,
        verb: Verb,
        url: str,
        microversion: str,
        body: object,
        global_request_id: str | None,
    ) -> Response:
        try:
            with tracing.http_call(verb, url) as span:
                response = self._call(verb, url, microversion, body, global_request_id)
                span.set("http.response.status_code", response.status_code)
                return response
        except _AUTH_ERRORS as e:
            raise PlacementUnauthorized(
                f"{verb} {shortened(url)} of Placement failed to authenticate or to "
                f"find the endpoint: {one_line(e)}. Check "
                "auth_type, its options and endpoint_override in [placement]."
            ) from e
        except Exception as e:
            if any(isinstance(cause, _UNSENDABLE) for cause in _causes(e)):
                raise InvalidRequest(
                    f"{verb} {shortened(url)} of Placement cannot be sent: "
                    f"{shortened(str(e))}"
                ) from e
            # A custom adapter may raise anything, and a write whose outcome is unknown
            # must be settled whatever was raised.
            raise _unreachable(verb, url, e) from e

    def _call(
        self,
        verb: Verb,
        url: str,
        microversion: str,
        body: object,
        global_request_id: str | None,
    ) -> Response:
        headers = {
            "Accept": "application/json",
            "OpenStack-API-Version": f"placement {microversion}",
        }
        if global_request_id:
            headers["X-Openstack-Request-Id"] = global_request_id
        tracing.inject_headers(headers)
        if verb in (Verb.GET, Verb.DELETE):
            if verb is Verb.GET:
                return self._adapter.get(url, headers=headers, raise_exc=False)
            return self._adapter.delete(
                url, headers=headers, raise_exc=False, **_NO_RETRIES
            )
        send = self._adapter.put if verb is Verb.PUT else self._adapter.post
        return send(url, json=body, headers=headers, raise_exc=False, **_NO_RETRIES)


def combine_allocations(
    before: ConsumerAllocations, wanted: AllocationRequest
) -> dict[str, Any]:
    """Return an allocation request for existing allocations and further wanted ones.

    nova's rule for an evacuation (``_move_operation_alloc_request``): the amounts of a
    provider in both, such as shared storage, are not summed; mappings are dropped.
    """
    held = before.request["allocations"]
    return {"allocations": {**wanted["allocations"], **held}}


def _outcome(e: PlacementError) -> CallOutcome:
    if isinstance(e, PlacementRejected):
        return CallOutcome.ANSWERED
    # Placement may be healthy: on PostgreSQL, for example, the first claims of a new
    # project race to create it, and all but one fail so. Reading the consumer shows it.
    if isinstance(e, AnswerLost) and not e.is_in_flight:
        return CallOutcome.UNCLEAR
    return CallOutcome.FAILED


#: Placement's error text for a provider that does not exist.
_NO_PROVIDER: Final = "No resource provider with uuid"


def _unparsed(body: object) -> object:
    return body


def _read_answer(url: str, response: Response, microversion: str) -> object:
    if response.status_code == 200:
        return _decoded(url, response)
    is_newer = _as_tuple(microversion) > _as_tuple(MICROVERSION)
    if response.status_code == 406 and is_newer:
        # Only this query needs the newer microversion; all others still work.
        raise PlacementRejected(
            f"GET {shortened(url)} needs microversion {microversion}: "
            f"{_offered(response)}"
        )
    _raise_unaccepted(Verb.GET, url, response)
    if _is_refusal(response):
        raise _rejected(Verb.GET, url, response.status_code, _refusal(response)[1])
    raise PlacementUnavailable(_unexpected(Verb.GET, url, response))


def _write_answer(verb: Verb, url: str, response: Response) -> WriteAnswer:
    status = response.status_code
    if status in (200, 201, 204) and _is_plausible(response):
        return WriteAnswer(status, body=_body(response))
    _raise_unaccepted(verb, url, response)
    is_placements = _error(response) is not None
    if _is_refusal(response) or (status == 404 and is_placements):
        return WriteAnswer(status, *_refusal(response))
    raise AnswerLost(
        _unexpected(verb, url, response),
        is_in_flight=status in (502, 503, 504) or not is_placements,
    )


#: 4xx that concern Placement, the route to it or its load: credentials (401, 403), a
#: wrong endpoint (404), a microversion (406), and a timeout or a limit of a server.
_NOT_REFUSALS: Final = frozenset({401, 403, 404, 406, 408, 429})


def _is_refusal(response: Response) -> bool:
    """Return whether this request was refused, by Placement or a server before it.

    A web server refuses a URL or a header that is too long (400, 414, 431) and a body
    that is too large (413): nothing was done, and the next request may succeed.
    """
    status = response.status_code
    if status == 404:  # for a missing provider, the endpoint is right
        return _NO_PROVIDER in _refusal(response)[1]
    return 400 <= status < 500 and status not in _NOT_REFUSALS


def _refusal(response: Response) -> tuple[str, str]:
    """Return the error's code and detail; of a page, its first words."""
    error = _error(response)
    if error is None:
        return "", _excerpt(response)
    return error["code"], error["detail"]


def _rejected(verb: Verb, url: str, status: int, detail: str) -> PlacementRejected:
    return PlacementRejected(f"{verb} {shortened(url)}: {status} {detail}", detail)


#: The adapter must not retry a write, whatever [placement] configures: the answer to
#: the second attempt would hide what the first one did.
_NO_RETRIES: Final[dict[str, Any]] = {"connect_retries": 0, "status_code_retries": 0}

#: What HTTP libraries raise for a header or a body that cannot be sent.
_UNSENDABLE = (
    UnicodeError,
    requests.exceptions.InvalidHeader,
    requests.exceptions.InvalidJSONError,
)
_NEVER_CONNECTED = (NewConnectionError, requests.ConnectTimeout)
#: The beginning of urllib3's text in an error of requests.
_POOL = re.compile(r": HTTPS?ConnectionPool\(")
_POSSIBLY_SENT = (ProtocolError, ReadTimeoutError, requests.ReadTimeout)


def _unreachable(verb: Verb, url: str, e: Exception) -> PlacementError:
    message = (
        f"{verb} {shortened(url)} of Placement got no answer: {_cause(e)}. Check that "
        "it runs, and the options endpoint_override, auth_url, timeout and those of "
        "TLS in [placement]."
    )
    if verb is Verb.GET or _was_never_sent(e):
        return PlacementUnavailable(message)
    return AnswerLost(message, is_in_flight=True)


def _cause(e: Exception) -> str:
    """Return an error's text with its root cause instead of urllib3's wrapping."""
    said = one_line(_POOL.split(str(e), maxsplit=1)[0])
    root = cause_of(list(_causes(e))[-1])
    return said if root in said else f"{said}: {root}"


def _was_never_sent(e: BaseException) -> bool:
    # keystoneauth1 chains the errors of its retries: if one attempt had a connection,
    # the request may have arrived.
    causes = list(_causes(e))
    return any(isinstance(cause, _NEVER_CONNECTED) for cause in causes) and not any(
        isinstance(cause, _POSSIBLY_SENT) for cause in causes
    )


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


def _raise_unaccepted(verb: Verb, url: str, response: Response) -> None:
    if response.status_code in (401, 403):
        raise PlacementUnauthorized(
            f"{_unexpected(verb, url, response)} Check the credentials in [placement]."
        )
    if response.status_code == 406:
        raise PlacementIncompatible(
            f"{_unexpected(verb, url, response)} Microversion {MICROVERSION} is "
            f"needed: {_offered(response)}."
        )


def _offered(response: Response) -> str:
    error = _error(response) or {}
    if "min_version" in error:
        low, high = error["min_version"], error["max_version"]
        return f"this Placement supports {low} to {high}"
    return "this Placement did not report the versions that it supports"


def _unexpected(verb: Verb, url: str, response: Response) -> str:
    excerpt = _excerpt(response)
    came = f'"{excerpt}"' if excerpt else "an empty body"
    request = f"{verb} {shortened(url)}"
    return f"{request} of Placement answered {response.status_code} with {came}."


def _excerpt(response: Response) -> str:
    return " ".join(response.text[:2000].split()[:_N_WORDS])[:200]


def _decoded(url: str, response: Response) -> object:
    try:
        body: object = loads(response.content)
    except ValueError as e:
        raise PlacementUnavailable(
            f"{_unexpected(Verb.GET, url, response)} This is not JSON ({e}): check "
            "that [placement] endpoint_override is Placement's own, not a proxy's."
        ) from e
    return body


def _error(response: Response) -> dict[str, Any] | None:
    """Return Placement's own error, or None if another server answered."""
    try:
        body = response.json()
    except ValueError:
        return None
    match body:
        case {"errors": [dict() as error, *_]}:
            # Placement breaks its lines; messages and logs are one line each.
            detail = " ".join(str(error.get("detail", "")).split())
            return {"code": "", **error, "detail": detail}
    return None


def _is_plausible(response: Response) -> bool:
    """Return whether this can be Placement's: no body or JSON, never a page."""
    return not response.text or _body(response) is not None


def _body(response: Response) -> object:
    try:
        return response.json() if response.text else None
    except ValueError:
        return None


def _versions(body: object) -> tuple[str, str]:
    match body:
        case {
            "versions": [{"min_version": str() as low, "max_version": str() as high}]
        }:
            return low, high
    raise PlacementUnavailable(
        "GET / of Placement returned no versions. Check that [placement] "
        "endpoint_override is Placement's own."
    )


def _as_tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _consumer(url: str, body: object) -> ConsumerAllocations:
    try:
        return _held(body)
    except (KeyError, TypeError, AttributeError) as e:
        raise PlacementUnavailable(
            f"The answer to GET {shortened(url)} is not Placement's: "
            f"{type(e).__name__}: {e}."
        ) from e


def _held(body: Any) -> ConsumerAllocations:  # noqa: ANN401 - decoded JSON
    resources = {uuid: part["resources"] for uuid, part in body["allocations"].items()}
    if not resources:
        return ConsumerAllocations({})
    return ConsumerAllocations(
        resources, body["consumer_generation"], body["project_id"], body["user_id"]
    )
