# SPDX-License-Identifier: Apache-2.0
"""Tell Placement of hosts that no compute service reports: demos, tests, benches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ..errors import PlacementError, PlacementRejected, PlacementUnavailable
from .client import PlacementClient, Verb, WriteAnswer

_CUSTOM = "CUSTOM_"
_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Provider:
    """One resource provider as it shall be.

    Attributes
    ----------
    inventories : mapping
        {resource class: {"total": …, "allocation_ratio": …, …}}, Placement's keys.
    aggregates : frozenset of str
        Aggregate UUIDs.
    parent_uuid : str, optional
        None: it is the root of its tree.
    """

    uuid: str
    name: str
    inventories: Mapping[str, Mapping[str, int | float]]
    traits: frozenset[str] = field(default_factory=frozenset)
    aggregates: frozenset[str] = field(default_factory=frozenset)
    parent_uuid: str | None = None


def seed(
    client: PlacementClient,
    providers: Iterable[Provider],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Make providers so, those that exist already too; others are left alone.

    It takes one call for a provider that is made and one each for its inventories,
    traits and aggregates where it has any.

    Parameters
    ----------
    progress : callable, optional
        Called with (providers done, providers in all) after each one.

    Returns
    -------
    int
        How many providers were written.

    Raises
    ------
    PlacementRejected
        Placement refused one; the message has its name and Placement's own words.
    """
    wanted = _parents_first(list(providers))
    _define(client, wanted)
    known = _known(client)
    for i, provider in enumerate(wanted):
        _write(client, provider, known.get(provider.uuid))
        if progress is not None:
            progress(i + 1, len(wanted))
    return len(wanted)


def _parents_first(providers: list[Provider]) -> list[Provider]:
    by_uuid = {p.uuid: p for p in providers}
    done: dict[str, Provider] = {}
    for provider in providers:
        line: list[Provider] = []
        p: Provider | None = provider
        while p is not None and p.uuid not in done and p not in line:
            line.append(p)
            p = by_uuid.get(p.parent_uuid or "")
        done.update((p.uuid, p) for p in reversed(line))
    return list(done.values())


def _define(client: PlacementClient, providers: list[Provider]) -> None:
    traits = {t for p in providers for t in p.traits if t.startswith(_CUSTOM)}
    classes = {c for p in providers for c in p.inventories if c.startswith(_CUSTOM)}
    for trait in sorted(traits):
        _put(client, f"/traits/{quote(trait)}", None, trait)
    for resource_class in sorted(classes):
        _put(client, f"/resource_classes/{quote(resource_class)}", None, resource_class)


def _known(client: PlacementClient) -> dict[str, dict[str, Any]]:
    body = client.read("/resource_providers")
    match body:
        case {"resource_providers": list() as providers}:
            return {p["uuid"]: p for p in providers}
    raise PlacementUnavailable(
        "The answer to GET /resource_providers is not Placement's. Check that "
        "[placement] endpoint_override is Placement's own."
    )


def _write(
    client: PlacementClient, provider: Provider, known: dict[str, Any] | None
) -> None:
    for attempt in range(_MAX_ATTEMPTS):
        answer = _write_once(client, provider, known)
        if answer.is_done:
            return
        if not answer.is_concurrent_update or attempt + 1 == _MAX_ATTEMPTS:
            raise _refused(provider.name, answer)
        body: Any = client.read(f"/resource_providers/{provider.uuid}")
        known = body


def _write_once(
    client: PlacementClient, provider: Provider, known: dict[str, Any] | None
) -> WriteAnswer:
    """Write every part in turn until one is refused; return the last answer."""
    answer, generation = _identify(client, provider, known)
    for part, body in _parts(provider, is_new=known is None):
        if not answer.is_done:
            break
        url = f"/resource_providers/{provider.uuid}/{part}"
        told = {**body, "resource_provider_generation": generation}
        answer = client.write(Verb.PUT, url, told)
        generation = _generation(answer, "resource_provider_generation")
    return answer


def _identify(
    client: PlacementClient, provider: Provider, known: dict[str, Any] | None
) -> tuple[WriteAnswer, int]:
    identity: dict[str, str | None] = {"name": provider.name}
    if provider.parent_uuid is not None:
        identity["parent_provider_uuid"] = provider.parent_uuid
    if known is None:
        body = {**identity, "uuid": provider.uuid}
        answer = client.write(Verb.POST, "/resource_providers", body)
        return answer, _generation(answer, "generation")
    if all(known.get(key) == value for key, value in identity.items()):
        return WriteAnswer(200), int(known["generation"])
    answer = client.write(Verb.PUT, f"/resource_providers/{provider.uuid}", identity)
    return answer, _generation(answer, "generation")


def _parts(provider: Provider, *, is_new: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return what there is to write; a new provider has nothing to clear."""
    inventories = {c: dict(i) for c, i in provider.inventories.items()}
    parts: list[tuple[str, dict[str, Any]]] = [
        ("inventories", {"inventories": inventories}),
        ("traits", {"traits": sorted(provider.traits)}),
        ("aggregates", {"aggregates": sorted(provider.aggregates)}),
    ]
    return [(name, body) for name, body in parts if not is_new or body[name]]


def _generation(answer: WriteAnswer, key: str) -> int:
    match answer.body:
        case dict() as body if key in body:
            return int(body[key])
    return 0  # only where it was refused; the caller looks at that first


def _put(client: PlacementClient, url: str, body: object, name: str) -> None:
    answer = client.write(Verb.PUT, url, body)
    if not answer.is_done:
        raise _refused(name, answer)


def _refused(name: str, answer: WriteAnswer) -> PlacementError:
    return PlacementRejected(
        f"Placement refused {name}: {answer.status} {answer.detail}"
    )
