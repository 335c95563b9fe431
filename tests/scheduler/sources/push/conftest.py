# SPDX-License-Identifier: Apache-2.0
"""A push source on a store in a file, a clock that is set, and agents without a bus."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.agent.reporter import Reply, Reporter
from moorage.scheduler.conf import load
from moorage.scheduler.hosts import COLUMNS, HostTable
from moorage.scheduler.sources.push import PushSource
from moorage.scheduler.sources.push.source import ReportRequester
from moorage.scheduler.sources.reported.hosts import ReportedHosts
from moorage.testing.builders import NOW

REPLY = Reply("moorage-agent", "agent-1")


class Clock:
    """A time that is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Scheduler:
    """A table that a push source fills."""

    def __init__(self, url: str, clock: Clock, **options: Any) -> None:
        conf = load([], config_files=[])
        conf.set_override("store_connection", url, group="moorage")
        for name, value in options.items():
            conf.set_override(name, value, group="moorage")
        self.table = HostTable(clock)
        self.source = PushSource(conf, clock=clock)
        self.source.start(self.table)

    @property
    def hosts(self) -> ReportedHosts:
        """The known state of each host."""
        hosts = self.source._hosts  # noqa: SLF001 - its own loops work with them
        assert hosts is not None
        return hosts

    @property
    def requester(self) -> ReportRequester:
        """Requests whole reports of agents."""
        return self.source._requester  # noqa: SLF001 - its own loops work with it

    def receive(self, *reports: Mapping[str, Any] | None) -> None:
        """Take reports as they come over a bus."""
        endpoint: Any
        (endpoint,) = self.source.endpoints
        endpoint.host_reports({}, copy.deepcopy(list(reports)))

    def row(self, node_uuid: str) -> dict[str, Any]:
        """All columns of a node."""
        batch = self.table.batch([node_uuid])
        assert len(batch) == 1, "the node has no row"
        return {name: batch.value(name, 0) for name in COLUMNS}

    def value(self, node_uuid: str, column: str) -> Any:
        return self.row(node_uuid)[column]


class Wire:
    """An agent's casts: JSON, queued until it is delivered, or lost."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.reporter = Reporter(self._cast, reply=REPLY)

    def _cast(self, reports: list[dict[str, Any]]) -> None:
        self.sent += json.loads(json.dumps(reports))

    def casts(self) -> list[dict[str, Any]]:
        """Return the casts since the last call."""
        sent, self.sent = self.sent, []
        return sent

    def restart(self) -> None:
        """Start again, as another incarnation."""
        self.reporter = Reporter(self._cast, reply=REPLY)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store/hosts.sqlite"


@pytest.fixture
def make(url: str, clock: Clock) -> Iterator[Callable[..., Scheduler]]:
    """Make a scheduler on the store; all are stopped after."""
    made: list[Scheduler] = []

    def make_one(url: str = url, **options: Any) -> Scheduler:
        made.append(Scheduler(url, clock, **options))
        return made[-1]

    yield make_one
    for scheduler in made:
        scheduler.source.stop()


@pytest.fixture
def scheduler(make: Callable[..., Scheduler]) -> Scheduler:
    return make()


@pytest.fixture
def wire() -> Wire:
    return Wire()
