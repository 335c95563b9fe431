# SPDX-License-Identifier: Apache-2.0
"""Claims cross the wire whole; what is none is refused before anything is taken."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.claims.peer_claims import ClaimState, PeerClaim
from moorage.scheduler.hosts import Consumption
from moorage.testing.builders import instance_uuid, node_uuid

NODE = node_uuid("h1")

CLAIM = PeerClaim(
    node_uuid=NODE,
    instance_uuid=instance_uuid("a"),
    claimed_at=1_700_000_000.5,
    consumption=Consumption(
        1024, 10240, 2, image_properties=frozenset({("os_distro", "debian")})
    ),
    resources={NODE: {"VCPU": 2, "MEMORY_MB": 1024}},
)


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    return moorage_conf.load([], config_files=[])


def test_claim_crosses_the_wire(conf: cfg.ConfigOpts) -> None:
    wire = json.loads(json.dumps(CLAIM.to_wire()))
    assert PeerClaim.from_wire({**wire, "new": 1}, conf) == CLAIM


def test_reservation_crosses_the_wire(conf: cfg.ConfigOpts) -> None:
    reserved = dataclasses.replace(CLAIM, state=ClaimState.RESERVED)
    assert PeerClaim.from_wire(reserved.to_wire(), conf).state is ClaimState.RESERVED


def test_claim_of_an_earlier_version_is_granted(conf: cfg.ConfigOpts) -> None:
    wire = CLAIM.to_wire()
    del wire["state"]
    assert PeerClaim.from_wire(wire, conf).state is ClaimState.GRANTED


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "done"},
        {"memory_mb": 2**70},
        {"memory_mb": -1},
        {"vcpus": float("inf")},
        {"disk_mb": None},
        {"resources": {NODE: {"VCPU": 2**70}}},
        {"resources": {"h1": {"VCPU": 1}}},
        {"resources": {NODE: 1}},
        {"instance_uuid": "a"},
        {"node_uuid": None},
        {"spec_obj": "a text"},
        {"claimed_at": "yesterday"},
        {"claimed_at": 1e300},
        {"image_properties": ["x"]},
        {"limits": 1},
    ],
    ids=repr,
)
def test_what_is_no_claim_is_refused(
    conf: cfg.ConfigOpts, wrong: dict[str, Any]
) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        PeerClaim.from_wire({**CLAIM.to_wire(), **wrong}, conf)
