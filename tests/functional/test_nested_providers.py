# SPDX-License-Identifier: Apache-2.0
"""Devices in nested providers of a real Placement are claimed where the guest fits.

Each host is a tree: a root with PCPU, two NUMA providers, a PF with VFs under each,
and a pGPU.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from moorage.objects import (
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
    Selection,
)
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.allocations.claims import ClaimResult
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import build
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

from ..fixtures.allocations import claim_one, request_of
from ..fixtures.clouds import CONTEXT, host, write_inventory
from ..fixtures.placement_servers import EmbeddedPlacementFixture

VF = "CUSTOM_PCI_8086_1520"
REQUEST = instance_uuid("PCI request")
ENABLED = ["ComputeFilter", "NUMATopologyFilter", "PciPassthroughFilter"]


def numa(name: str, number: int) -> str:
    return node_uuid(f"{name} NUMA {number}")


def pf(name: str, number: int) -> str:
    return node_uuid(f"{name} PF {number}")


def gpu(name: str) -> str:
    return node_uuid(f"{name} GPU")


def tree(name: str, n_vfs: int) -> Iterator[Provider]:
    """The children of a host's provider."""
    for number in (0, 1):
        yield Provider(
            uuid=numa(name, number),
            name=f"{name} NUMA {number}",
            inventories={"CUSTOM_CACHE_WAYS": {"total": 8}},
            traits=frozenset({"HW_NUMA_ROOT"}),
            parent_uuid=node_uuid(name),
        )
        yield Provider(
            uuid=pf(name, number),
            name=f"{name} PF {number}",
            inventories={VF: {"total": n_vfs}},
            parent_uuid=numa(name, number),
        )
    yield Provider(
        uuid=gpu(name),
        name=f"{name} GPU",
        inventories={"VGPU": {"total": 1}},
        parent_uuid=node_uuid(name),
    )


def inventory_host(
    name: str, n_vfs: int, pinned: Mapping[int, set[int]]
) -> dict[str, Any]:
    """A host of two cells with 4 CPUs each, of which some are pinned."""
    cells = (numa_cell(i, pinned_cpus=pinned.get(i, set())) for i in (0, 1))
    pools = (
        pci_pool(n_vfs, numa_node=i, dev_type="type-VF", rp_uuid=pf(name, i))
        for i in (0, 1)
    )
    return host(
        name,
        uuid=node_uuid(name),
        numa_topology=json.dumps(numa_topology(*cells).obj_to_primitive()),
        pci_stats=pci_pools(*pools).obj_to_primitive(),
    )


class BeforeClaimAdapter:
    """An adapter to Placement that calls `before_claim` before its first claim."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.before_claim: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def put(self, url: str, **options: Any) -> Any:
        rush, self.before_claim = self.before_claim, None
        if rush is not None:
            rush()
        return self._adapter.put(url, **options)


class Cloud:
    """A scheduler of such hosts, and the Placement that holds their trees."""

    def __init__(
        self,
        path: Path,
        placement: EmbeddedPlacementFixture,
        trees: Iterable[Provider],
        options: Mapping[str, str],
    ) -> None:
        conf = load([], config_files=[])
        conf.set_override("candidates", options["candidates"], group="moorage")
        conf.set_override("connection", options["url"], group="placement_database")
        conf.set_override("inventory_file", str(path), group="moorage")
        conf.set_override("enabled_filters", ENABLED, group="filter_scheduler")
        self.placement = placement.client
        self.adapter = BeforeClaimAdapter(placement.adapter)
        seed(self.placement, providers(read_inventory(path)))
        seed(self.placement, trees)
        self.scheduler = build(conf, placement=self.adapter)
        self.scheduler.start()

    def select(self, spec_obj: RequestSpec, *uuids: str) -> list[Selection]:
        lists = self.scheduler.select_destinations(
            CONTEXT,
            spec_obj,
            list(uuids) or [instance_uuid("new")],
            return_objects=True,
            return_alternates=False,
        )
        return [chosen for [chosen] in cast(list[list[Selection]], lists)]

    def held(self, uuid: str) -> dict[str, dict[str, int]]:
        resources = self.placement.allocations(uuid).resources
        return {provider: dict(amounts) for provider, amounts in resources.items()}

    def free(self, name: str) -> dict[str, int]:
        """Free devices by provider, as the host table reckons."""
        [pools] = self.scheduler.table.batch([node_uuid(name)]).pci_stats
        return {pool.rp_uuid: pool.count for pool in pools.pools}

    def pinned(self, name: str) -> list[set[int]]:
        """Pinned CPUs by cell, as the host table reckons."""
        [row] = self.scheduler.table.batch([node_uuid(name)])
        assert row.numa_topology is not None
        return [cell.pinned_cpus for cell in row.numa_topology.cells]


@pytest.fixture(params=["placement", "memory"])
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Make a cloud of hosts, with so many VFs a PF and some CPUs pinned."""
    database = str(tmp_path / "placement.sqlite")
    options = {"candidates": request.param, "url": f"sqlite:///{database}"}
    with (
        EmbeddedPlacementFixture(database) as placement,
        contextlib.ExitStack() as stack,
    ):

        def make(
            *names: str, n_vfs: int = 2, pinned: Mapping[int, set[int]] | None = None
        ) -> Cloud:
            hosts = [inventory_host(name, n_vfs, pinned or {}) for name in names]
            trees = [provider for name in names for provider in tree(name, n_vfs)]
            path = write_inventory(tmp_path, *hosts)
            cloud = Cloud(path, placement, trees, options)
            stack.callback(cloud.scheduler.stop)
            return cloud

        yield make


