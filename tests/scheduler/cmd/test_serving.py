# SPDX-License-Identifier: Apache-2.0
"""Servers start together or not at all; claims are announced from the first one on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg
from oslo_messaging._drivers import impl_fake

from moorage.scheduler.cmd.serving import Serving
from moorage.scheduler.rpc import PEERS_TOPIC
from moorage.scheduler.rpc.transport import register_opts
from moorage.scheduler.service import Scheduler, build

from ...fixtures.clouds import host, write_inventory
from ...fixtures.waiting import wait_until


class Broker:
    """The broker of ``fake://``, which may refuse the queues between schedulers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_refusing = True
        self.listeners: list[Any] = []
        self.on_listening: Callable[[], object] = lambda: None
        broker = self

        class Listener(impl_fake.FakeListener):  # type: ignore[misc]
            def __init__(self, exchanges: Any, targets: Any, *rest: Any) -> None:
                self.topic = targets[0].topic
                self.is_stopped = False
                if broker.is_refusing and self.topic == PEERS_TOPIC:
                    raise PermissionError("ACCESS_REFUSED")
                super().__init__(exchanges, targets, *rest)
                broker.listeners.append(self)
                broker.on_listening()

            def stop(self) -> None:
                super().stop()
                self.is_stopped = True

        monkeypatch.setattr(impl_fake, "FakeListener", Listener)

    def served_topics(self) -> list[str]:
        """Return the topics whose messages are consumed."""
        return [each.topic for each in self.listeners if not each.is_stopped]


@pytest.fixture
def scheduler(tmp_path: Path, conf: cfg.ConfigOpts) -> Iterator[Scheduler]:
    """A scheduler that is started, with a transport in memory."""
    register_opts(conf)
    conf.set_override("transport_url", "fake://")
    path = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(path), group="moorage")
    scheduler = build(conf)
    scheduler.start()
    yield scheduler
    scheduler.stop()


def test_server_that_began_ends_where_another_cannot_start(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(monkeypatch)
    serving = Serving(scheduler.conf, scheduler)
    started = serving.start()
    try:
        wait_until(lambda: "ACCESS_REFUSED" in scheduler.status.readiness_note)
        assert broker.listeners[0].is_stopped
        broker.is_refusing = False
        started.result(timeout=60)
        assert broker.served_topics() == ["scheduler", PEERS_TOPIC]
    finally:
        assert serving.stop()
    assert broker.served_topics() == []


def test_claims_of_the_first_request_are_announced(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(monkeypatch)
    broker.is_refusing = False
    publishers: list[object] = []
    broker.on_listening = lambda: publishers.append(scheduler.parts.publish_claims)
    serving = Serving(scheduler.conf, scheduler)
    try:
        serving.start().result(timeout=60)
    finally:
        assert serving.stop()
    # A request that waits in the queue is decided as soon as its server listens.
    assert len(publishers) == 2
    assert None not in publishers
