# SPDX-License-Identifier: Apache-2.0
"""Ask Placement, and turn every way that can fail into one typed error."""

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
from .candidates import AllocationCandidates, AllocationRequest
from .circuit import CallOutcome, Circuit
from .registration import RegistrationCheck

_T = TypeVar("_T")

#: What nova 34 speaks. From 1.38 on a claim would have to name a consumer type.
MICROVERSION = "1.36"

#: A consumer that nobody has: a question about it costs next to nothing.
_NOBODY = "00000000-0000-0000-0000-000000000000"

_GROUP = "placement"
#: Connections that are kept open, one for each thread that serves requests by default,
#: and pools of them: one for Placement, one for Keystone.
_CONNECTIONS = 64
_SERVERS = 2
_N_WORDS = 12  # enough to tell an HTML page of a proxy from an answer of Placement
_NOT_ACCEPTED = (
    ksa_errors.AuthorizationFailure,
    ksa_errors.AuthPluginException,
    ksa_errors.EndpointNotFound,
    ksa_errors.Forbidden,
    ksa_errors.MissingAuthMethods,
    ksa_errors.MissingAuthPlugin,
    ksa_errors.Unauthorized,
)


class AnswerLost(PlacementUnavailable):
    """Say that a write was sent and that nobody knows whether it was done.

    `is_in_flight` is false where Placement itself said that it failed, so that it
    cannot be done later.
    """

    def __init__(self, message: str, *, is_in_flight: bool) -> None:
        """Tell what was sent, what came, and whether it may be done yet."""
        super().__init__(message)
        self.is_in_flight = is_in_flight


class Response(Protocol):
    """What is read of a ``requests.Response``."""

    @property
    def status_code(self) -> int:
        """HTTP status."""

    @property
    def text(self) -> str:
        """Body."""

    @property
    def content(self) -> bytes:
        """Body, as it came."""

    def json(self) -> Any:  # noqa: ANN401 - JSON's own types
        """Body, decoded."""


class PlacementAdapter(Protocol):
    """The call shape of keystoneauth1's Adapter, as far as it is used.

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


class Query(Protocol):
    """A question for allocation candidates."""

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        """Query parameters; "limit" is read of them."""

    @property
    def path(self) -> str:
        """The whole relative URL."""

    @property
    def microversion(self) -> str:
        """What it has to be asked in; claims go in MICROVERSION all the same."""


class Verb(enum.StrEnum):
    """Methods of HTTP that Placement knows."""

    GET = "GET"
    PUT = "PUT"
    POST = "POST"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """What Placement said to a write: done, or refused and why.

    `code` and `detail` are those of Placement's error, empty where it was done;
    `body` is the decoded answer of a write that has one.
    """

    status: int
    code: str = ""
    detail: str = ""
    body: object = None

    @property
    def is_done(self) -> bool:
        """Tell whether it was done."""
        return self.status < 300

    @property
    def is_concurrent_update(self) -> bool:
        """Tell whether a generation was not the expected one."""
        return self.code == "placement.concurrent_update"

    @property
    def is_consumer_conflict(self) -> bool:
        """Tell whether it was a consumer's generation; only the text tells."""
        conflict = "consumer generation conflict" in self.detail
        return self.is_concurrent_update and conflict


@dataclass(frozen=True, slots=True)
class ConsumerAllocations:
    """What one consumer holds.

    Attributes
    ----------
    resources : mapping
        {provider UUID: {resource class: amount}}; empty where it holds nothing.
    consumer_generation : int or None
        None where it holds nothing: Placement does not tell then.
    project_id, user_id : str or None
        Owner; None where it holds nothing.
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
        """Tell whether it holds just what an allocation request asks for."""
        allocations = request["allocations"]
        wanted = {u: dict(part["resources"]) for u, part in allocations.items()}
        return wanted == self.resources


def make_adapter(conf: cfg.ConfigOpts) -> Adapter:
    """Return an adapter as ``[placement]`` describes it.

    Nothing is sent yet. Without auth_type, requests carry no token.

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
    except _NOT_ACCEPTED as e:
        failure = Failure.of("[placement] auth_type", conf.placement.auth_type, e)
        raise PlacementUnauthorized(f"{failure}") from e
    for each in set(session.session.adapters.values()):
        each.init_poolmanager(_SERVERS, _CONNECTIONS)  # type: ignore[attr-defined]
    return ks_loading.load_adapter_from_conf_options(
        conf, _GROUP, session=session, auth=auth, raise_exc=False
    )


