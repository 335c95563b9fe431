# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that have nova 34 beside us."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ..fixtures.nova_peer import Peer, peer_or_skip


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """Return nova 34's process; without its environment, skip or fail."""
    with Peer(peer_or_skip()) as running:
        yield running


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Keep pytest from collecting a warning for each hostile value of each host."""
    logger = logging.getLogger("moorage")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)
