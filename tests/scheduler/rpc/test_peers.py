# SPDX-License-Identifier: Apache-2.0
"""Claims that wait for a broker that accepts nothing, and claims that are wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.objects import RequestSpec
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.claims.peer_claims import PeerClaim
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.hosts import Consumption
from moorage.scheduler.rpc import Peers, PeersEndpoint, get_transport
from moorage.scheduler.service import Scheduler
from moorage.testing.builders import instance_uuid, node_uuid

from ...fixtures.clouds import first_row, request

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


_WIRE = {**CLAIM.to_wire(), "claimed_at": 1e9}


@pytest.mark.parametrize(
    "changes",
    [
        {"spec_obj": RequestSpec()},
        {"spec_obj": request(memory_mb=2**63)},
        {"spec_obj": request(vcpus=-1)},
        {"claimed_at": 10**400},
        {"claimed_at": float("nan")},
        {"memory_mb": 2**63},
        {"state": "taken"},
        {"limits": 5},
    ],
    ids=str,
)
def test_claim_that_cannot_be_read_is_skipped_and_the_next_one_counts(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture, changes: dict[str, Any]
) -> None:
    row = first_row(scheduler)
    claim = {**_WIRE, "node_uuid": row.uuid}
    other = {**claim, "instance_uuid": instance_uuid("b")}
    endpoint = PeersEndpoint(scheduler, "origin")
    endpoint.instances_claimed({}, "other", [{**claim, **changes}, other])
    assert first_row(scheduler).num_instances == row.num_instances + 1
    assert first_row(scheduler).vcpus_used == row.vcpus_used + 1
    assert caplog.text.count("cannot be read") == 1


@pytest.mark.parametrize("claims", [True, None, 1.5, "claims", {}])
def test_claims_that_are_no_list_are_refused(scheduler: Scheduler, claims: Any) -> None:
    with pytest.raises(InvalidRequest, match="claims: a list is needed, not"):
        PeersEndpoint(scheduler, "origin").instances_claimed({}, "other", claims)