def devices(count: int, numa_policy: str | None = None, **changes: Any) -> RequestSpec:
    """A request for devices by alias, as its API and conductor prepare it."""
    device = pci_request(
        count, alias_name="nic", request_id=REQUEST, numa_policy=numa_policy
    )
    groups = [group(f"{REQUEST}-{i}", {VF: 1}) for i in range(count)]
    more = changes.pop("groups", [])
    return spec(
        pci_requests=pci_requests(device), requested_resources=groups + more, **changes
    )


def group(name: str, resources: Mapping[str, int], **changes: Any) -> RequestGroup:
    return RequestGroup(requester_id=name, resources=dict(resources), **changes)


def mappings(selection: Selection) -> dict[str, list[str]]:
    mapped: dict[str, list[str]] = json.loads(selection.allocation_request)["mappings"]
    return mapped


def agrees(cloud: Cloud, selection: Selection, uuid: str = "new") -> bool:
    """Return whether the allocations match the selection."""
    allocations = json.loads(selection.allocation_request)["allocations"]
    resources = {provider: part["resources"] for provider, part in allocations.items()}
    return cloud.held(instance_uuid(uuid)) == resources


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_devices_are_claimed_as_they_are_mapped(make: Any, policy: str) -> None:
    cloud = make("h1", "h2")
    spec_obj = devices(2, extra_specs={"group_policy": policy})
    [chosen] = cloud.select(spec_obj)
    name, mapped = chosen.service_host, mappings(chosen)
    assert agrees(cloud, chosen)
    assigned = [mapped[f"{REQUEST}-{i}"] for i in (0, 1)]
    if policy == "isolate":
        assert sorted(assigned) == sorted([[pf(name, 0)], [pf(name, 1)]])
    providers = [provider for [provider] in assigned]
    assert cloud.free(name) == {
        pf(name, i): 2 - providers.count(pf(name, i))
        for i in (0, 1)
        if providers.count(pf(name, i)) < 2
    }
    by_group = {g.requester_id: g.provider_uuids for g in spec_obj.requested_resources}
    assert by_group == {f"{REQUEST}-{i}": assigned[i] for i in (0, 1)}


def test_same_subtree_keeps_a_device_near_to_its_cache(make: Any) -> None:
    cloud = make("h1")
    near = RequestLevelParams(same_subtree=[["_cache", f"{REQUEST}-0"]])
    spec_obj = devices(
        1,
        groups=[group("_cache", {"CUSTOM_CACHE_WAYS": 2})],
        request_level_params=near,
        extra_specs={"group_policy": "none"},
    )
    [chosen] = cloud.select(spec_obj)
    assert agrees(cloud, chosen)
    number = [pf("h1", i) for i in (0, 1)].index(mappings(chosen)[f"{REQUEST}-0"][0])
    assert mappings(chosen)["_cache"] == [numa("h1", number)]


