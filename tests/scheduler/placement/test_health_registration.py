# SPDX-License-Identifier: Apache-2.0
"""An empty Placement is distinguished from one in which nothing fits, at low cost."""

from __future__ import annotations

import uuid

import pytest

from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.health import (
    REGISTRATION_INTERVAL_S,
    PlacementHealth,
)
from moorage.scheduler.placement.seed import Provider, seed

from ...fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from .watched import Clock, vcpu_query

HOST = str(uuid.UUID(int=1))


def _register(embedded: EmbeddedPlacementFixture) -> None:
    seed(embedded.client, [Provider(HOST, HOST, {"VCPU": {"total": 8}})])


def _n_checks(server: MisbehavingServer) -> int:
    return sum(path == "/resource_providers" for _, path, _ in server.seen)


def test_placement_without_any_provider_is_empty(server: MisbehavingServer) -> None:
    client = server.client()
    assert not client.health.was_empty
    assert client.is_empty()
    assert client.health.was_empty


def test_placement_in_which_nothing_fits_is_not_empty_nor_checked_again(
    embedded: EmbeddedPlacementFixture, server: MisbehavingServer
) -> None:
    _register(embedded)
    client = server.client()
    assert not client.allocation_candidates(vcpu_query(99)).n_requests
    for _ in range(3):
        assert not client.is_empty()
    assert _n_checks(server) == 1


def test_placement_that_had_candidates_once_is_never_checked(
    embedded: EmbeddedPlacementFixture, server: MisbehavingServer
) -> None:
    _register(embedded)
    client = server.client()
    assert client.allocation_candidates(vcpu_query()).n_requests
    assert not client.is_empty()
    assert _n_checks(server) == 0


def test_empty_placement_is_checked_again_after_a_while(
    embedded: EmbeddedPlacementFixture, server: MisbehavingServer
) -> None:
    clock = Clock()
    health = PlacementHealth(clock=clock)
    client = PlacementClient(adapter_to(server.url), health=health)
    assert client.is_empty()
    _register(embedded)
    assert client.is_empty()
    assert _n_checks(server) == 1
    clock.now += REGISTRATION_INTERVAL_S
    assert not client.is_empty()
    assert not health.was_empty
    assert _n_checks(server) == 2


def test_candidates_end_the_emptiness(
    embedded: EmbeddedPlacementFixture, server: MisbehavingServer
) -> None:
    client = server.client()
    assert client.is_empty()
    _register(embedded)
    assert client.allocation_candidates(vcpu_query()).n_requests
    assert not client.health.was_empty


@pytest.mark.parametrize(
    "wrong", [Misbehaviour.ERROR, Misbehaviour.HTML, Misbehaviour.WRONG_SHAPE]
)
def test_placement_that_does_not_say_is_not_called_empty(
    server: MisbehavingServer, wrong: Misbehaviour
) -> None:
    server.misbehave(wrong)
    assert not PlacementClient(adapter_to(server.url)).is_empty()
