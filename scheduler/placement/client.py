# SPDX-License-Identifier: Apache-2.0
"""The client of Placement's API, which maps every failure to one typed error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .. import tracing
from ..candidates import MICROVERSION, AllocationCandidates, CandidatesQuery
from ..errors import (
    PlacementError,
    PlacementIncompatible,
    PlacementRejected,
)
from .adapter import AnswerLost, PlacementAdapter, Verb, call_failure
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

if TYPE_CHECKING:  # the extra "tracing" may not be installed
    from opentelemetry.trace import Span

_T = TypeVar("_T")

#: The adapter must not retry a write, whatever [placement] configures: the answer to
#: the second attempt would hide what the first one did.
_NO_RETRIES: Final = {"connect_retries": 0, "status_code_retries": 0}

#: OpenTelemetry's attribute of a span.
_STATUS: Final = "http.response.status_code"

#: A consumer that does not exist: a GET of its allocations costs next to nothing.
_NO_CONSUMER = "00000000-0000-0000-0000-000000000000"


class PlacementClient:
    """Call one Placement through an adapter.

    The client's only state is `health`. It is as thread-safe as its adapter;
    keystoneauth1's adapter is thread-safe. Every method raises PlacementUnavailable,
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
        """Raise the error that a claim would raise now; nothing is written.

        One cheap GET verifies that Placement supports the microversion, accepts the
        credentials and reaches its database. `check` verifies less.
        """
        self.allocations(_NO_CONSUMER)

    def is_empty(self) -> bool:
        """Return whether Placement is known to have no resource provider at all.

        Called after a query without candidates. It costs an occasional GET until there
        is a provider, and nothing afterwards. It raises nothing: it is a hint to
        operators.
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
        """Return a consumer's allocations; none if the consumer does not exist."""
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
        """Replace one consumer's allocations; see `write`."""
        url = f"/allocations/{consumer_uuid}"
        return self.write(Verb.PUT, url, body, global_request_id=global_request_id)

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
        microversion: str = MICROVERSION,
        global_request_id: str | None = None,
    ) -> WriteAnswer:
        """Send one write; a refusal by Placement itself (400, 404, 409) is returned.

        `ConductorClient` overrides this method to change the body.

        Raises
        ------
        AnswerLost
            The write was sent, and the response does not show whether it was done.
        """
        options: dict[str, Any] = {} if verb is Verb.DELETE else {"json": body}
        with self.health.guarding(_outcome):
            sending = _sending(verb, url, microversion, global_request_id)
            with sending as (headers, span):
                send = getattr(self._adapter, verb.lower())
                response = send(
                    url, headers=headers, raise_exc=False, **_NO_RETRIES, **options
                )
                if span is not None:
                    span.set_attribute(_STATUS, response.status_code)
            return read_write_answer(verb, url, response, microversion)

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
            sending = _sending(Verb.GET, url, microversion, global_request_id)
            with sending as (headers, span):
                response = self._adapter.get(url, headers=headers, raise_exc=False)
                if span is not None:
                    span.set_attribute(_STATUS, response.status_code)
            return parse(read_body(url, response, microversion))


@contextmanager
def _sending(
    verb: Verb, url: str, microversion: str, global_request_id: str | None
) -> Iterator[tuple[dict[str, str], Span | None]]:
    """Trace the sending of one request; raise one typed error if it fails.

    Yields the headers to send, and the span.

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
    try:
        with tracing.http_call(verb, url, headers) as span:
            yield headers, span
    except Exception as e:
        # A custom adapter may raise anything, and a write whose outcome is unknown must
        # be resolved whatever was raised.
        raise call_failure(verb, url, e) from e


def _outcome(e: PlacementError) -> CallOutcome:
    if isinstance(e, PlacementRejected):
        return CallOutcome.ANSWERED
    # Placement may be healthy: on PostgreSQL, for example, the first claims of a new
    # project race to create it, and all but one fail like this. The GET of the consumer
    # that follows shows whether Placement is healthy.
    if isinstance(e, AnswerLost) and not e.is_in_flight:
        return CallOutcome.UNCLEAR
    return CallOutcome.FAILED
