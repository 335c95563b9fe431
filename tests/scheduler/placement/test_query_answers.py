# SPDX-License-Identifier: Apache-2.0
"""Answers of the real Placement to queries that nova cannot send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from keystoneauth1.adapter import Adapter

from moorage.objects import Flavor, RequestSpec
from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.errors import PlacementRejected
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.query import (
    Requirements,
    build_query,
)
from moorage.scheduler.request import Request

from ...fixtures.placement_servers import MisbehavingServer, Misbehaviour

WITH_TRAIT = "00000000-0000-4000-8000-000000000001"
WITHOUT = "00000000-0000-4000-8000-000000000002"
AGGREGATE = "00000000-0000-4000-8000-00000000000a"
HEADERS = {"OpenStack-API-Version": "placement 1.36"}

ALL_IN_GROUPS = {
    "resources_cpu:VCPU": "1",
    "resources_cpu:MEMORY_MB": "1",
    "resources_disk:DISK_GB": "1",
    "group_policy": "none",
}


@pytest.fixture
def placement() -> Iterator[Adapter]:
    """Return a Placement with two compute nodes, the first with trait and aggregate."""
    with EmbeddedPlacement() as embedded:
        adapter = embedded.adapter
        for trait in ("CUSTOM_A", "CUSTOM_B"):
            put(adapter, f"/traits/{trait}", None)
        for uuid in (WITH_TRAIT, WITHOUT):
            made = adapter.post(
                "/resource_providers",
                json={"name": uuid, "uuid": uuid},
                headers=HEADERS,
            )
            assert made.status_code == 200
            sizes = {"VCPU": 4, "MEMORY_MB": 1024, "DISK_GB": 100}
            body = {name: {"total": n} for name, n in sizes.items()}
            provider_put(adapter, uuid, "inventories", 0, inventories=body)
        provider_put(adapter, WITH_TRAIT, "traits", 1, traits=["CUSTOM_A"])
        provider_put(adapter, WITH_TRAIT, "aggregates", 2, aggregates=[AGGREGATE])
        yield adapter


def provider_put(
    adapter: Adapter, uuid: str, what: str, generation: int, **body: Any
) -> None:
    body["resource_provider_generation"] = generation
    put(adapter, f"/resource_providers/{uuid}/{what}", body)


def put(adapter: Adapter, path: str, body: Any) -> None:
    answer = adapter.put(path, json=body, headers=HEADERS)
    assert answer.status_code in (200, 201), answer.text


def candidates(
    adapter: Adapter, extra_specs: dict[str, str], requirements: Requirements
) -> set[str]:
    flavor = Flavor(
        vcpus=1,
        memory_mb=1,
        root_gb=1,
        ephemeral_gb=0,
        swap=0,
        extra_specs=extra_specs,
    )
    request = Request.validated(RequestSpec(flavor=flavor))
    query = build_query(request, requirements, limit=1000)
    answer = PlacementClient(adapter).allocation_candidates(query)
    return {
        uuid
        for request in answer.allocation_requests
        for uuid in request["allocations"]
    }


@pytest.mark.parametrize(
    ("extra_specs", "requirements", "found"),
    [
        pytest.param(
            {}, Requirements(), {WITH_TRAIT, WITHOUT}, id="both can serve the amounts"
        ),
        pytest.param(
            {"trait:CUSTOM_A": "required"},
            Requirements(),
            {WITH_TRAIT},
            id="trait of the unsuffixed group",
        ),
        pytest.param(
            {"trait:CUSTOM_A": "forbidden"},
            Requirements(),
            {WITHOUT},
            id="forbidden trait of the unsuffixed group",
        ),
        pytest.param(
            {},
            Requirements(member_of=[frozenset({AGGREGATE})]),
            {WITH_TRAIT},
            id="aggregate",
        ),
        pytest.param(
            {},
            Requirements(forbidden_aggregates={AGGREGATE}),
            {WITHOUT},
            id="forbidden aggregate",
        ),
        pytest.param({}, Requirements(in_tree=WITHOUT), {WITHOUT}, id="tree"),
        pytest.param(
            {"trait1:CUSTOM_A": "required"},
            Requirements(),
            {WITH_TRAIT},
            id="suffixed group of a trait alone",
        ),
        pytest.param(
            {"trait1:ANY": "in:CUSTOM_A,CUSTOM_B"},
            Requirements(),
            {WITH_TRAIT},
            id="suffixed group of any-of traits alone",
        ),
        pytest.param(
            {"trait:ANY": "in:CUSTOM_A,CUSTOM_B"},
            Requirements(),
            {WITH_TRAIT},
            id="any-of traits of the unsuffixed group",
        ),
        pytest.param(
            {"member_of1": AGGREGATE},
            Requirements(),
            {WITH_TRAIT},
            id="suffixed group of an aggregate alone",
        ),
    ],
)
def test_groups_without_resources_are_answered(
    placement: Adapter,
    extra_specs: dict[str, str],
    requirements: Requirements,
    found: set[str],
) -> None:
    assert candidates(placement, ALL_IN_GROUPS | extra_specs, requirements) == found


def test_trait_group_beside_plain_amounts_is_answered(placement: Adapter) -> None:
    extra_specs = {"trait1:CUSTOM_A": "required"}

    assert candidates(placement, extra_specs, Requirements()) == {WITH_TRAIT}


@pytest.mark.parametrize(
    ("extra_specs", "found"),
    [
        ({"trait:ANY": "in:CUSTOM_A,CUSTOM_B"}, {WITH_TRAIT}),
        ({"trait:ANY": "in:CUSTOM_A,CUSTOM_B", "trait:CUSTOM_A": "forbidden"}, set()),
        ({"member_of": f"in:{AGGREGATE},{WITHOUT}"}, {WITH_TRAIT}),
        ({"member_of": f"!{AGGREGATE}"}, {WITHOUT}),
        ({"in_tree": WITHOUT}, {WITHOUT}),
        ({"in_tree": WITHOUT, "trait:CUSTOM_A": "required"}, set()),
        (
            {"resources1:VCPU": "1", "trait1:ANY": "in:CUSTOM_A,CUSTOM_B"},
            {WITH_TRAIT},
        ),
        ({"resources1:VCPU": "1", "member_of1": AGGREGATE}, {WITH_TRAIT}),
        ({"resources1:VCPU": "1", "in_tree1": WITHOUT}, {WITHOUT}),
    ],
    ids=str,
)
def test_extra_specs_beyond_nova_narrow_the_answer(
    placement: Adapter, extra_specs: dict[str, str], found: set[str]
) -> None:
    assert candidates(placement, extra_specs, Requirements()) == found


def test_placement_too_old_for_any_of_traits_is_reported_and_stays_in_use() -> None:
    with MisbehavingServer() as server:
        client = server.client()
        query = CandidatesQuery((("required", "in:A,B"), ("resources", "VCPU:1")))

        for _ in range(20):
            server.misbehave(Misbehaviour.NOT_ACCEPTABLE)
            with pytest.raises(PlacementRejected, match=r"1\.39.* 1\.0 to 1\.30"):
                client.allocation_candidates(query)

        assert not client.health.is_down
