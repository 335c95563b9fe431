# SPDX-License-Identifier: Apache-2.0
"""Servers are stopped if the broker lets only some of them start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg
from oslo_messaging._drivers import impl_fake

from moorage.scheduler.cmd.serving import Serving
from moorage.scheduler.rpc import PEERS_TOPIC
from moorage.scheduler.rpc.transport import register_opts
from moorage.scheduler.service import build

from ...fixtures.clouds import host, write_inventory
from ...fixtures.waiting import wait_until


class Broker:
    """The broker of ``fake://``, which may refuse the queues between schedulers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_refusing = True
        self.listeners: list[Any] = []
        broker = self

        class Listener(impl_fake.FakeListener):  # type: ignore[misc]
            def __init__(self, exchanges: Any, targets: Any, *rest: Any) -> None:
                self.topic = targets[0].topic
                self.is_stopped = False
                if broker.is_refusing and self.topic == PEERS_TOPIC:
                    raise PermissionError("ACCESS_REFUSED")
                super().__init__(exchanges, targets, *rest)
                broker.listeners.append(self)

            def stop(self) -> None:
                super().stop()
                self.is_stopped = True

        monkeypatch.setattr(impl_fake, "FakeListener", Listener)

    def served_topics(self) -> list[str]:
        """Return the topics whose messages are consumed."""
        return [each.topic for each in self.listeners if not each.is_stopped]


def test_server_that_began_ends_where_another_cannot_start(
    tmp_path: Path, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(monkeypatch)
    register_opts(conf)
    conf.set_override("transport_url", "fake://")
    path = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(path), group="moorage")
    scheduler = build(conf)
    scheduler.start()
    serving = Serving(conf, scheduler)
    started = serving.start()
    try:
        wait_until(lambda: "ACCESS_REFUSED" in scheduler.status.readiness_note)
        assert broker.listeners[0].is_stopped
        broker.is_refusing = False
        started.result(timeout=60)
        assert broker.served_topics() == ["scheduler", PEERS_TOPIC]
    finally:
        assert serving.stop()
        scheduler.stop()
    assert broker.served_topics() == []
