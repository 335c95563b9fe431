# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that have nova 34 beside us."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from .peer import Peer, peer_python


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """Return nova 34's process; without its environment, skip or fail."""
    python = peer_python()
    if not python.exists():
        reason = f"no nova 34: {python} is missing; run `make peer`"
        if os.environ.get("MOORAGE_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with Peer(python) as running:
        yield running


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Keep pytest from collecting a warning for each hostile value of each host."""
    logger = logging.getLogger("moorage")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)
