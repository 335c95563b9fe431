# SPDX-License-Identifier: Apache-2.0
"""Placement's answers, whose shape is checked, and the allocations of a consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..candidates import MICROVERSION, AllocationCandidates, AllocationRequest
from ..decoding import loads, loads_lazily
from ..errors import (
    PlacementIncompatible,
    PlacementRejected,
    PlacementUnauthorized,
    PlacementUnavailable,
    shortened,
)
from .adapter import AnswerLost, Response, Verb

#: Placement's error text for a provider that does not exist.
_NO_PROVIDER: Final = "No resource provider with uuid"
#: 4xx that concern Placement, the route to it or its load: credentials (401, 403), a
#: wrong endpoint (404), a microversion (406), and a timeout or a limit of a server.
_NOT_REFUSALS: Final = frozenset({401, 403, 404, 406, 408, 429})
#: Enough to distinguish a proxy's HTML page from Placement's answer.
_N_WORDS: Final = 12


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """Placement's answer to a write: done, or refused and why.

    Attributes
    ----------
    code, detail : str
        Code and detail of Placement's error; empty if the write was done.
    body : object
        The decoded body, if there is one.
    is_concurrent_update : bool
        Whether the write was refused because the generation of a provider or of a
        consumer has changed.
    is_consumer_conflict : bool
        Whether it was refused because the generation of a consumer has changed, which
        only the error text shows.
    """

    status: int
    code: str = ""
    detail: str = ""
    body: object = None
    is_done: bool = field(init=False)
    is_concurrent_update: bool = field(init=False)
    is_consumer_conflict: bool = field(init=False)

    def __post_init__(self) -> None:
        """Set what follows from status, code and detail."""
        is_conflict = self.code == "placement.concurrent_update"
        is_consumer_conflict = (
            is_conflict and "consumer generation conflict" in self.detail
        )
        object.__setattr__(self, "is_done", self.status < 300)
        object.__setattr__(self, "is_concurrent_update", is_conflict)
        object.__setattr__(self, "is_consumer_conflict", is_consumer_conflict)


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
        parts = {
            uuid: {"resources": dict(amounts)}
            for uuid, amounts in self.resources.items()
        }
        return {"allocations": parts}

    def matches(self, request: AllocationRequest) -> bool:
        """Return whether the allocations are exactly those of an allocation request."""
        allocations = request["allocations"]
        requested = {
            uuid: dict(part["resources"]) for uuid, part in allocations.items()
        }
        return requested == self.resources


@dataclass(frozen=True, slots=True)
class DesiredAllocations:
    """The allocations that one consumer should hold.

    Attributes
    ----------
    request : mapping
        An allocation request.
    owner : ConsumerAllocations
        The consumer gets its project and user.
    consumer_type : str, optional
        For clients that use microversion 1.38; None: the body does not name it.
    """

    request: AllocationRequest
    owner: ConsumerAllocations
    consumer_type: str | None = None

    @classmethod
    def unchanged(
        cls, held: ConsumerAllocations, consumer_type: str | None = None
    ) -> DesiredAllocations:
        """Return a consumer's allocations, for itself or for another consumer."""
        return cls(held.request, held, consumer_type)

    @classmethod
    def empty(
        cls, held: ConsumerAllocations, consumer_type: str | None = None
    ) -> DesiredAllocations:
        """Return no allocations, in place of what a consumer holds."""
        return cls({"allocations": {}}, held, consumer_type)

    def body(self, generation: int | None) -> dict[str, Any]:
        """Return the request body for one consumer."""
        body = {
            **self.request,
            "project_id": self.owner.project_id,
            "user_id": self.owner.user_id,
            "consumer_generation": generation,
        }
        consumer_type = self.consumer_type
        return (
            body if consumer_type is None else {**body, "consumer_type": consumer_type}
        )


def combine_allocations(
    before: ConsumerAllocations, wanted: AllocationRequest
) -> dict[str, Any]:
    """Return an allocation request for existing allocations and further wanted ones.

    nova's rule for an evacuation (``_move_operation_alloc_request``): the amounts of a
    provider in both, such as shared storage, are not summed; mappings are dropped.
    """
    held = before.request["allocations"]
    return {"allocations": {**wanted["allocations"], **held}}


# -- bodies ----------------------------------------------------------------------------


def read_candidates(body: object) -> AllocationCandidates:
    """Index the body of GET /allocation_candidates by host; nothing of it is copied.

    Raises
    ------
    PlacementUnavailable
        The body does not have the shape of Placement's answers.
    """
    match body:
        case {
            "allocation_requests": [*_] as requests,
            "provider_summaries": {} as summaries,
        }:
            pass
        case _:
            why = "it has no allocation_requests and provider_summaries"
            raise _malformed("/allocation_candidates", why)
    try:
        root_of = {
            uuid: summary["root_provider_uuid"] for uuid, summary in summaries.items()
        }
        by_host = _by_host(requests, root_of)
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        why = f"{type(e).__name__}: {e}"
        raise _malformed("/allocation_candidates", why) from e
    return AllocationCandidates(requests, summaries, by_host)


def _by_host(
    requests: Iterable[AllocationRequest], root_of: Mapping[str, str]
) -> dict[str, Sequence[int]]:
    """Return the indices of requests by the roots of the trees they allocate from."""
    by_host: dict[str, Sequence[int]] = {}
    for index, request in enumerate(requests):
        allocations: dict[str, Any] = request["allocations"]
        for part in allocations.values():
            part["resources"].keys()  # an AttributeError here means a malformed answer
        for root in dict.fromkeys([root_of[uuid] for uuid in allocations]):
            indices = by_host.get(root)
            if indices is None:
                # Nearly always it stays the only one. A list for each host would be
                # work for the garbage collector, which does not scan ranges.
                by_host[root] = range(index, index + 1)
            elif isinstance(indices, list):
                indices.append(index)
            else:
                by_host[root] = [*indices, index]
    return by_host


