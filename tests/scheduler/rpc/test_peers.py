# SPDX-License-Identifier: Apache-2.0
"""Claims that schedulers publish while the broker accepts nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.claims.peer_claims import PeerClaim
from moorage.scheduler.hosts import Consumption
from moorage.scheduler.rpc import Peers, get_transport
from moorage.testing.builders import instance_uuid, node_uuid

WITHIN_S = 60.0

CLAIM = PeerClaim(
    node_uuid=node_uuid("h1"),
    instance_uuid=instance_uuid("a"),
    claimed_at=0.0,
    consumption=Consumption(1, 1, 1),
    resources={},
)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A transport whose broker accepts nothing until the test ends."""
    transport = get_transport(moorage_conf.load([], config_files=[]), "fake://")
    end = threading.Event()
    driver = transport._driver  # noqa: SLF001 - it has no public name
    monkeypatch.setattr(driver, "send", lambda *_, **__: end.wait(WITHIN_S))
    yield transport
    end.set()
    transport.cleanup()


def test_end_is_not_held_up_by_claims_that_wait(
    stuck: Any, caplog: pytest.LogCaptureFixture
) -> None:
    peers = Peers(stuck)
    peers.publish([CLAIM] * 20_000)
    assert "wait for the broker" in caplog.text
    ending = threading.Thread(target=peers.stop, args=(0.1,), daemon=True)
    ending.start()
    ending.join(WITHIN_S / 2)
    assert not ending.is_alive()
