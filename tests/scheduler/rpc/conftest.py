# SPDX-License-Identifier: Apache-2.0
"""A scheduler of three hosts in two cells, and a bus on which it is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.rpc import get_server, get_transport
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import host, started_scheduler


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    hosts = [host("h1"), host("h2"), host("h3", cell="cell2")]
    with started_scheduler(tmp_path, *hosts) as scheduler:
        yield scheduler


@pytest.fixture
def transport(scheduler: Scheduler) -> Iterator[Any]:
    """A bus on which the scheduler is served."""
    transport = get_transport(scheduler.conf, "fake://")
    server = get_server(scheduler.conf, transport, scheduler.endpoints)
    server.start()
    yield transport
    server.stop()
    server.wait()
    transport.cleanup()
