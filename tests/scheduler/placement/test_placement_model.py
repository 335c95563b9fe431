# SPDX-License-Identifier: Apache-2.0
"""The model of Placement answers random histories as the real Placement does.

A history has writes of schedulers, conductors, agents and operators, among them some
sent twice, some late, and some that conflict, and the questions that are asked between
them. `MOORAGE_MODEL_STEPS=300000` runs a longer one; a step that differs is printed
with its seed.
"""

from __future__ import annotations

import copy
import itertools
import os
import time
import uuid
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from ...fixtures.placement_model import PlacementModel
from ...fixtures.placement_servers import EmbeddedPlacementFixture

_STEPS: Final = int(os.environ.get("MOORAGE_MODEL_STEPS", "3000"))
#: Steps of one history: then providers and consumers are new.
_HISTORY: Final = 500

_CLASSES: Final = ("VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_THING")
_TRAITS: Final = ("CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX", "COMPUTE_NODE")
_SHARES: Final = "MISC_SHARES_VIA_AGGREGATE"
_UNKNOWN: Final = "0000ffff-0000-4000-8000-000000000000"

#: A request: verb, URL, body, microversion.
_Request = tuple[str, str, Any, str]


class _History:
    """Requests as all who write to Placement may send them, drawn by a generator."""

    def __init__(self, rng: Random, ask: Callable[[str], Any]) -> None:
        self._rng = rng
        self._ask = ask
        self._uuids = [self._uuid() for _ in range(8)]
        self._parents: dict[str, str] = {}
        self._is_flat = rng.random() < 0.6
        self._consumers = [self._uuid() for _ in range(8)]
        self._aggregates = [self._uuid() for _ in range(3)]
        self._sent: list[_Request] = []
        self._n_names = 0

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def beginning(self) -> list[_Request]:
        """Return what creates names and providers."""
        names = [
            "/traits/CUSTOM_A",
            "/traits/CUSTOM_B",
            "/resource_classes/CUSTOM_THING",
        ]
        requests: list[_Request] = [("PUT", name, None, "1.36") for name in names]
        for each in self._uuids:
            body: dict[str, Any] = {"uuid": each, "name": f"first {each}"}
            requests.append(("POST", "/resource_providers", body, "1.36"))
            inventories = {name: self._inventory() for name in _CLASSES}
            body = {"inventories": inventories, "resource_provider_generation": 0}
            url = f"/resource_providers/{each}/inventories"
            requests.append(("PUT", url, body, "1.36"))
        return requests

    def next(self) -> _Request:
        """Return the next request: a new one, or one that was sent before."""
        if self._sent and self._rng.random() < 0.12:  # doubled, or late
            recent = self._sent[-self._rng.choice((1, 1, 5, 60)) :]
            return self._rng.choice(recent)
        kinds: list[tuple[int, Callable[[], _Request]]] = [
            (8, self._put_allocations),
            (4, self._post_allocations),
            (2, self._delete_allocations),
            (2, self._put_inventories),
            (1, self._put_traits),
            (1, self._put_aggregates),
            (1, self._create),
            (1, self._delete_provider),
            (1, self._rename),
            (5, self._read),
        ]
        weights = [weight for weight, _ in kinds]
        request = self._rng.choices([make for _, make in kinds], weights)[0]()
        self._sent.append(request)
        return copy.deepcopy(request)

    # -- writes ------------------------------------------------------------------------

    def _provider(self) -> str:
        return _UNKNOWN if self._rng.random() < 0.02 else self._rng.choice(self._uuids)

    def _create(self) -> _Request:
        body: dict[str, Any] = {"uuid": self._provider(), "name": self._name()}
        if not self._is_flat and self._rng.random() < 0.5:
            body["parent_provider_uuid"] = self._provider()
            if body["parent_provider_uuid"] == body["uuid"]:
                del body["parent_provider_uuid"]
        return "POST", "/resource_providers", body, "1.36"

    def _name(self) -> str:
        if self._rng.random() < 0.8:
            self._n_names += 1
        return f"provider{self._n_names}"

    def _rename(self) -> _Request:
        url = f"/resource_providers/{self._provider()}"
        known = self._ask(url)
        body = {"name": self._name()}
        if known.get("parent_provider_uuid"):
            body["parent_provider_uuid"] = known["parent_provider_uuid"]
        return "PUT", url, body, "1.36"

    def _delete_provider(self) -> _Request:
        return "DELETE", f"/resource_providers/{self._provider()}", None, "1.36"

    def _generation(self, known: int | None) -> int | None:
        if self._rng.random() < 0.1:
            return self._rng.choice((None, 0, 1, 2, 7))
        return known

    def _part(self, part: str, contents: Any) -> _Request:
        url = f"/resource_providers/{self._provider()}"
        generation = self._generation(self._ask(url).get("generation", 0)) or 0
        body = {part: contents, "resource_provider_generation": generation}
        return "PUT", f"{url}/{part}", body, "1.36"

    def _put_inventories(self) -> _Request:
        rng = self._rng
        names = rng.sample(_CLASSES, rng.choice((0, 1, 2, 3, 4, 4, 4)))
        if rng.random() < 0.03:
            names.append("CUSTOM_UNKNOWN")
        return self._part("inventories", {name: self._inventory() for name in names})

    def _inventory(self) -> dict[str, int | float]:
        rng = self._rng
        inventory: dict[str, int | float] = {"total": rng.choice((1, 4, 8, 9, 16))}
        if rng.random() < 0.3:
            inventory["reserved"] = rng.choice((0, 1, 2, 5))
        if rng.random() < 0.3:
            inventory["allocation_ratio"] = rng.choice((0.5, 1.0, 1.5, 4.0))
        if rng.random() < 0.15:
            inventory["min_unit"] = rng.choice((1, 2))
            inventory["max_unit"] = rng.choice((2, 4, 16))
            inventory["step_size"] = rng.choice((1, 2))
        return inventory

    def _put_traits(self) -> _Request:
        rng = self._rng
        names = rng.sample(_TRAITS, rng.randint(0, len(_TRAITS)))
        if rng.random() < 0.05:
            names.append("CUSTOM_UNKNOWN")
        if not self._is_flat and rng.random() < 0.2:
            names.append(_SHARES)
        return self._part("traits", names)

    def _put_aggregates(self) -> _Request:
        names = self._rng.sample(self._aggregates, self._rng.randint(0, 3))
        return self._part("aggregates", names)

    def _body(self, consumer: str, microversion: str) -> dict[str, Any]:
        rng = self._rng
        allocations = {}
        n_providers = rng.choice((0, 1, 1, 1, 1, 1, 2))
        for provider in [self._provider() for _ in range(n_providers)]:
            names: Any = list(
                self._ask(f"/resource_providers/{provider}/usages").get("usages", ())
            )
            if not names or rng.random() < 0.05:
                names = [rng.choice((*_CLASSES, "CUSTOM_UNKNOWN"))]
            names = rng.sample(sorted(names), rng.randint(1, len(names)))
            amounts = {name: rng.choice((1, 1, 2, 3, 4)) for name in names}
            allocations[provider] = {"resources": amounts}
        known = self._ask(f"/allocations/{consumer}").get("consumer_generation")
        if known is None:  # a refused write may have left it, with no allocation
            known = rng.choice((None, 0))
        body = {
            "allocations": allocations,
            "project_id": rng.choice(("project", "other project")),
            "user_id": rng.choice(("user", "other user")),
            "consumer_generation": self._generation(known),
        }
        if microversion == "1.38":
            body["consumer_type"] = rng.choice(("INSTANCE", "MIGRATION"))
        return body

    def _put_allocations(self) -> _Request:
        uuid = self._rng.choice(self._consumers)
        microversion = self._rng.choice(("1.36", "1.36", "1.38"))
        body = self._body(uuid, microversion)
        return "PUT", f"/allocations/{uuid}", body, microversion

    def _post_allocations(self) -> _Request:
        uuids = self._rng.sample(self._consumers, self._rng.choice((1, 2, 2, 4)))
        microversion = self._rng.choice(("1.36", "1.36", "1.38"))
        bodies = {uuid: self._body(uuid, microversion) for uuid in uuids}
        if self._rng.random() < 0.3:  # a move: one consumer gets what another one has
            held = self._ask(f"/allocations/{uuids[-1]}")["allocations"]
            parts = {u: {"resources": p["resources"]} for u, p in held.items()}
            bodies[uuids[0]]["allocations"] = parts
            if len(uuids) > 1:
                bodies[uuids[-1]]["allocations"] = {}
        return "POST", "/allocations", bodies, microversion

    def _delete_allocations(self) -> _Request:
        uuid = self._rng.choice(self._consumers)
        return "DELETE", f"/allocations/{uuid}", None, "1.36"

    # -- questions ---------------------------------------------------------------------

    def _read(self) -> _Request:
        rng = self._rng
        provider, consumer = self._provider(), rng.choice(self._consumers)
        part = rng.choice(
            ("", "/inventories", "/usages", "/traits", "/aggregates", "/allocations")
        )
        trait = rng.choice((*_TRAITS, "CUSTOM_UNKNOWN"))
        aggregate = rng.choice(self._aggregates)
        urls = [
            f"/resource_providers/{provider}{part}",
            f"/resource_providers/{provider}{part}",
            f"/allocations/{consumer}",
            "/resource_providers",
            f"/resource_providers?uuid={provider}",
            f"/resource_providers?in_tree={provider}",
            f"/resource_providers?required={trait}",
            f"/resource_providers?member_of=in:{aggregate},{self._aggregates[0]}",
        ]
        if self._is_flat:
            urls += [self._candidates_query() for _ in range(8)]
        microversion = rng.choice(("1.36", "1.38"))
        return "GET", rng.choice(urls), None, microversion

    def _candidates_query(self) -> str:
        rng = self._rng
        names = rng.sample(_CLASSES, rng.randint(1, 3))
        if rng.random() < 0.03:
            names.append("CUSTOM_UNKNOWN")
        resources = ",".join(f"{name}:{rng.choice((1, 2, 4))}" for name in names)
        url = f"/allocation_candidates?resources={resources}&limit=1000"
        if rng.random() < 0.4:
            known = rng.sample(_TRAITS, rng.randint(1, 2))
            traits = known if rng.random() < 0.9 else ["CUSTOM_UNKNOWN"]
            signs = [rng.choice(("", "", "!")) for _ in traits]
            where = rng.choice(("required", "root_required"))
            conditions = map("".join, zip(signs, traits, strict=True))
            url += f"&{where}={','.join(conditions)}"
        if rng.random() < 0.2:
            sign = rng.choice(("", "in:", "!"))
            url += f"&member_of={sign}{rng.choice(self._aggregates)}"
        if rng.random() < 0.2:
            url += f"&in_tree={rng.choice(self._uuids)}"
        return url

    def questions(self) -> list[_Request]:
        """Return what asks for all that the history may have changed."""
        urls = ["/resource_providers"]
        parts = ("inventories", "usages", "traits", "aggregates", "allocations")
        for each, part in itertools.product(self._uuids, parts):
            urls += [f"/resource_providers/{each}/{part}"]
        urls += [f"/allocations/{each}" for each in self._consumers]
        return [("GET", url, None, "1.38") for url in urls]


