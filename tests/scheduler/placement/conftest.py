# SPDX-License-Identifier: Apache-2.0
"""A small cloud, and a Placement with two hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.scheduler.placement.seed import Provider, seed

from ...fixtures.placement_servers import EmbeddedPlacementFixture
from .two_hosts import HOST, OTHER
from .watched import Cloud


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as cloud:
        yield cloud


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacementFixture]:
    """A Placement that knows of two hosts."""
    with EmbeddedPlacementFixture() as placement:
        seed(
            placement.client,
            [Provider(h, h, {"VCPU": {"total": 8}}) for h in (HOST, OTHER)],
        )
        yield placement
