# SPDX-License-Identifier: Apache-2.0
"""A small cloud, its Placement behind a server that holds up, and one of two hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.scheduler.placement.seed import Provider, seed

from ...fixtures.placement_servers import EmbeddedPlacementFixture
from .two_hosts import HOST, OTHER
from .watched import Cloud, HeldServer


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as cloud:
        yield cloud


@pytest.fixture
def server(cloud: Cloud) -> Iterator[HeldServer]:
    with HeldServer(cloud.placement.wsgi_app) as server:
        yield server


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacementFixture]:
    """A Placement that knows of two hosts."""
    with EmbeddedPlacementFixture() as placement:
        seed(
            placement.client,
            [Provider(h, h, {"VCPU": {"total": 8}}) for h in (HOST, OTHER)],
        )
        yield placement
