# SPDX-License-Identifier: Apache-2.0
"""Candidates from memory and from Placement lead to the same hosts."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import InstanceGroup, RequestGroup, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.adapter import PlacementAdapter
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.memory import ProviderCandidatesSource
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.testing.builders import (
    guest_cell,
    guest_topology,
    instance_uuid,
    node_uuid,
    numa_cell,
    numa_topology,
    pci_pool,
    pci_pools,
    pci_request,
    pci_requests,
    spec,
)

from ...fixtures.clouds import CONTEXT, host, new_uuids, write_inventory
from ...fixtures.placement_servers import EmbeddedPlacementFixture

N_HOSTS = 6
N_REQUESTS = 40
VF = "CUSTOM_PCI_8086_1520"
REQUEST = instance_uuid("devices")
FILTERS = [
    "ComputeFilter",
    "ServerGroupAntiAffinityFilter",
    "NUMATopologyFilter",
    "PciPassthroughFilter",
]


def _pf(name: str, number: int) -> str:
    return node_uuid(f"{name} PF {number}")


def _host(rng: random.Random, name: str) -> dict[str, Any]:
    """A host of two NUMA cells, and a PF with some VFs in each."""
    cells = [numa_cell(number) for number in (0, 1)]
    pools = [
        pci_pool(2, numa_node=i, dev_type="type-VF", rp_uuid=_pf(name, i))
        for i in (0, 1)
    ]
    traits = [t for t in ("CUSTOM_FAST", "CUSTOM_OLD") if rng.random() < 0.5]
    return host(
        name,
        uuid=node_uuid(name),
        memory_mb=rng.choice([8192, 16384, 32768]),
        traits=traits,
        numa_topology=json.dumps(numa_topology(*cells).obj_to_primitive()),
        pci_stats=pci_pools(*pools).obj_to_primitive(),
    )


def _tree(name: str) -> Iterator[Provider]:
    for i in (0, 1):
        numa = node_uuid(f"{name} NUMA {i}")
        yield Provider(numa, f"{name} NUMA {i}", {}, parent_uuid=node_uuid(name))
        vfs = {VF: {"total": 2}}
        yield Provider(_pf(name, i), f"{name} PF {i}", vfs, parent_uuid=numa)


def random_request(
    rng: random.Random, members: list[str], n_instances: int
) -> RequestSpec:
    """Return a request: plain, or with traits, a server group, PCI devices, cells."""
    changes: dict[str, Any] = {"vcpus": rng.randint(1, 2), "root_gb": 1}
    kind = rng.randrange(6)
    if kind == 0:
        trait = rng.choice(["CUSTOM_FAST", "CUSTOM_OLD"])
        must = rng.choice(["required", "forbidden"])
        changes["extra_specs"] = {f"trait:{trait}": must}
    elif kind == 1:
        changes["instance_group"] = InstanceGroup(
            uuid=instance_uuid("group"),
            policy=rng.choice(["soft-affinity", "anti-affinity"]),
            policies=None,
            rules={},
            members=rng.sample(members, min(2, len(members))),
            hosts=[],
        )
    elif kind in (2, 3):
        changes |= _devices(rng.randint(1, 2), rng.choice(["required", "legacy"]))
        if kind == 3:
            changes["numa_topology"] = guest_topology(guest_cell())
            changes["vcpus"] = 2
    return spec(num_instances=n_instances, **changes)


def _devices(count: int, numa_policy: str) -> dict[str, Any]:
    asked = pci_request(
        count, alias_name="nic", request_id=REQUEST, numa_policy=numa_policy
    )
    groups = [
        RequestGroup(requester_id=f"{REQUEST}-{i}", resources={VF: 1})
        for i in range(count)
    ]
    return {
        "pci_requests": pci_requests(asked),
        "requested_resources": groups,
        "extra_specs": {"group_policy": "none"},
    }


class Pair:
    """Two schedulers of one cloud: one queries Placement, one has its providers."""

    def __init__(
        self,
        folder: Path,
        client: PlacementClient,
        adapter: PlacementAdapter,
        rng: random.Random,
    ) -> None:
        self.client = client
        names = [f"h{i}" for i in range(N_HOSTS)]
        self._path = write_inventory(folder, *(_host(rng, name) for name in names))
        seed(self.client, providers(read_inventory(self._path)))
        seed(self.client, [provider for name in names for provider in _tree(name)])
        self._adapter = adapter
        self._url = f"sqlite:///{folder / 'placement.sqlite'}"
        self.queried, self.in_memory = map(self._made, ("placement", "memory"))
        self.in_memory.publish_claims = lambda claims: self.queried.apply_peer_claims(
            [c.to_wire() for c in claims]
        )

    def _made(self, candidates: str) -> Scheduler:
        conf = load([], config_files=[])
        options = {
            "candidates": candidates,
            "candidates_max_age": 0,
            "inventory_file": str(self._path),
            "random_seed": 7,
        }
        for name, value in options.items():
            conf.set_override(name, value, group="moorage")
        conf.set_override("connection", self._url, group="placement_database")
        conf.set_override("max_placement_results", 100_000, group="scheduler")
        conf.set_override("enabled_filters", FILTERS, group="filter_scheduler")
        made = build(conf, placement=self._adapter)
        made.start()
        return made

    def select(
        self, scheduler: Scheduler, asked: RequestSpec, uuids: list[str]
    ) -> list[str]:
        """Return the hosts of instances; none: no host is valid."""
        try:
            answer: Any = scheduler.select_destinations(
                CONTEXT, asked, uuids, return_objects=True
            )
        except NoValidHost:
            return []
        return [chosen.service_host for [chosen] in answer]

    def undo(self, scheduler: Scheduler, hosts: list[str], uuids: list[str]) -> None:
        """Take a selection back, in Placement and in the scheduler's host table."""
        for name, uuid in zip(hosts, uuids, strict=True):
            self.client.delete_allocations(uuid)
            scheduler.table.claims.release(name, uuid)

    def read_again(self) -> None:
        """Read all providers: a deletion would be found within a minute."""
        source = self.in_memory.candidates
        assert isinstance(source, ProviderCandidatesSource)
        trees = source.follower.table.view().state.trees
        assert source.follower.refresh([uuid for uuid in trees.uuids if uuid])