class PlacementClient:
    """Talk to one Placement through an adapter that is handed in.

    It keeps no state but the version range, whether Placement is away and whether it
    is empty, and is as safe for threads as its adapter (keystoneauth1's is). Every
    method raises PlacementUnavailable, PlacementUnauthorized or PlacementIncompatible;
    a question that is malformed, PlacementRejected; a request that HTTP cannot carry,
    InvalidRequest; a write whose answer did not come, AnswerLost. While Placement is
    away, all but a call now and then end at once in PlacementUnavailable, and nothing
    is sent.
    `global_request_id` travels as X-Openstack-Request-Id.

    Attributes
    ----------
    circuit : Circuit
        Whether Placement is away, since when, why, and when it is tried again.
    """

    def __init__(
        self, adapter: PlacementAdapter, *, circuit: Circuit | None = None
    ) -> None:
        """Take keystoneauth1's Adapter, or anything with its call shape.

        Parameters
        ----------
        circuit : Circuit, optional
            None: one of its own.
        """
        self._adapter = adapter
        self.circuit = circuit or Circuit()
        self._range: tuple[str, str] | None = None
        self._registered = RegistrationCheck(self.read)

    def version_range(self) -> tuple[str, str]:
        """Return the lowest and highest microversion; asked once, then remembered."""
        if self._range is None:
            # In 1.0 every Placement answers, whatever else it lacks.
            self._range = self._read("/", _versions, microversion="1.0")
        return self._range

    def check(self) -> None:
        """Raise PlacementIncompatible unless Placement speaks what is needed."""
        low, high = self.version_range()
        if not _as_tuple(low) <= _as_tuple(MICROVERSION) <= _as_tuple(high):
            self._range = None  # it may be upgraded while this process lives
            raise PlacementIncompatible(
                f"Placement speaks microversions {low} to {high}; {MICROVERSION} to "
                f"{MICROVERSION} is needed. Upgrade Placement to Ussuri or later."
            )

    def probe(self) -> None:
        """Raise the error that a claim would end in now; nothing is written.

        It takes one GET, of those that cost least: of a Placement that speaks what is
        needed, accepts the credentials and reaches its database. `check` says less.
        """
        self.allocations(_NOBODY)

    def is_empty(self) -> bool:
        """Tell whether Placement is known to have no resource provider at all.

        Ask where it had no candidates. It costs a GET at times until there is one, and
        then nothing any more. It raises nothing: it is a hint to an operator.
        """
        return self._registered.is_empty()

    @property
    def was_empty(self) -> bool:
        """Tell whether it was when `is_empty` was asked last; costs nothing."""
        return self._registered.was_empty

    def allocation_candidates(
        self, query: Query, *, global_request_id: str | None = None
    ) -> AllocationCandidates:
        """Ask where something fits; PlacementRejected if the question is malformed."""
        given = dict(query.params).get("limit")
        limit = int(given) if given else None

        def parsed(body: object) -> AllocationCandidates:
            return AllocationCandidates.parse(body, limit=limit, version=MICROVERSION)

        answer = self._read(
            query.path,
            parsed,
            microversion=query.microversion,
            global_request_id=global_request_id,
        )
        if answer.n_requests:
            self._registered.see()
        return answer

    def allocations(
        self, consumer_uuid: str, *, global_request_id: str | None = None
    ) -> ConsumerAllocations:
        """Return what a consumer holds; an unknown one holds nothing."""
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
        """Replace what one consumer holds. A refusal (400, 404, 409) is an answer."""
        url = f"/allocations/{consumer_uuid}"
        return self.write(Verb.PUT, url, body, global_request_id=global_request_id)

    def post_allocations(
        self,
        bodies: Mapping[str, Mapping[str, object]],
        *,
        global_request_id: str | None = None,
    ) -> WriteAnswer:
        """Replace what several consumers hold, all or none; else as put_allocations."""
        return self.write(
            Verb.POST, "/allocations", bodies, global_request_id=global_request_id
        )

    def delete_allocations(
        self, consumer_uuid: str, *, global_request_id: str | None = None
    ) -> bool:
        """Release what a consumer holds; return whether it held anything."""
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
        """GET any URL of Placement, decoded."""
        return self._read(
            url,
            _as_it_is,
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
        """Send one write; a refusal in Placement's own words is an answer.

        Raises
        ------
        AnswerLost
            It was sent, and what came back does not tell whether it was done.
        """
        with self.circuit.guarding(_verdict):
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
        # Inside the guard: a page of a proxy may well be JSON.
        with self.circuit.guarding(_verdict):
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
        except _NOT_ACCEPTED as e:
            raise PlacementUnauthorized(
                f"{verb} {shortened(url)} of Placement could not be asked: "
                f"{one_line(e)}. Check "
                "auth_type, its options and endpoint_override in [placement]."
            ) from e
        except Exception as e:
            if any(isinstance(cause, _NOT_BUILT) for cause in _causes(e)):
                raise InvalidRequest(
                    f"{verb} {shortened(url)} of Placement cannot be sent: "
                    f"{shortened(str(e))}"
                ) from e
            # An adapter that is handed in may raise anything, and a write whose
            # outcome is unknown has to be settled whatever it was.
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
                url, headers=headers, raise_exc=False, **_SENT_ONCE
            )
        tell = self._adapter.put if verb is Verb.PUT else self._adapter.post
        return tell(url, json=body, headers=headers, raise_exc=False, **_SENT_ONCE)


