# SPDX-License-Identifier: Apache-2.0
"""Seeding makes providers so, again and again, with few calls."""

from dataclasses import replace

import pytest

from moorage.scheduler.errors import PlacementRejected
from moorage.scheduler.placement.seed import Provider, seed

from ...placement_servers import EmbeddedPlacementFixture, MisbehavingServer

AGGREGATE = "00000000-0000-0000-0000-00000000a990"
HOST = Provider(
    uuid="00000000-0000-0000-0000-000000000001",
    name="host1",
    inventories={"VCPU": {"total": 8, "allocation_ratio": 4.0}},
    traits=frozenset({"CUSTOM_FAST", "HW_CPU_X86_AVX2"}),
    aggregates=frozenset({AGGREGATE}),
)
CELL = Provider(
    uuid="00000000-0000-0000-0000-000000000002",
    name="host1_numa0",
    inventories={"CUSTOM_SLOT": {"total": 2}},
    parent_uuid=HOST.uuid,
)


@pytest.fixture
def client():
    with EmbeddedPlacementFixture() as embedded:
        yield embedded.client


def _part(client, provider, part):
    return client.read(f"/resource_providers/{provider.uuid}/{part}")


def test_provider_is_as_it_was_told(client):
    assert seed(client, [HOST]) == 1
    inventories = _part(client, HOST, "inventories")["inventories"]
    assert inventories["VCPU"]["allocation_ratio"] == 4.0
    assert set(_part(client, HOST, "traits")["traits"]) == HOST.traits
    assert _part(client, HOST, "aggregates")["aggregates"] == [AGGREGATE]


def test_parents_are_made_before_their_children(client):
    seed(client, [CELL, HOST])
    told = client.read(f"/resource_providers/{CELL.uuid}")
    assert told["root_provider_uuid"] == HOST.uuid


def test_again_changes_what_changed(client):
    seed(client, [HOST, CELL])
    changed = replace(HOST, name="renamed", traits=frozenset(), aggregates=frozenset())
    assert seed(client, [changed, CELL]) == 2
    assert _part(client, HOST, "traits")["traits"] == []
    assert _part(client, HOST, "aggregates")["aggregates"] == []
    assert client.read(f"/resource_providers/{HOST.uuid}")["name"] == "renamed"


def test_progress_is_told_after_each(client):
    told = []
    seed(client, [HOST, CELL], progress=lambda *counts: told.append(counts))
    assert told == [(1, 2), (2, 2)]


def test_refusal_names_the_provider(client):
    wrong = replace(HOST, inventories={"NO_SUCH_CLASS": {"total": 1}})
    with pytest.raises(PlacementRejected, match=r"host1.*NO_SUCH_CLASS"):
        seed(client, [wrong])


def test_new_provider_takes_no_more_calls_than_it_has_parts():
    plain = replace(HOST, traits=frozenset(), aggregates=frozenset())
    with (
        EmbeddedPlacementFixture() as embedded,
        MisbehavingServer(embedded.placement.wsgi_app) as server,
    ):
        seed(server.client(), [plain])
        assert [verb for verb, _, _ in server.seen] == ["GET", "POST", "PUT"]