def _sent(adapter: Any, request: _Request) -> tuple[int, Any]:
    """Send a request; return the status and the body in a form that can be compared."""
    verb, url, body, microversion = request
    options: dict[str, Any] = {} if body is None else {"json": body}
    headers = {
        "Accept": "application/json",
        "OpenStack-API-Version": f"placement {microversion}",
    }
    response = getattr(adapter, verb.lower())(
        url, headers=headers, raise_exc=False, **options
    )
    answer = response.json() if response.text else None
    return response.status_code, _comparable(answer)


def _comparable(body: Any) -> Any:
    """Return a body without what is arbitrary in Placement's answers."""
    if not isinstance(body, dict):
        return body
    if "errors" in body:
        error = {**body["errors"][0], "request_id": ""}
        # Of several classes or providers the order is that of a set.
        if "invalid." in error["detail"] or "in use." in error["detail"]:
            words = error["detail"].replace("'", " ").replace(",", " ").split()
            error["detail"] = sorted(words)
        return error
    for key in ("resource_providers", "allocation_requests"):
        if key in body:
            body = {**body, key: sorted(body[key], key=repr)}
    for key in ("traits", "aggregates"):
        if key in body:
            body = {**body, key: sorted(body[key])}
    if "provider_summaries" in body:
        summaries = {u: _comparable(s) for u, s in body["provider_summaries"].items()}
        body = {**body, "provider_summaries": summaries}
    return body