def read_consumer(url: str, body: Any) -> ConsumerAllocations:  # noqa: ANN401 - JSON
    """Read the body of GET /allocations/{consumer}; raise as `read_candidates` does."""
    try:
        parts = body["allocations"].items()
        resources = {uuid: part["resources"] for uuid, part in parts}
        if not resources:
            return ConsumerAllocations({})
        return ConsumerAllocations(
            resources, body["consumer_generation"], body["project_id"], body["user_id"]
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise _malformed(url, f"{type(e).__name__}: {e}") from e


def read_versions(body: object) -> tuple[str, str]:
    """Read the lowest and highest microversion from the body of GET /."""
    match body:
        case {
            "versions": [{"min_version": str() as low, "max_version": str() as high}]
        }:
            return low, high
    raise _malformed("/", "it has no versions")


def _malformed(url: str, why: str) -> PlacementUnavailable:
    return PlacementUnavailable(
        f"The answer to GET {shortened(url)} is not Placement's: {why}. Check that "
        "[placement] endpoint_override or the catalog's endpoint is Placement's own."
    )


# -- responses -------------------------------------------------------------------------


def read_body(url: str, response: Response, microversion: str) -> object:
    """Return the decoded body of the response to a GET.

    Raises
    ------
    PlacementRejected
        Placement, or a server before it, refuses this request.
    PlacementUnauthorized, PlacementIncompatible, PlacementUnavailable
        Placement cannot answer any request now.
    """
    if response.status_code == 200:
        return _decoded(url, response)
    is_newer = as_tuple(microversion) > as_tuple(MICROVERSION)
    if response.status_code == 406 and is_newer:
        # Only this query needs the newer microversion; all others still work.
        raise PlacementRejected(
            f"GET {shortened(url)} needs microversion {microversion}: "
            f"{_offered(response)}"
        )
    _raise_unaccepted(Verb.GET, url, response)
    if _is_refusal(response):
        raise rejected(Verb.GET, url, response.status_code, _refusal(response)[1])
    raise PlacementUnavailable(_unexpected(Verb.GET, url, response))


def read_write_answer(
    verb: Verb, url: str, response: Response, microversion: str
) -> WriteAnswer:
    """Return Placement's answer to a write, which may be a refusal.

    It is a refusal, too, if Placement does not support a `microversion` other than
    `MICROVERSION`.

    Raises
    ------
    AnswerLost
        The response does not show whether the write was done.
    """
    status = response.status_code
    if status in (200, 201, 204):
        body = _json(response)
        if body is not None or not response.text:  # an HTML page is not Placement's
            return WriteAnswer(status, body=body)
    if status == 406 and microversion != MICROVERSION:
        return WriteAnswer(status, *_refusal(response))
    _raise_unaccepted(verb, url, response)
    is_from_placement = _error(response) is not None
    if _is_refusal(response) or (status == 404 and is_from_placement):
        return WriteAnswer(status, *_refusal(response))
    raise AnswerLost(
        _unexpected(verb, url, response),
        is_in_flight=status in (502, 503, 504) or not is_from_placement,
    )


def rejected(verb: Verb, url: str, status: int, detail: str) -> PlacementRejected:
    """Return the error for a refused request."""
    return PlacementRejected(f"{verb} {shortened(url)}: {status} {detail}", detail)


def as_tuple(version: str) -> tuple[int, ...]:
    """Return a microversion that can be compared."""
    return tuple(int(part) for part in version.split("."))


def _is_refusal(response: Response) -> bool:
    """Return whether this request was refused, by Placement or a server before it.

    A web server refuses a URL or a header that is too long (400, 414, 431) and a body
    that is too large (413): nothing was done, and the next request may succeed.
    """
    status = response.status_code
    if status == 404:  # if only a provider is missing, it is a refusal
        return _NO_PROVIDER in _refusal(response)[1]
    return 400 <= status < 500 and status not in _NOT_REFUSALS


def _refusal(response: Response) -> tuple[str, str]:
    """Return the error's code and detail; of an HTML page, "" and its first words."""
    error = _error(response)
    if error is None:
        return "", _excerpt(response)
    return error["code"], error["detail"]


def _raise_unaccepted(verb: Verb, url: str, response: Response) -> None:
    """Raise if the credentials or the microversion were not accepted."""
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
    content = f'"{excerpt}"' if excerpt else "an empty body"
    request = f"{verb} {shortened(url)}"
    return f"{request} of Placement answered {response.status_code} with {content}."


def _excerpt(response: Response) -> str:
    return " ".join(response.text[:2000].split()[:_N_WORDS])[:200]


def _decoded(url: str, response: Response) -> object:
    # All other answers are small.
    decode = loads_lazily if url.startswith("/allocation_candidates?") else loads
    try:
        body: object = decode(response.content)
    except ValueError as e:
        raise PlacementUnavailable(
            f"{_unexpected(Verb.GET, url, response)} This is not JSON ({e}): check "
            "that [placement] endpoint_override is Placement's own, not a proxy's."
        ) from e
    return body


def _error(response: Response) -> dict[str, Any] | None:
    """Return Placement's own error, or None if another server answered."""
    match _json(response):
        case {"errors": [dict() as error, *_]}:
            # Placement breaks its lines; messages and logs are one line each.
            detail = " ".join(str(error.get("detail", "")).split())
            return {"code": "", **error, "detail": detail}
    return None


def _json(response: Response) -> object:
    """Return the decoded body; None if it is empty or not JSON."""
    try:
        return response.json() if response.text else None
    except ValueError:
        return None
