# SPDX-License-Identifier: Apache-2.0
"""Many conductors at once, on the databases that clouds run on: nothing twice, no loss.

A host failed while it was building: all its instances, each known to two conductors,
go for the same alternates, which have no room for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moorage.conductor import (
    ConductorClient,
    claim_alternate,
    confirm,
    move,
    revert,
)
from moorage.scheduler.errors import AllocationUpdateFailed
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import Provider, seed

from ..fixtures.database_servers import Database, database_server
from ..fixtures.placement_servers import PlacementServer
from .clouds import (
    DEST,
    HOSTS,
    OWNER,
    SOURCE,
    THIRD,
    change,
    claimed,
    held,
    new_uuid,
    selection,
    vcpus,
)

pytestmark = pytest.mark.database

N_INSTANCES = 8
N_ALTERNATES = 3  # that fit on each of the two
FAILED, FIRST, SECOND = (selection(vcpus(host)) for host in (SOURCE, DEST, THIRD))


@pytest.fixture(scope="module", params=Database, ids=lambda kind: kind.name.lower())
def served(request: pytest.FixtureRequest) -> Iterator[PlacementServer]:
    sizes = {SOURCE: N_INSTANCES, DEST: N_ALTERNATES, THIRD: N_ALTERNATES}
    with PlacementServer(database_server(request.param)) as placement:
        hosts = [Provider(u, f"host{u[-1]}", _room(sizes[u])) for u in HOSTS]
        seed(placement.client, hosts)
        yield placement


def _room(n: int) -> dict[str, Any]:
    return {"VCPU": {"total": n, "allocation_ratio": 1.0}}


@pytest.fixture
def placement(served: PlacementServer) -> Iterator[PlacementServer]:
    """The Placement of all tests; what one has claimed is released after it."""
    yield served
    for host in HOSTS:
        body: Any = served.client.read(f"/resource_providers/{host}/allocations")
        for consumer in body["allocations"]:
            change(served.client, consumer, {})


def _used(client: PlacementClient) -> Counter[str]:
    bodies: dict[str, Any] = {
        u: client.read(f"/resource_providers/{u}/usages") for u in HOSTS
    }
    return Counter({u: body["usages"]["VCPU"] for u, body in bodies.items()})


def _reschedule(client: ConductorClient, instance: str) -> str | None:
    alternates = [FIRST, SECOND]
    chosen = claim_alternate(client, instance, alternates, failed=FAILED, **OWNER)
    return chosen.compute_node_uuid if chosen else None


def _end_move(client: ConductorClient, instance: str, migration: str) -> None:
    """Two conductors: one confirms, one reverts; the later one may get an error."""
    with ThreadPoolExecutor(2) as pool:
        reverted = pool.submit(revert, client, instance, migration)
        pool.submit(confirm, client, migration).result()
    try:
        reverted.result()
    except AllocationUpdateFailed:
        assert held(client, instance) == vcpus(DEST)
    else:
        assert held(client, instance) == vcpus(SOURCE)
    assert held(client, migration) == {}


@pytest.mark.deep
def test_conductors_agree_on_every_instance(placement: PlacementServer) -> None:
    instances = [claimed(placement.client, vcpus(SOURCE)) for _ in range(N_INSTANCES)]
    conductors = [ConductorClient(placement.adapter) for _ in range(2)]
    jobs = [(client, i) for i in instances for client in conductors]
    with ThreadPoolExecutor(6) as pool:
        chosen = list(pool.map(lambda job: _reschedule(*job), jobs))
    for i, instance in enumerate(instances):
        mine = set(chosen[2 * i : 2 * i + 2]) - {None}
        assert list(held(placement.client, instance)) == list(mine)
    used = _used(placement.client)
    assert used[SOURCE] == 0
    assert used[DEST] == used[THIRD] == N_ALTERNATES


@pytest.mark.deep
def test_move_ends_once(placement: PlacementServer) -> None:
    client = ConductorClient(placement.adapter)
    for _ in range(N_ALTERNATES):
        instance, migration = claimed(client, vcpus(SOURCE)), new_uuid()
        move(client, instance, migration, selection(vcpus(DEST)))
        _end_move(client, instance, migration)
