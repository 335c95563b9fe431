# SPDX-License-Identifier: Apache-2.0
"""A machine's resource provider in the real Placement."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest
from oslo_config import cfg

from moorage.agent.provider import keep, provider_of
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import seed
from moorage.testing.builders import host, node_uuid

from ..placement_servers import EmbeddedPlacementFixture

RECORD = host(host="h1", vcpus_total=4, total_usable_disk_gb=0)
URL = f"/resource_providers/{node_uuid('h1')}"


@pytest.fixture
def placement() -> Any:
    with EmbeddedPlacementFixture() as fixture:
        yield fixture.client


def told(client: PlacementClient, part: str) -> Any:
    body: Any = client.read(f"{URL}/{part}")
    return body[part]


def test_what_there_is_and_what_is_reserved(conf: cfg.ConfigOpts) -> None:
    conf.set_override("reserved_cpus", 1, group="agent")
    conf.set_override("reserved_memory_mb", 10**9, group="agent")
    provider = provider_of(conf, RECORD)
    assert provider.uuid == node_uuid("h1")
    assert provider.inventories == {
        "VCPU": {
            "total": 4,
            "reserved": 1,
            "max_unit": 4,
            "allocation_ratio": 1.0,
        },
        "MEMORY_MB": {
            "total": 16384,
            "reserved": 16384,
            "max_unit": 16384,
            "allocation_ratio": 1.0,
        },
    }


def test_placement_is_told_once(
    conf: cfg.ConfigOpts, placement: PlacementClient
) -> None:
    provider = provider_of(conf, RECORD)
    assert keep(placement, provider)
    assert not keep(placement, provider)
    assert told(placement, "inventories")["VCPU"]["total"] == 4


def test_what_others_said_of_it_stays(
    conf: cfg.ConfigOpts, placement: PlacementClient
) -> None:
    provider = provider_of(conf, RECORD)
    aggregate = str(uuid.uuid4())
    given = dataclasses.replace(
        provider,
        traits=frozenset({"CUSTOM_QUAY", "HW_CPU_X86_AVX2"}),
        aggregates=frozenset({aggregate}),
    )
    seed(placement, [given])
    more = provider_of(conf, dataclasses.replace(RECORD, vcpus_total=8))
    assert keep(placement, more)
    assert told(placement, "inventories")["VCPU"]["total"] == 8
    assert set(told(placement, "traits")) == given.traits
    assert told(placement, "aggregates") == [aggregate]
