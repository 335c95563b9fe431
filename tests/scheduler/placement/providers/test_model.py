# SPDX-License-Identifier: Apache-2.0
"""Claims on the table are answered as the real Placement answers them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.placement.adapter import Verb
from moorage.scheduler.placement.answers import WriteAnswer
from moorage.scheduler.placement.providers import (
    ProviderColumns,
    ProviderRecord,
    ProviderTable,
)

from ....fixtures.placement_model import ProviderModel
from ....fixtures.property_tests import examples
from .random_clouds import CUSTOM_CLASS, random_cloud
from .real_placement import RealPlacement, embedded

#: Writes to each random cloud.
_N_WRITES = 12

_CONSUMERS = [f"{i:08x}-1111-4000-8000-000000000000" for i in range(3)]
_UNKNOWN = "0000ffff-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def placement() -> Iterator[RealPlacement]:
    with embedded() as placement:
        yield placement


def _body(rng: Random, cloud: list[ProviderRecord], generation: int | None) -> Any:
    allocations = {}
    for record in rng.sample(cloud, rng.choice((0, 1, 1, 1, 2))):
        classes = sorted(record.inventories) or ["VCPU"]
        if rng.random() < 0.05:
            classes = [rng.choice(("VCPU", "CUSTOM_UNKNOWN"))]
        names = rng.sample(classes, rng.randint(1, len(classes)))
        resources = {name: rng.choice((1, 1, 2, 4)) for name in names}
        allocations[record.uuid] = {"resources": resources}
    if rng.random() < 0.04:
        allocations = {_UNKNOWN: {"resources": {"VCPU": 1}}}
    if rng.random() < 0.1:
        generation = rng.choice((None, 0, 1, 7))
    return {
        "allocations": allocations,
        "project_id": rng.choice(("project", "other project")),
        "user_id": "user",
        "consumer_generation": generation,
    }


class _Both:
    """The real Placement and the model, with the same providers."""

    def __init__(self, placement: RealPlacement, cloud: list[ProviderRecord]) -> None:
        placement.fill(cloud)
        self._client = placement.client
        self._table = ProviderTable(ProviderColumns.of(cloud))
        self._table.add_names(resource_classes=[CUSTOM_CLASS])
        self._model = ProviderModel(self._table)
        self._cloud = cloud

    def write(self, rng: Random) -> None:
        """Do one random write to both, and compare the answers."""
        uuid = rng.choice(_CONSUMERS)
        match rng.choice(("put", "put", "put", "post", "delete")):
            case "put":
                body = self._body(rng, uuid)
                theirs = self._client.write(Verb.PUT, f"/allocations/{uuid}", body)
                ours = self._model.put(uuid, body)
            case "post":
                uuids = rng.sample(_CONSUMERS, 2)
                bodies = {each: self._body(rng, each) for each in uuids}
                theirs = self._client.write(Verb.POST, "/allocations", bodies)
                ours = self._model.post(bodies)
            case _:
                theirs = self._client.write(Verb.DELETE, f"/allocations/{uuid}", None)
                ours = self._model.delete(uuid)
        assert _comparable(ours) == _comparable(theirs)

    def _body(self, rng: Random, uuid: str) -> Any:
        generation = self._client.allocations(uuid).consumer_generation
        return _body(rng, self._cloud, generation)

    def compare(self) -> None:
        """Compare what consumers hold, and usages and generations of providers."""
        for uuid in _CONSUMERS:
            assert self._model.allocations(uuid) == self._client.allocations(uuid)
        state = self._table.view().state
        for record in self._cloud:
            row = state.trees.find(record.uuid)
            url = f"/resource_providers/{record.uuid}/usages"
            theirs: Any = self._client.read(url)
            summary = state.summaries(state.trees.members(state.trees.roots[[row]]))
            resources = summary[record.uuid]["resources"]
            assert {n: r["used"] for n, r in resources.items()} == theirs["usages"]
            assert state.generations[row] == theirs["resource_provider_generation"]


def _comparable(answer: WriteAnswer) -> tuple[int, str, str]:
    """Return an answer; of several classes or providers the order is arbitrary."""
    words = answer.detail.replace("'", " ").replace(",", " ").split()
    detail = " ".join(sorted(words)) if "invalid." in answer.detail else answer.detail
    return answer.status, answer.code, detail


@examples(0.3)
@given(seed=st.integers(0, 2**32 - 1))
def test_claims_are_answered_as_by_placement(
    placement: RealPlacement, seed: int
) -> None:
    rng = Random(seed)
    both = _Both(placement, random_cloud(rng))
    for _ in range(_N_WRITES):
        both.write(rng)
    both.compare()