def combine_allocations(
    before: ConsumerAllocations, wanted: AllocationRequest
) -> dict[str, Any]:
    """Return an allocation request for what is held and what is wanted besides.

    nova's rule for an evacuation (``_move_operation_alloc_request``): a provider that
    is held already, such as shared storage, is not summed; mappings are dropped.
    """
    held = before.request["allocations"]
    return {"allocations": {**wanted["allocations"], **held}}


def _verdict(e: PlacementError) -> CallOutcome:
    if isinstance(e, PlacementRejected):
        return CallOutcome.ANSWERED
    # Placement may be well: on PostgreSQL, for one, the first claims of a new project
    # race to create it, and all but one end so. Looking at what became of them tells.
    if isinstance(e, AnswerLost) and not e.is_in_flight:
        return CallOutcome.UNCLEAR
    return CallOutcome.FAILED


#: Placement's words for a provider that is not there.
_NO_PROVIDER: Final = "No resource provider with uuid"


def _as_it_is(body: object) -> object:
    return body


def _read_answer(url: str, response: Response, microversion: str) -> object:
    if response.status_code == 200:
        return _decoded(url, response)
    is_newer = _as_tuple(microversion) > _as_tuple(MICROVERSION)
    if response.status_code == 406 and is_newer:
        # All others can be asked: it is this question that cannot.
        raise PlacementRejected(
            f"GET {shortened(url)} needs microversion {microversion}: "
            f"{_offered(response)}"
        )
    _raise_unaccepted(Verb.GET, url, response)
    if _is_refusal(response):
        raise _rejected(Verb.GET, url, response.status_code, _refusal(response)[1])
    raise PlacementUnavailable(_strange(Verb.GET, url, response))


def _write_answer(verb: Verb, url: str, response: Response) -> WriteAnswer:
    status = response.status_code
    if status in (200, 201, 204) and _is_plausible(response):
        return WriteAnswer(status, body=_body(response))
    _raise_unaccepted(verb, url, response)
    is_placements = _error(response) is not None
    if _is_refusal(response) or (status == 404 and is_placements):
        return WriteAnswer(status, *_refusal(response))
    raise AnswerLost(
        _strange(verb, url, response),
        is_in_flight=status in (502, 503, 504) or not is_placements,
    )


#: 4xx that tell of Placement, the way to it or its load: credentials (401, 403), a
#: wrong endpoint (404), a microversion (406), and a time-out or a limit of a server.
_NO_REFUSAL: Final = frozenset({401, 403, 404, 406, 408, 429})