@pytest.mark.deep
@pytest.mark.parametrize("number", range(3))
def test_same_hosts_are_selected(tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    with EmbeddedPlacementFixture(str(tmp_path / "placement.sqlite")) as placement:
        pair = Pair(tmp_path, placement.client, placement.adapter, rng)
        try:
            outcomes = list(_differing(pair, rng))
        finally:
            pair.queried.stop()
            pair.in_memory.stop()
    assert [pair for pair in outcomes if pair[0] != pair[1]] == []
    assert sum(bool(hosts) for hosts, _ in outcomes) > N_REQUESTS / 4
    counts = pair.in_memory.candidates.query_counts()
    assert counts["memory"] >= N_REQUESTS
    assert counts["disagreed"] == counts["not_covered"] == counts["stale"] == 0


def _differing(pair: Pair, rng: random.Random) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the hosts of each request, by Placement's answer and from memory."""
    members = list[str]()
    for _ in range(N_REQUESTS):
        uuids = new_uuids(rng.choice([1, 1, 2, 3]))
        state, kept = rng.getstate(), list(members)
        asked = random_request(rng, kept, len(uuids))
        expected = pair.select(pair.queried, asked, uuids)
        pair.undo(pair.queried, expected, uuids[: len(expected)])
        pair.read_again()
        rng.setstate(state)
        again = random_request(
            rng, kept, len(uuids)
        )  # a decision writes to its request
        found = pair.select(pair.in_memory, again, uuids)
        members += uuids[: len(found)]
        yield expected, found
