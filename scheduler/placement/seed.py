# SPDX-License-Identifier: Apache-2.0
"""Tell Placement of hosts that no compute service reports: demos, tests, benches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ..errors import PlacementError, PlacementRejected, PlacementUnavailable
from .client import PlacementClient, Verb, WriteAnswer

ProviderPart = list[str] | dict[str, dict[str, int | float]]

_CUSTOM = "CUSTOM_"
_GENERATION = "resource_provider_generation"
_MAX_ATTEMPTS = 3

# What Placement stores where an inventory does not say (its INVENTORY_DEFAULTS).
_DEFAULTS = {
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 0x7FFFFFFF,
    "step_size": 1,
    "allocation_ratio": 1.0,
}


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
    traits and aggregates where it has any. One that exists is read, three calls, and
    what differs is written, so that its generation stays where nothing does.

    Parameters
    ----------
    progress : callable, optional
        Called with (providers done, providers in all) after each one.

    Returns
    -------
    int
        How many providers were new or differed.

    Raises
    ------
    PlacementRejected
        Placement refused one; the message has its name and Placement's own words.
    """
    wanted = _parents_first(list(providers))
    _define(client, wanted)
    known = _known(client, wanted)
    n_written = 0
    for i, provider in enumerate(wanted):
        n_written += _make_so(client, provider, known.get(provider.uuid))
        if progress is not None:
            progress(i + 1, len(wanted))
    return n_written


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


def _known(
    client: PlacementClient, wanted: list[Provider]
) -> dict[str, dict[str, Any]]:
    """Return the providers that exist, by UUID: all, or this one."""
    url = "/resource_providers"
    if len(wanted) == 1:  # an agent's own; a large cloud has thousands of others
        url += f"?uuid={wanted[0].uuid}"
    providers = _read(client, url, "resource_providers")
    return {p["uuid"]: p for p in providers["resource_providers"]}


def _read(client: PlacementClient, url: str, *keys: str) -> dict[str, Any]:
    match client.read(url):
        case dict() as body if all(key in body for key in keys):
            return body
    raise PlacementUnavailable(
        f"The answer to GET {url} is not Placement's. Check that "
        "[placement] endpoint_override is Placement's own."
    )


def _make_so(
    client: PlacementClient, provider: Provider, known: dict[str, Any] | None
) -> bool:
    """Return whether anything had to be written."""
    if known is None:
        _make(client, provider)
        return True
    is_written = _identify(client, provider, known)
    for part, wanted in _parts(provider).items():
        after = _tell(client, provider, part, wanted, None)
        is_written = is_written or after is not None
    return is_written


def _make(client: PlacementClient, provider: Provider) -> None:
    body = {**_identity(provider), "uuid": provider.uuid}
    answer = client.write(Verb.POST, "/resource_providers", body)
    generation: int | None = _generation(provider.name, answer, "generation")
    for part, wanted in _parts(provider).items():
        if wanted:  # a new provider has nothing to clear
            generation = _tell(client, provider, part, wanted, generation)


def _identity(provider: Provider) -> dict[str, str]:
    identity = {"name": provider.name}
    if provider.parent_uuid is not None:
        identity["parent_provider_uuid"] = provider.parent_uuid
    return identity


def _identify(
    client: PlacementClient, provider: Provider, known: Mapping[str, Any]
) -> bool:
    identity = _identity(provider)
    if all(known.get(key) == value for key, value in identity.items()):
        return False
    _put(client, f"/resource_providers/{provider.uuid}", identity, provider.name)
    return True


def _parts(provider: Provider) -> dict[str, ProviderPart]:
    return {
        "inventories": {c: dict(i) for c, i in provider.inventories.items()},
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }


def _tell(
    client: PlacementClient,
    provider: Provider,
    part: str,
    wanted: ProviderPart,
    generation: int | None,
) -> int | None:
    """Write one part, unless it is so; return the generation after a write, or None.

    Where `generation` is None, or no longer the provider's, the part is read first.
    """
    url = f"/resource_providers/{provider.uuid}/{part}"
    for _ in range(_MAX_ATTEMPTS):
        if generation is None:
            told = _read(client, url, part, _GENERATION)
            if _comparable(told[part]) == _comparable(wanted):
                return None
            generation = told[_GENERATION]
        body = {part: wanted, _GENERATION: generation}
        answer = client.write(Verb.PUT, url, body)
        if not answer.is_concurrent_update:
            break
        generation = None
    return _generation(provider.name, answer, _GENERATION)


def _comparable(part: ProviderPart) -> object:
    if isinstance(part, dict):
        return {c: {**_DEFAULTS, **inventory} for c, inventory in part.items()}
    return sorted(part)


def _generation(name: str, answer: WriteAnswer, key: str) -> int:
    match answer.body:
        case dict() as body if answer.is_done and key in body:
            return int(body[key])
    raise _refused(name, answer)


def _put(client: PlacementClient, url: str, body: object, name: str) -> None:
    answer = client.write(Verb.PUT, url, body)
    if not answer.is_done:
        raise _refused(name, answer)


def _refused(name: str, answer: WriteAnswer) -> PlacementError:
    return PlacementRejected(
        f"Placement refused {name}: {answer.status} {answer.detail}"
    )