def _compare(seed: int, n_steps: int) -> None:
    """Send a history to both; fail at the first answer that differs."""
    model = PlacementModel()
    with EmbeddedPlacementFixture() as placement:

        def ask(url: str) -> Any:
            return model.answer("GET", url)[1]

        history = _History(Random(seed), ask)
        beginning, done = history.beginning(), []
        for step in range(len(beginning) + n_steps):
            request = beginning[step] if step < len(beginning) else history.next()
            done.append(request)
            theirs = _sent(placement.adapter, request)
            ours = _sent(model.adapter, request)
            assert ours == theirs, f"seed {seed}, step {step}: {done[-5:]}"
        for request in history.questions():
            theirs = _sent(placement.adapter, request)
            ours = _sent(model.adapter, request)
            assert ours == theirs, f"seed {seed}, after all: {request}"


@pytest.mark.parametrize("seed", range(2))
def test_short_history_is_answered_as_by_placement(seed: int) -> None:
    _compare(seed, 60)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(-(-_STEPS // _HISTORY)))
def test_history_is_answered_as_by_placement(seed: int) -> None:
    _compare(1000 + seed, _HISTORY)


@pytest.mark.deep
def test_model_takes_20000_writes_a_second() -> None:
    """In CPU time, which other processes do not change."""
    model = PlacementModel()
    provider = str(uuid.UUID(int=1, version=4))
    url = f"/resource_providers/{provider}"
    model.answer("POST", "/resource_providers", {"uuid": provider, "name": "h1"})
    body = {"inventories": {"VCPU": {"total": 9}}, "resource_provider_generation": 0}
    model.answer("PUT", f"{url}/inventories", body)
    n_rounds = 5000
    began = time.process_time()
    for _ in range(n_rounds):
        write = {
            "allocations": {provider: {"resources": {"VCPU": 1}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
        }
        assert model.answer("PUT", "/allocations/1", write)[0] == 204
        assert model.answer("DELETE", "/allocations/1")[0] == 204
    assert 2 * n_rounds / (time.process_time() - began) > 20_000
