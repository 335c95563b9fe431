# SPDX-License-Identifier: Apache-2.0
"""Providers enter and leave aggregates, beside others that do the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.scheduler.errors import PlacementRejected, PlacementUnavailable
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.members import change_aggregates, root_providers
from moorage.scheduler.placement.seed import Provider, seed

from ...conftest import instance_uuid, node_uuid
from ...fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
)

A, B, C = (instance_uuid(name) for name in "abc")
NODE = node_uuid("n1")


@pytest.fixture
def server(embedded: EmbeddedPlacementFixture) -> Iterator[MisbehavingServer]:
    vcpus = {"VCPU": {"total": 8}}
    root = Provider(NODE, "n1", vcpus, aggregates=frozenset({A, B}))
    child = Provider(C, "child", vcpus, parent_uuid=NODE, aggregates=frozenset({A}))
    seed(embedded.client, [root, child, Provider(node_uuid("n2"), "n2", vcpus)])
    with MisbehavingServer(embedded.placement.wsgi_app) as server:
        yield server


def _aggregates(client: PlacementClient) -> set[str]:
    return {u for u in (A, B, C) if NODE in root_providers(client, u)}


def test_only_root_providers_are_listed(server: MisbehavingServer) -> None:
    assert root_providers(server.client()) == {NODE: "n1", node_uuid("n2"): "n2"}
    assert root_providers(server.client(), A) == {NODE: "n1"}


def test_other_aggregates_stay(server: MisbehavingServer) -> None:
    client = server.client()
    change_aggregates(client, NODE, leave=[A], enter=[C])
    assert _aggregates(client) == {B, C}
    n_puts = sum(verb == "PUT" for verb, _, _ in server.seen)
    change_aggregates(client, NODE, leave=[A], enter=[C])
    assert sum(verb == "PUT" for verb, _, _ in server.seen) == n_puts == 1


def test_concurrent_change_is_read_and_the_own_one_repeated(
    server: MisbehavingServer,
) -> None:
    client = server.client()
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=2)
    change_aggregates(client, NODE, leave=[A], enter=[C])
    assert _aggregates(client) == {B, C}


def test_endless_conflict_is_an_error(server: MisbehavingServer) -> None:
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=9)
    with pytest.raises(PlacementRejected, match="409"):
        change_aggregates(server.client(), NODE, leave=[A], enter=[])


def test_answer_of_another_server_is_an_error(server: MisbehavingServer) -> None:
    server.misbehave(Misbehaviour.WRONG_SHAPE, verb="GET")
    with pytest.raises(PlacementUnavailable, match="something unexpected: KeyError"):
        root_providers(server.client())
