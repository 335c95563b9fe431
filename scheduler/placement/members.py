# SPDX-License-Identifier: Apache-2.0
"""Which root providers are in which aggregates, through Placement's API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from ..errors import PlacementUnavailable
from .adapter import Verb
from .answers import rejected
from .client import PlacementClient

#: Attempts to change the aggregates of a provider that others change, too.
_MAX_ATTEMPTS: Final = 5
_T = TypeVar("_T")


def root_providers(
    client: PlacementClient, aggregate: str | None = None
) -> Mapping[str, str]:
    """Return the names of all root providers, or of an aggregate's, by UUID.

    Raises
    ------
    PlacementError
        Placement could not be queried.
    """
    query = "" if aggregate is None else f"?member_of={aggregate}"
    return read_as(
        client,
        f"/resource_providers{query}",
        lambda body: {
            provider["uuid"]: provider["name"]
            for provider in body["resource_providers"]
            if provider["parent_provider_uuid"] is None
        },
    )


def change_aggregates(
    client: PlacementClient,
    provider: str,
    *,
    leave: Collection[str],
    enter: Collection[str],
) -> None:
    """Remove a provider from aggregates and add it to others; all others stay.

    If the provider changes concurrently, it is read again, and the change is repeated.

    Raises
    ------
    PlacementError
        Placement refused the change, or could not be queried.
    """
    url = f"/resource_providers/{provider}/aggregates"
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        present, generation = read_as(
            client,
            url,
            lambda body: (
                frozenset(body["aggregates"]),
                body["resource_provider_generation"],
            ),
        )
        wanted = (present - frozenset(leave)) | frozenset(enter)
        if wanted == present:
            return
        body = {
            "aggregates": sorted(wanted),
            "resource_provider_generation": generation,
        }
        answer = client.write(Verb.PUT, url, body)
        if answer.is_done:
            return
        if not answer.is_concurrent_update or attempt == _MAX_ATTEMPTS:
            raise rejected(Verb.PUT, url, answer.status, answer.detail)


def read_as(
    client: PlacementClient,
    url: str,
    read: Callable[[Any], _T],
    global_request_id: str | None = None,
) -> _T:
    """GET a URL, and return what `read` finds in the body.

    Raises
    ------
    PlacementError
        Placement could not be queried, or the body has another shape.
    """
    body: Any = client.read(url, global_request_id=global_request_id)
    try:
        return read(body)
    except (AttributeError, KeyError, TypeError) as e:
        raise PlacementUnavailable(
            f"GET {url} returned something unexpected: {type(e).__name__}: {e}"
        ) from e
