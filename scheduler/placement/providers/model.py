# SPDX-License-Identifier: Apache-2.0
"""Claims on the table of resource providers, for tests and simulations.

A claim is answered with the status, code and text of Placement 16 at microversion 1.36,
and has the same effect on usages, consumers and generations.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from ..answers import ConsumerAllocations, WriteAnswer
from .state import ProviderState
from .table import ProviderTable

_UNDEFINED: Final = "placement.undefined_code"
_CONCURRENT: Final = "placement.concurrent_update"
_TITLES: Final = {
    400: "The server could not comply with the request since it is either malformed or "
    "otherwise incorrect.",
    404: "The resource could not be found.",
    409: "There was a conflict when trying to complete your request.",
}
_DONE: Final = WriteAnswer(204)

#: A provider's UUID and a resource class.
_Key = tuple[str, str]


class _Refused(Exception):
    """Raised inside a write that Placement would refuse."""

    def __init__(self, status: int, detail: str, code: str = _UNDEFINED) -> None:
        super().__init__(detail)
        self.answer = WriteAnswer(status, code, f"{_TITLES[status]} {detail}")


class _Allocation(NamedTuple):
    """One amount of a body; 0 for one that a consumer is to lose."""

    consumer: str
    provider: str
    resource_class: str
    amount: int

    @property
    def key(self) -> _Key:
        return self.provider, self.resource_class


@dataclass(slots=True)
class _Consumer:
    project_id: str
    user_id: str
    generation: int = 0
    amounts: dict[_Key, int] = field(default_factory=dict)


class ProviderModel:
    """Placement's allocations, on a table that nothing else writes usages to.

    Bodies are those of microversion 1.36, and valid by Placement's schema. Thread-safe.
    """

    def __init__(self, table: ProviderTable) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._consumers: dict[str, _Consumer] = {}

    def put(self, consumer_uuid: str, body: Mapping[str, Any]) -> WriteAnswer:
        """Answer PUT /allocations/{consumer_uuid}."""
        return self._answered({consumer_uuid: body}, f" for consumer {consumer_uuid}:")

    def post(self, bodies: Mapping[str, Mapping[str, Any]]) -> WriteAnswer:
        """Answer POST /allocations: all bodies by consumer, or none of them."""
        return self._answered(bodies, "")

    def delete(self, consumer_uuid: str) -> WriteAnswer:
        """Answer DELETE /allocations/{consumer_uuid}; generations do not change."""
        with self._lock:
            consumer = self._consumers.get(consumer_uuid)
            if consumer is None or not consumer.amounts:
                detail = f"No allocations for consumer '{consumer_uuid}'"
                return _Refused(404, detail).answer
            del self._consumers[consumer_uuid]
            self._write([], Counter(consumer.amounts))
            return _DONE

    def allocations(self, consumer_uuid: str) -> ConsumerAllocations:
        """Answer GET /allocations/{consumer_uuid}."""
        with self._lock:
            consumer = self._consumers.get(consumer_uuid)
            if consumer is None or not consumer.amounts:
                return ConsumerAllocations({})
            resources: dict[str, dict[str, int]] = {}
            for (provider, name), amount in consumer.amounts.items():
                resources.setdefault(provider, {})[name] = amount
            return ConsumerAllocations(
                resources, consumer.generation, consumer.project_id, consumer.user_id
            )

    def _answered(
        self, bodies: Mapping[str, Mapping[str, Any]], whose: str
    ) -> WriteAnswer:
        with self._lock:
            try:
                self._check_generations(bodies)
                new = self._create_consumers(bodies)
                # As in Placement, they remain if a provider is unknown.
                allocations = list(self._allocations(bodies))
                try:
                    self._replace(allocations, whose)
                except _Refused:
                    for uuid in new:
                        del self._consumers[uuid]
                    raise
            except _Refused as e:
                return e.answer
            for uuid in bodies.keys() & self._consumers.keys():
                self._consumers[uuid].project_id = bodies[uuid]["project_id"]
                self._consumers[uuid].user_id = bodies[uuid]["user_id"]
            return _DONE

    def _check_generations(self, bodies: Mapping[str, Mapping[str, Any]]) -> None:
        for uuid, body in bodies.items():
            known = self._consumers.get(uuid)
            expected = None if known is None else known.generation
            given = body["consumer_generation"]
            if given != expected:
                wanted = "null" if expected is None else expected
                raise _Refused(
                    409,
                    f"consumer generation conflict - expected {wanted} but got {given}",
                    _CONCURRENT,
                )

    def _create_consumers(self, bodies: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """Create the consumers that are new; return them."""
        new = bodies.keys() - self._consumers.keys()
        for uuid in new:
            body = bodies[uuid]
            self._consumers[uuid] = _Consumer(body["project_id"], body["user_id"])
        return new

    def _allocations(
        self, bodies: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[_Allocation]:
        trees = self._table.view().state.trees
        for consumer, body in bodies.items():
            for provider in body["allocations"]:
                if trees.find(provider) < 0:
                    detail = f"Allocation for resource provider '{provider}'"
                    raise _Refused(400, f"{detail} that does not exist.")
            for provider, part in body["allocations"].items():
                for name, amount in part["resources"].items():
                    yield _Allocation(consumer, provider, name, amount)
            if not body["allocations"]:
                for provider, name in self._consumers[consumer].amounts:
                    yield _Allocation(consumer, provider, name, 0)

    def _replace(self, allocations: list[_Allocation], whose: str) -> None:
        view = self._table.view()
        for each in allocations:
            if each.resource_class not in view.known_classes:
                unknown = f"No such resource class {each.resource_class}."
                raise _Refused(400, f"Unable to allocate inventory{whose} {unknown}")
        consumers = {each.consumer for each in allocations}
        freed: Counter[_Key] = Counter()
        for uuid in consumers:
            freed.update(self._consumers[uuid].amounts)
        _check_capacity(view.state, allocations, freed)
        self._write(allocations, freed)
        self._set_amounts(allocations)

    def _write(self, allocations: list[_Allocation], freed: Counter[_Key]) -> None:
        """Write usages, and the generations of providers that allocations name."""
        state = self._table.view().state
        change = Counter({key: -amount for key, amount in freed.items()})
        for each in allocations:
            change[each.key] += each.amount
        used: dict[str, dict[str, int]] = {}
        for (provider, name), amount in change.items():
            inventory = _inventory(state, (provider, name))
            if inventory is not None:
                used.setdefault(name, {})[provider] = inventory.used + amount
        rows = {each.provider: state.trees.find(each.provider) for each in allocations}
        generations = {u: int(state.generations[row]) + 1 for u, row in rows.items()}
        self._table.update(used=used, generations=generations)

    def _set_amounts(self, allocations: list[_Allocation]) -> None:
        for uuid in {each.consumer for each in allocations}:
            self._consumers[uuid].amounts = {
                each.key: each.amount
                for each in allocations
                if each.consumer == uuid and each.amount
            }
            self._consumers[uuid].generation += 1
            if not self._consumers[uuid].amounts:
                del self._consumers[uuid]


@dataclass(frozen=True, slots=True)
class _ProviderInventory:
    """One inventory of one provider, and its usage."""

    values: np.void
    used: int


def _inventory(state: ProviderState, key: _Key) -> _ProviderInventory | None:
    provider, name = key
    column = state.column(name)
    row = np.array([state.trees.find(provider)], np.int32)
    at, _ = column.positions(row)
    if not len(at):
        return None
    return _ProviderInventory(
        column.distinct.values[column.kinds[at[0]]], int(column.used[at[0]])
    )


def _check_capacity(
    state: ProviderState, allocations: list[_Allocation], freed: Counter[_Key]
) -> None:
    """Raise _Refused unless all allocations fit once `freed` is free."""
    _check_providers(state, allocations)
    total: Counter[_Key] = Counter()
    for each in allocations:
        if not each.amount:
            continue
        inventory = _inventory(state, each.key)
        if inventory is None:
            raise _invalid(each.resource_class, each.provider)
        values = inventory.values
        if (
            not values["min_unit"] <= each.amount <= values["max_unit"]
            or each.amount % values["step_size"]
        ):
            raise _unable(each, "violate inventory constraints")
        total[each.key] += each.amount
        used = inventory.used - freed[each.key] + total[each.key]
        capacity = values["total"] - values["reserved"]
        # More than the capacity is allowed if it is not more than before.
        if used > capacity * values["allocation_ratio"] and used > inventory.used:
            raise _unable(each, "exceed the capacity")


def _check_providers(state: ProviderState, allocations: list[_Allocation]) -> None:
    classes = list(dict.fromkeys(each.resource_class for each in allocations))
    providers = list(dict.fromkeys(each.provider for each in allocations))
    missing = [
        provider
        for provider in providers
        if all(_inventory(state, (provider, name)) is None for name in classes)
    ]
    if missing:
        raise _invalid(", ".join(classes), ", ".join(missing))


def _invalid(resource_class: str, provider: str) -> _Refused:
    return _Refused(
        409,
        f"Unable to allocate inventory: Inventory for '{resource_class}' on resource "
        f"provider '{provider}' invalid.",
    )


def _unable(allocation: _Allocation, why: str) -> _Refused:
    return _Refused(
        409,
        "Unable to allocate inventory: Unable to create allocation for "
        f"'{allocation.resource_class}' on resource provider '{allocation.provider}'. "
        f"The requested amount would {why}.",
    )