def _is_refusal(response: Response) -> bool:
    """Return whether this request was refused, by Placement or a server before it.

    A web server refuses a URL or a header that is too long (400, 414, 431) and a body
    that is too large (413): nothing was done, and the next request may well succeed.
    """
    status = response.status_code
    if status == 404:  # of a provider that is gone, the endpoint is right
        return _NO_PROVIDER in _refusal(response)[1]
    return 400 <= status < 500 and status not in _NO_REFUSAL


def _refusal(response: Response) -> tuple[str, str]:
    """Return the error's code and what it says; of a page, its first words."""
    error = _error(response)
    if error is None:
        return "", _words(response)
    return error["code"], error["detail"]


def _rejected(verb: Verb, url: str, status: int, detail: str) -> PlacementRejected:
    return PlacementRejected(f"{verb} {shortened(url)}: {status} {detail}", detail)


#: A write is never repeated below us, whatever [placement] says of retries: what the
#: first one did would be hidden by the answer to the second.
_SENT_ONCE: Final[dict[str, Any]] = {"connect_retries": 0, "status_code_retries": 0}

#: What an HTTP library raises of a header or a body that cannot be sent.
_NOT_BUILT = (
    UnicodeError,
    requests.exceptions.InvalidHeader,
    requests.exceptions.InvalidJSONError,
)
_NEVER_CONNECTED = (NewConnectionError, requests.ConnectTimeout)
#: What begins urllib3's words in an error of requests.
_POOL = re.compile(r": HTTPS?ConnectionPool\(")
_MAYBE_SENT = (ProtocolError, ReadTimeoutError, requests.ReadTimeout)


def _unreachable(verb: Verb, url: str, e: Exception) -> PlacementError:
    message = (
        f"{verb} {shortened(url)} of Placement got no answer: {_cause(e)}. Check that "
        "it runs, and in [placement] endpoint_override, auth_url, timeout and the TLS "
        "options."
    )
    if verb is Verb.GET or _was_never_sent(e):
        return PlacementUnavailable(message)
    return AnswerLost(message, is_in_flight=True)


def _cause(e: Exception) -> str:
    """Return what an error says, with its root cause instead of urllib3's wrapping."""
    said = one_line(_POOL.split(str(e), maxsplit=1)[0])
    root = cause_of(list(_causes(e))[-1])
    return said if root in said else f"{said}: {root}"


def _was_never_sent(e: BaseException) -> bool:
    # keystoneauth1's retries chain their errors: if one of them had a connection, the
    # request may have arrived.
    causes = list(_causes(e))
    return any(isinstance(cause, _NEVER_CONNECTED) for cause in causes) and not any(
        isinstance(cause, _MAYBE_SENT) for cause in causes
    )


def _causes(e: BaseException | None) -> Iterator[BaseException]:
    """Walk down to what broke; urllib3 hides it in `reason`, requests in `args`."""
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
            f"{_strange(verb, url, response)} Check the credentials in [placement]."
        )
    if response.status_code == 406:
        raise PlacementIncompatible(
            f"{_strange(verb, url, response)} Microversion {MICROVERSION} is needed: "
            f"{_offered(response)}."
        )


def _offered(response: Response) -> str:
    error = _error(response) or {}
    if "min_version" in error:
        low, high = error["min_version"], error["max_version"]
        return f"this Placement speaks {low} to {high}"
    return "this Placement did not say what it speaks"


def _strange(verb: Verb, url: str, response: Response) -> str:
    words = _words(response)
    came = f'"{words}"' if words else "an empty body"
    asked = f"{verb} {shortened(url)}"
    return f"{asked} of Placement answered {response.status_code} with {came}."


def _words(response: Response) -> str:
    return " ".join(response.text[:2000].split()[:_N_WORDS])[:200]


def _decoded(url: str, response: Response) -> object:
    try:
        body: object = loads(response.content)
    except ValueError as e:
        raise PlacementUnavailable(
            f"{_strange(Verb.GET, url, response)} This is no JSON ({e}): check that "
            "[placement] endpoint_override is Placement's own and no proxy's."
        ) from e
    return body


def _error(response: Response) -> dict[str, Any] | None:
    """Return Placement's own error, or None where something else answered."""
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
    """Tell whether this can be Placement's: no body or JSON, never a page."""
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
        "GET / of Placement told no versions. Check that [placement] "
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
