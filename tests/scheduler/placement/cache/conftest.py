# SPDX-License-Identifier: Apache-2.0
"""The cloud's Placement behind a server that delays its answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..watched import Cloud, HeldServer


@pytest.fixture
def server(cloud: Cloud) -> Iterator[HeldServer]:
    with HeldServer(cloud.placement.wsgi_app) as server:
        yield server
