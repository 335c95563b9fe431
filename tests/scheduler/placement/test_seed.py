# SPDX-License-Identifier: Apache-2.0
"""Seeding makes providers so, again and again, with few calls."""

from dataclasses import replace

import pytest

from moorage.scheduler.errors import PlacementRejected, PlacementUnavailable
from moorage.scheduler.placement.seed import Provider, seed

from ...fixtures.placement_servers import (
    Misbehaviour,
)

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
def client(embedded):
    return embedded.client


def _written(server):
    return [path for verb, path, _ in server.seen if verb != "GET"]


def _part(client, provider, part):
    return client.read(f"/resource_providers/{provider.uuid}/{part}")


def test_provider_is_as_seeded(client):
    assert seed(client, [HOST]) == 1
    inventories = _part(client, HOST, "inventories")["inventories"]
    assert inventories["VCPU"]["allocation_ratio"] == 4.0
    assert set(_part(client, HOST, "traits")["traits"]) == HOST.traits
    assert _part(client, HOST, "aggregates")["aggregates"] == [AGGREGATE]


def test_parents_are_made_before_their_children(client):
    seed(client, [CELL, HOST])
    provider = client.read(f"/resource_providers/{CELL.uuid}")
    assert provider["root_provider_uuid"] == HOST.uuid


def test_again_changes_what_changed(client):
    seed(client, [HOST, CELL])
    changed = replace(HOST, name="renamed", traits=frozenset(), aggregates=frozenset())
    assert seed(client, [changed, CELL]) == 1
    assert _part(client, HOST, "traits")["traits"] == []
    assert _part(client, HOST, "aggregates")["aggregates"] == []
    assert client.read(f"/resource_providers/{HOST.uuid}")["name"] == "renamed"


def test_progress_is_reported_after_each(client):
    progress = []
    seed(client, [HOST, CELL], progress=lambda *counts: progress.append(counts))
    assert progress == [(1, 2), (2, 2)]


def test_refusal_names_the_provider(client):
    wrong = replace(HOST, inventories={"NO_SUCH_CLASS": {"total": 1}})
    with pytest.raises(PlacementRejected, match=r"host1.*NO_SUCH_CLASS"):
        seed(client, [wrong])


def test_new_provider_needs_one_call_per_part(server):
    plain = replace(HOST, traits=frozenset(), aggregates=frozenset())
    seed(server.client(), [plain])
    assert [verb for verb, _, _ in server.seen] == ["GET", "POST", "PUT"]


def test_what_is_so_already_is_not_written(server):
    plain = replace(HOST, traits=frozenset({"HW_CPU_X86_AVX2"}))
    client = server.client()
    seed(client, [plain])
    before = client.read(f"/resource_providers/{HOST.uuid}")["generation"]
    server.seen.clear()
    assert seed(client, [plain]) == 0
    assert _written(server) == []
    assert client.read(f"/resource_providers/{HOST.uuid}")["generation"] == before


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("inventories", {"inventories": {"VCPU": {"total": 8}}}),
        ("traits", {"traits": frozenset({"HW_CPU_X86_AVX"})}),
        ("aggregates", {"aggregates": frozenset()}),
    ],
    ids=["inventories", "traits", "aggregates"],
)
def test_only_the_part_that_differs_is_written(server, part, change):
    plain = replace(HOST, traits=frozenset({"HW_CPU_X86_AVX2"}))
    client = server.client()
    seed(client, [plain])
    server.seen.clear()
    assert seed(client, [replace(plain, **change)]) == 1
    assert _written(server) == [f"/resource_providers/{HOST.uuid}/{part}"]


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_part_changed_by_another_client_is_read_and_written_again(server, is_known):
    plain = replace(HOST, traits=frozenset())
    client = server.client()
    if is_known:
        seed(client, [replace(plain, inventories={"VCPU": {"total": 2}})])
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=2)
    assert seed(client, [plain]) == 1
    assert _part(client, HOST, "inventories")["inventories"]["VCPU"]["total"] == 8
    assert _part(client, HOST, "aggregates")["aggregates"] == [AGGREGATE]


def test_provider_that_is_always_changed_is_given_up(server):
    plain = replace(HOST, traits=frozenset())
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=9)
    with pytest.raises(PlacementRejected, match=r"host1.*generation conflict"):
        seed(server.client(), [plain])
    assert len(_written(server)) == 4


def test_answer_of_another_server_is_an_error(server):
    server.misbehave(Misbehaviour.WRONG_SHAPE, verb="GET")
    with pytest.raises(PlacementUnavailable, match=r"GET /resource_providers.* is not"):
        seed(server.client(), [CELL])


def test_allocations_stay_when_a_host_is_seeded_again(client):
    seed(client, [HOST])
    consumer = "00000000-0000-0000-0000-0000000c0001"
    body = {
        "allocations": {HOST.uuid: {"resources": {"VCPU": 3}}},
        "consumer_generation": None,
        "project_id": "p",
        "user_id": "u",
    }
    assert client.put_allocations(consumer, body).is_done
    seed(client, [replace(HOST, inventories={"VCPU": {"total": 16}})])
    assert client.allocations(consumer).resources == {HOST.uuid: {"VCPU": 3}}
