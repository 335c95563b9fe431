# SPDX-License-Identifier: Apache-2.0
"""A machine's resource provider in the real Placement."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from oslo_config import cfg

from moorage.agent.daemon import provider_of, update_provider
from moorage.scheduler.errors import PlacementRejected
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import seed
from moorage.testing.builders import host, node_uuid

from ..fixtures.placement_servers import EmbeddedPlacementFixture

RECORD = host(host="h1", vcpus_total=4, total_usable_disk_gb=0)
URL = f"/resource_providers/{node_uuid('h1')}"


@pytest.fixture
def placement() -> Any:
    with EmbeddedPlacementFixture() as fixture:
        yield fixture.client


def placement_has(client: PlacementClient, part: str) -> Any:
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


def test_placement_is_updated_once(
    conf: cfg.ConfigOpts, placement: PlacementClient
) -> None:
    provider = provider_of(conf, RECORD)
    assert update_provider(placement, provider)
    assert not update_provider(placement, provider)
    assert placement_has(placement, "inventories")["VCPU"]["total"] == 4


def test_traits_and_inventories_of_others_stay(
    conf: cfg.ConfigOpts, placement: PlacementClient
) -> None:
    provider = provider_of(conf, RECORD)
    aggregate = str(uuid.uuid4())
    given = dataclasses.replace(
        provider,
        inventories={
            **provider.inventories,
            "CUSTOM_BERTH": {"total": 3},
            "DISK_GB": {"total": 10},
            "VCPU": {"total": 4, "step_size": 2},
        },
        traits=frozenset({"CUSTOM_QUAY", "HW_CPU_X86_AVX2"}),
        aggregates=frozenset({aggregate}),
    )
    seed(placement, [given])
    more = provider_of(conf, dataclasses.replace(RECORD, vcpus_total=8))
    assert update_provider(placement, more)
    inventories = placement_has(placement, "inventories")
    assert set(inventories) == {"VCPU", "MEMORY_MB", "CUSTOM_BERTH"}, "no disk any more"
    assert inventories["CUSTOM_BERTH"]["total"] == 3
    assert [inventories["VCPU"][key] for key in ("total", "step_size")] == [8, 2]
    assert set(placement_has(placement, "traits")) == given.traits
    assert placement_has(placement, "aggregates") == [aggregate]


class Interrupted:
    """Placement to which another client writes just before the first write."""

    def __init__(self, client: PlacementClient, write: Callable[[], object]) -> None:
        self._client = client
        self._write: Callable[[], object] | None = write
        self.read = client.read

    def write(self, *args: Any) -> Any:
        write, self._write = self._write, None
        if write is not None:
            write()
        return self._client.write(*args)


def test_what_another_client_writes_concurrently_stays(
    conf: cfg.ConfigOpts, placement: PlacementClient
) -> None:
    provider = provider_of(conf, RECORD)
    update_provider(placement, provider)
    berths = {**provider.inventories, "CUSTOM_BERTH": {"total": 3}}
    other = dataclasses.replace(provider, inventories=berths)
    client: Any = Interrupted(placement, lambda: seed(placement, [other]))
    more = provider_of(conf, dataclasses.replace(RECORD, vcpus_total=8))
    assert update_provider(client, more)
    inventories = placement_has(placement, "inventories")
    assert inventories["CUSTOM_BERTH"]["total"] == 3
    assert inventories["VCPU"]["total"] == 8


def test_machine_that_is_renamed_is_so_in_placement(
    conf: cfg.ConfigOpts, placement: PlacementClient
) -> None:
    provider = provider_of(conf, RECORD)
    update_provider(placement, provider)
    assert update_provider(placement, dataclasses.replace(provider, name="h2"))
    body: Any = placement.read(URL)
    assert body["name"] == "h2"
    with pytest.raises(PlacementRejected, match="name"):
        update_provider(
            placement, dataclasses.replace(provider, uuid=node_uuid("h3"), name="h2")
        )
