# SPDX-License-Identifier: Apache-2.0
"""A small cloud, and the same Placement behind a server that holds questions up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .watched import Cloud, HeldServer


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as cloud:
        yield cloud


@pytest.fixture
def server(cloud: Cloud) -> Iterator[HeldServer]:
    with HeldServer(cloud.placement.wsgi_app) as server:
        yield server
