# SPDX-License-Identifier: Apache-2.0
"""Random requests to Placement's API, of all kinds that change what is followed."""

from __future__ import annotations

import uuid
from random import Random

from .followed import FollowedPlacement

_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_A", "CUSTOM_B")
_TRAITS = ("HW_CPU_X86_AVX", "COMPUTE_NODE", "CUSTOM_T1", "CUSTOM_T2", "CUSTOM_T3")


def _uuid(rng: Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


class RandomWriter:
    """Write at random; a request that Placement refuses is part of it.

    Attributes
    ----------
    done : dict
        {kind of write: how often it succeeded}.
    """

    def __init__(self, placement: FollowedPlacement, rng: Random) -> None:
        self._placement = placement
        self._rng = rng
        self._providers: list[str] = []
        self._deleted: list[str] = []
        self._consumers: list[str] = []
        self._classes: dict[str, list[str]] = {}
        self._aggregates = [_uuid(rng) for _ in range(4)]
        self._kinds = {
            "create": (self._create, 5),
            "delete": (self._delete, 5),
            "recreate": (self._recreate, 1),
            "reparent": (self._reparent, 2),
            "inventories": (self._inventories, 4),
            "inventory": (self._delete_inventory, 1),
            "traits": (self._traits, 3),
            "aggregates": (self._set_aggregates, 2),
            "old aggregates": (self._set_old_aggregates, 2),
            "claim": (self._claim, 8),
            "replace": (self._replace, 3),
            "several": (self._several, 2),
            "free": (self._free, 4),
            "name": (self._name, 1),
        }
        self.done = dict.fromkeys(self._kinds, 0)

    def write(self) -> None:
        kinds = list(self._kinds)
        weights = [weight for _, weight in self._kinds.values()]
        (kind,) = self._rng.choices(kinds, weights)
        status = self._kinds[kind][0]()
        self.done[kind] += status is not None and status < 300

    # -- providers ---------------------------------------------------------------------

    def _any(self) -> str | None:
        return self._rng.choice(self._providers) if self._providers else None

    def _create(self) -> int:
        return self._made(_uuid(self._rng))

    def _recreate(self) -> int | None:
        return self._made(self._deleted.pop()) if self._deleted else None

    def _made(self, provider: str) -> int:
        parent = self._any() if self._rng.random() < 0.5 else None
        body = {"uuid": provider, "name": _uuid(self._rng)}
        if parent:
            body["parent_provider_uuid"] = parent
        status = self._placement.request("POST", "/resource_providers", body)
        if status < 300:
            self._providers.append(provider)
            self._set_inventories(provider)
        return status

    def _delete(self) -> int | None:
        if (provider := self._any()) is None:
            return None
        status = self._placement.request("DELETE", f"/resource_providers/{provider}")
        if status < 300:
            self._providers.remove(provider)
            self._deleted.append(provider)
            self._classes.pop(provider, None)
        return status

    def _reparent(self) -> int | None:
        if (provider := self._any()) is None:
            return None
        parent = self._any() if self._rng.random() < 0.7 else None
        body = {"name": _uuid(self._rng), "parent_provider_uuid": parent}
        return self._placement.request("PUT", f"/resource_providers/{provider}", body)

    def _changed(self, provider: str, what: str, body: dict[str, object]) -> int:
        body["resource_provider_generation"] = self._placement.generation(provider)
        path = f"/resource_providers/{provider}/{what}"
        return self._placement.request("PUT", path, body)

    def _inventories(self) -> int | None:
        provider = self._any()
        return None if provider is None else self._set_inventories(provider)

    def _set_inventories(self, provider: str) -> int:
        some = self._rng.sample(_CLASSES[: self._rng.choice((3, 5))], 3)
        inventories = {
            name: {
                "total": self._rng.randint(4, 64),
                "reserved": self._rng.randint(0, 3),
                "allocation_ratio": self._rng.choice((0.9, 1.0, 1.1, 4.0, 16.0)),
                "step_size": self._rng.choice((1, 1, 2)),
            }
            for name in some
        }
        status = self._changed(provider, "inventories", {"inventories": inventories})
        if status < 300:
            self._classes[provider] = some
        return status

    def _delete_inventory(self) -> int | None:
        if (provider := self._any()) is None:
            return None
        name = self._rng.choice(_CLASSES)
        path = f"/resource_providers/{provider}/inventories/{name}"
        return self._placement.request("DELETE", path)

    def _traits(self) -> int | None:
        if (provider := self._any()) is None:
            return None
        some = self._rng.sample(_TRAITS, self._rng.randint(0, 4))
        return self._changed(provider, "traits", {"traits": some})

    def _set_aggregates(self) -> int | None:
        if (provider := self._any()) is None:
            return None
        return self._changed(provider, "aggregates", {"aggregates": self._some()})

    def _set_old_aggregates(self) -> int | None:
        if (provider := self._any()) is None:
            return None
        path = f"/resource_providers/{provider}/aggregates"
        return self._placement.request("PUT", path, self._some(), "1.18")

    def _some(self) -> list[str]:
        return self._rng.sample(self._aggregates, self._rng.randint(0, 3))

    def _name(self) -> int:
        kind, names = self._rng.choice(
            (("resource_classes", _CLASSES[3:]), ("traits", _TRAITS[2:]))
        )
        verb = self._rng.choice(("PUT", "PUT", "DELETE"))
        return self._placement.request(verb, f"/{kind}/{self._rng.choice(names)}")

    # -- allocations -------------------------------------------------------------------

    def _amounts(self) -> dict[str, dict[str, dict[str, int]]]:
        having = [each for each in self._providers if self._classes.get(each)]
        some = self._rng.sample(having, min(len(having), self._rng.choice((1, 1, 2))))
        return {
            provider: {
                "resources": {
                    name: self._rng.choice((1, 2, 4))
                    for name in self._classes[provider][: self._rng.randint(1, 2)]
                }
            }
            for provider in some
        }

    def _body(self, consumer: str | None) -> dict[str, object]:
        generation = None
        if consumer is not None:
            held = self._placement.get(f"/allocations/{consumer}")
            generation = held.get("consumer_generation")
        return {
            "allocations": self._amounts(),
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": generation,
            "consumer_type": "INSTANCE",
        }

    def _claim(self) -> int | None:
        if not any(self._classes.values()):
            return None
        consumer = _uuid(self._rng)
        path = f"/allocations/{consumer}"
        status = self._placement.request("PUT", path, self._body(None))
        if status < 300:
            self._consumers.append(consumer)
        return status

    def _replace(self) -> int | None:
        if not self._consumers:
            return None
        consumer = self._rng.choice(self._consumers)
        path = f"/allocations/{consumer}"
        return self._placement.request("PUT", path, self._body(consumer))

    def _several(self) -> int:
        consumers = [_uuid(self._rng) for _ in range(2)]
        body = {consumer: self._body(None) for consumer in consumers}
        status = self._placement.request("POST", "/allocations", body)
        if status < 300:
            self._consumers += consumers
        return status

    def _free(self) -> int | None:
        if not self._consumers:
            return None
        consumer = self._consumers.pop(self._rng.randrange(len(self._consumers)))
        return self._placement.request("DELETE", f"/allocations/{consumer}")