def test_vgpu_is_claimed_under_the_gpu(make: Any) -> None:
    cloud = make("h1", "h2")
    [chosen] = cloud.select(spec(extra_specs={"resources:VGPU": "1"}))
    assert agrees(cloud, chosen)
    held = cloud.held(instance_uuid("new"))
    assert held[gpu(chosen.service_host)] == {"VGPU": 1}
    other = ({"h1", "h2"} - {chosen.service_host}).pop()
    [next_] = cloud.select(
        spec(extra_specs={"resources:VGPU": "1"}), instance_uuid("2nd")
    )
    assert next_.service_host == other
    with pytest.raises(NoValidHost):
        cloud.select(spec(extra_specs={"resources:VGPU": "1"}), instance_uuid("3rd"))


@pytest.mark.parametrize("full", [0, 1])
def test_only_candidates_near_to_the_guest_are_claimed(make: Any, full: int) -> None:
    cpus = set(range(4 * full, 4 * full + 4))
    cloud = make("h1", pinned={full: cpus})
    spec_obj = devices(1, "required", numa_topology=guest_topology(guest_cell()))
    [chosen] = cloud.select(spec_obj)
    free = 1 - full
    assert mappings(chosen)[f"{REQUEST}-0"] == [pf("h1", free)]
    assert agrees(cloud, chosen)
    assert cloud.free("h1") == {pf("h1", full): 2, pf("h1", free): 1}
    assert cloud.pinned("h1")[full] == cpus
    assert len(cloud.pinned("h1")[free]) == 2
    limits = chosen.limits.numa_topology
    assert (limits.cpu_allocation_ratio, limits.ram_allocation_ratio) == (1.0, 1.0)


def test_host_is_rejected_where_no_candidate_is_near(make: Any) -> None:
    cloud = make("h1", pinned={0: {0, 1, 2}, 1: {4, 5, 6}})
    spec_obj = devices(1, "required", numa_topology=guest_topology(guest_cell()))
    with pytest.raises(NoValidHost):
        cloud.select(spec_obj)
    assert cloud.held(instance_uuid("new")) == {}


def test_instances_of_a_request_count_each_others_claims(make: Any) -> None:
    cloud = make("h1", n_vfs=2)
    names = [f"i{n}" for n in range(4)]
    spec_obj = devices(
        1, "required", numa_topology=guest_topology(guest_cell()), num_instances=4
    )
    chosen = cloud.select(spec_obj, *map(instance_uuid, names))
    assert all(map(agrees, [cloud] * 4, chosen, names))
    used = [mappings(each)[f"{REQUEST}-0"][0] for each in chosen]
    assert [used.count(pf("h1", i)) for i in (0, 1)] == [2, 2]
    assert cloud.free("h1") == {}
    assert cloud.pinned("h1") == [{0, 1, 2, 3}, {4, 5, 6, 7}]
    with pytest.raises(NoValidHost):
        cloud.select(spec_obj, instance_uuid("one more"))


@pytest.mark.parametrize("rushed", [0, 1])
def test_where_a_candidate_is_refused_the_next_of_the_host_is_claimed(
    make: Any, rushed: int
) -> None:
    cloud = make("h1", n_vfs=1)

    def rush() -> None:
        # Allocate the device of one candidate between the query and the claim.
        wanted = request_of(pf("h1", rushed), **{VF: 1})
        answer = claim_one(cloud.placement, instance_uuid("rival"), wanted)
        assert answer.result is ClaimResult.CLAIMED, answer

    cloud.adapter.before_claim = rush
    [chosen] = cloud.select(devices(1))
    assert mappings(chosen)[f"{REQUEST}-0"] == [pf("h1", 1 - rushed)]
    assert agrees(cloud, chosen)
    [decision] = cloud.scheduler.decisions.newest()
    assert {attempt.hosts for attempt in decision.claims} == {("h1",)}
