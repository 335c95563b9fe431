# SPDX-License-Identifier: Apache-2.0
"""One real Placement a test, and a server in front of it that can do wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.conductor import ConductorClient
from moorage.scheduler.placement.client import PlacementClient

from ..fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    adapter_to,
)
from .clouds import conductor, seed_cloud


@pytest.fixture
def embedded() -> Iterator[EmbeddedPlacementFixture]:
    with EmbeddedPlacementFixture() as placement:
        seed_cloud(placement.client)
        yield placement


@pytest.fixture
def other(embedded: EmbeddedPlacementFixture) -> PlacementClient:
    """Somebody else's client: the scheduler's, or another conductor's."""
    return embedded.client


@pytest.fixture
def client(embedded: EmbeddedPlacementFixture) -> ConductorClient:
    return conductor(embedded.adapter)


@pytest.fixture
def remote(server: MisbehavingServer) -> ConductorClient:
    """A conductor that reaches Placement through the server."""
    return conductor(adapter_to(server.url))
