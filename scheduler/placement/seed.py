# SPDX-License-Identifier: Apache-2.0
"""Create resource providers without compute services: agents, demos, tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ..errors import PlacementError, PlacementRejected, PlacementUnavailable
from .adapter import Verb
from .answers import WriteAnswer
from .client import PlacementClient

ProviderPart = list[str] | dict[str, dict[str, int | float]]

_CUSTOM = "CUSTOM_"
_GENERATION = "resource_provider_generation"
_MAX_ATTEMPTS = 3

# Placement's defaults for an inventory's fields (its INVENTORY_DEFAULTS).
_DEFAULTS = {
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 0x7FFFFFFF,
    "step_size": 1,
    "allocation_ratio": 1.0,
}


@dataclass(frozen=True, slots=True)
class Provider:
    """The desired state of one resource provider.

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
    """Create or update providers; other providers are not changed.

    A new provider takes one call, and one each for its inventories, traits and
    aggregates if it has any. An existing one is read in three calls, and only parts
    that differ are written, so that its generation is stable if nothing differs.

    Parameters
    ----------
    progress : callable, optional
        Called with (providers done, number of providers) after each one.

    Returns
    -------
    int
        How many providers were new or differed.

    Raises
    ------
    PlacementRejected
        Placement refused a provider; the message has its name and Placement's error.
    """
    wanted = _parents_first(list(providers))
    _create_custom_names(client, wanted)
    existing = _existing(client, wanted)
    n_written = 0
    for i, provider in enumerate(wanted):
        n_written += _reconcile(client, provider, existing.get(provider.uuid))
        if progress is not None:
            progress(i + 1, len(wanted))
    return n_written


def _parents_first(providers: list[Provider]) -> list[Provider]:
    by_uuid = {provider.uuid: provider for provider in providers}
    sorted_providers: dict[str, Provider] = {}
    for provider in providers:
        ancestors: list[Provider] = []
        ancestor: Provider | None = provider
        while (
            ancestor is not None
            and ancestor.uuid not in sorted_providers
            and ancestor not in ancestors
        ):
            ancestors.append(ancestor)
            ancestor = by_uuid.get(ancestor.parent_uuid or "")
        sorted_providers.update(
            (ancestor.uuid, ancestor) for ancestor in reversed(ancestors)
        )
    return list(sorted_providers.values())


def _create_custom_names(client: PlacementClient, providers: list[Provider]) -> None:
    traits = {
        trait
        for provider in providers
        for trait in provider.traits
        if trait.startswith(_CUSTOM)
    }
    classes = {
        resource_class
        for provider in providers
        for resource_class in provider.inventories
        if resource_class.startswith(_CUSTOM)
    }
    for trait in sorted(traits):
        _put(client, f"/traits/{quote(trait)}", None, trait)
    for resource_class in sorted(classes):
        _put(client, f"/resource_classes/{quote(resource_class)}", None, resource_class)


def _existing(
    client: PlacementClient, wanted: list[Provider]
) -> dict[str, dict[str, Any]]:
    """Return the existing providers by UUID: all, or the only wanted one."""
    url = "/resource_providers"
    if len(wanted) == 1:  # an agent's own; a large cloud has thousands of others
        url += f"?uuid={wanted[0].uuid}"
    providers = read_body(client, url, "resource_providers")
    return {provider["uuid"]: provider for provider in providers["resource_providers"]}


def read_body(client: PlacementClient, url: str, *keys: str) -> dict[str, Any]:
    """Return the body of a GET, which must have these keys."""
    match client.read(url):
        case dict() as body if all(key in body for key in keys):
            return body
    raise PlacementUnavailable(
        f"The answer to GET {url} is not Placement's. Check that "
        "[placement] endpoint_override is Placement's own."
    )


def _reconcile(
    client: PlacementClient, provider: Provider, existing: dict[str, Any] | None
) -> bool:
    """Create or update a provider; return whether anything was written."""
    if existing is None:
        _create(client, provider)
        return True
    is_written = _update_identity(client, provider, existing)
    for part, wanted in _parts(provider).items():
        generation = _put_part(client, provider, part, wanted, None)
        is_written = is_written or generation is not None
    return is_written


def _create(client: PlacementClient, provider: Provider) -> None:
    body = {**_identity(provider), "uuid": provider.uuid}
    answer = client.write(Verb.POST, "/resource_providers", body)
    generation: int | None = _generation(provider.name, answer, "generation")
    for part, wanted in _parts(provider).items():
        if wanted:  # a new provider has nothing to clear
            generation = _put_part(client, provider, part, wanted, generation)


def _identity(provider: Provider) -> dict[str, str]:
    identity = {"name": provider.name}
    if provider.parent_uuid is not None:
        identity["parent_provider_uuid"] = provider.parent_uuid
    return identity


def _update_identity(
    client: PlacementClient, provider: Provider, existing: Mapping[str, Any]
) -> bool:
    identity = _identity(provider)
    if all(existing.get(key) == value for key, value in identity.items()):
        return False
    _put(client, f"/resource_providers/{provider.uuid}", identity, provider.name)
    return True


def _parts(provider: Provider) -> dict[str, ProviderPart]:
    return {
        "inventories": {
            resource_class: dict(inventory)
            for resource_class, inventory in provider.inventories.items()
        },
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }


def _put_part(
    client: PlacementClient,
    provider: Provider,
    part: str,
    wanted: ProviderPart,
    generation: int | None,
) -> int | None:
    """Write one part if it differs; return the generation after a write, or None.

    If `generation` is None, or no longer the provider's, the part is read first.
    """
    url = f"/resource_providers/{provider.uuid}/{part}"
    for _ in range(_MAX_ATTEMPTS):
        if generation is None:
            current = read_body(client, url, part, _GENERATION)
            if _comparable(current[part]) == _comparable(wanted):
                return None
            generation = current[_GENERATION]
        body = {part: wanted, _GENERATION: generation}
        answer = client.write(Verb.PUT, url, body)
        if not answer.is_concurrent_update:
            break
        generation = None
    return _generation(provider.name, answer, _GENERATION)


def _comparable(part: ProviderPart) -> object:
    """Return a part with defaults filled in, and without an order of names."""
    if isinstance(part, dict):
        return {
            resource_class: {**_DEFAULTS, **inventory}
            for resource_class, inventory in part.items()
        }
    return sorted(part)


def _generation(name: str, answer: WriteAnswer, key: str) -> int:
    """Return the provider's generation after a write; raise if it was refused."""
    match answer.body:
        case dict() as body if answer.is_done and key in body:
            return int(body[key])
    raise refused(name, answer)


def _put(client: PlacementClient, url: str, body: object, name: str) -> None:
    answer = client.write(Verb.PUT, url, body)
    if not answer.is_done:
        raise refused(name, answer)


def refused(name: str, answer: WriteAnswer) -> PlacementError:
    """Return the error of a write to the provider of that name."""
    return PlacementRejected(
        f"Placement refused {name}: {answer.status} {answer.detail}"
    )
