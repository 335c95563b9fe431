# SPDX-License-Identifier: Apache-2.0
"""A host passes if every cell of the guest has a cell of its own there."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters.numa_topology import NUMATopologyFilter
from moorage.objects import NetworkMetadata, RequestSpec
from moorage.scheduler.hosts import HostBatch, HostPools, HostRecord, HostTopology
from moorage.testing.builders import (
    guest_cell,
    guest_topology,
    numa_cell,
    numa_topology,
    pages,
    pci_pool,
    pci_pools,
    pci_request,
    pci_requests,
)

from ..conftest import batch, host, image, spec

PINNED = guest_topology(guest_cell(0), guest_cell(1))


def two_cells(**changes: Any) -> HostTopology:
    """Two cells of 4 CPUs each; the second is changed."""
    return HostTopology.read(numa_topology(numa_cell(0), numa_cell(1, **changes)))


def passing(
    conf: cfg.ConfigOpts, hosts: HostBatch, spec_obj: RequestSpec
) -> list[bool]:
    """Return the column form's result, after comparing it with the per-host form."""
    filter_ = NUMATopologyFilter(conf).prepare(spec_obj)
    answer: list[bool] = filter_.passing(hosts, spec_obj).tolist()
    assert [filter_.host_passes(each, spec_obj) for each in hosts] == answer
    return answer


def test_guest_without_cells_fits_anywhere(conf: cfg.ConfigOpts) -> None:
    hosts = batch(host(host="a"), host(host="b", numa_topology=two_cells()))
    assert passing(conf, hosts, spec()) == [True, True]


def test_guest_with_cells_needs_a_host_with_cells(conf: cfg.ConfigOpts) -> None:
    hosts = batch(
        host(host="a"),
        host(host="b", numa_topology=two_cells()),
        host(host="c", numa_topology=HostTopology.read(numa_topology(numa_cell()))),
        host(host="d", numa_topology=two_cells(pinned_cpus={4, 5, 6})),
    )
    assert passing(conf, hosts, spec(numa_topology=PINNED)) == [
        False, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("by_image", [False, True])
def test_required_threads_need_cores_with_threads(
    conf: cfg.ConfigOpts, by_image: bool
) -> None:
    siblings = [{4, 5}, {6, 7}]
    hosts = batch(
        host(host="plain"),
        host(host="threads", numa_topology=two_cells(siblings=siblings)),
        host(host="cores", numa_topology=two_cells()),
    )
    names = {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"}
    spec_obj = spec(extra_specs=names)
    if by_image:
        spec_obj = spec(
            image=image(hw_cpu_policy="dedicated", hw_cpu_thread_policy="require")
        )
    assert passing(conf, hosts, spec_obj) == [True, True, False]


def test_floating_guest_is_limited_by_each_hosts_ratios(conf: cfg.ConfigOpts) -> None:
    used = HostTopology.read(numa_topology(numa_cell(cpu_usage=4)))
    hosts = batch(
        host(host="a", numa_topology=used, cpu_allocation_ratio=1.0),
        host(host="b", numa_topology=used, cpu_allocation_ratio=2.0),
    )
    cell = guest_cell(0, cpuset={0, 1}, pcpuset=set(), cpu_policy="shared")
    spec_obj = spec(numa_topology=guest_topology(cell))
    assert passing(conf, hosts, spec_obj) == [False, True]


@pytest.mark.parametrize(
    ("physnets", "tunneled", "expected"),
    [
        pytest.param(set(), False, True, id="none"),
        pytest.param({"near"}, False, True, id="declared by both"),
        pytest.param({"far"}, False, False, id="declared by the full cell only"),
        pytest.param({"elsewhere"}, False, True, id="declared by none"),
        pytest.param(set(), True, False, id="tunnels of the full cell"),
    ],
)
def test_guest_is_near_to_its_networks(
    conf: cfg.ConfigOpts, physnets: set[str], tunneled: bool, expected: bool
) -> None:
    near = NetworkMetadata(physnets={"near"}, tunneled=False)
    far = NetworkMetadata(physnets={"near", "far"}, tunneled=True)
    cells = numa_topology(
        numa_cell(0, network_metadata=near),
        numa_cell(1, network_metadata=far, pinned_cpus={4, 5, 6, 7}),
    )
    hosts = batch(host(numa_topology=HostTopology.read(cells)))
    spec_obj = spec(
        numa_topology=guest_topology(guest_cell()),
        network_metadata=NetworkMetadata(physnets=physnets, tunneled=tunneled),
    )
    assert passing(conf, hosts, spec_obj) == [expected]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("required", [True, False, False, False]),
        ("legacy", [True, True, False, False]),
        ("preferred", [True, True, True, True]),
        ("socket", [True, False, True, False]),
    ],
)
def test_guest_is_near_to_its_devices(
    conf: cfg.ConfigOpts, policy: str, expected: list[bool]
) -> None:
    # The guest fits the first of four cells only; two cells are a socket.
    cells = numa_topology(
        *(numa_cell(i, socket=i // 2, pinned_cpus=set(range(4, 16))) for i in range(4))
    )
    hosts = batch(
        *(
            host(
                host=f"node {node}",
                numa_topology=HostTopology.read(cells),
                pci_stats=HostPools.read(pci_pools(pci_pool(numa_node=node))),
            )
            for node in (0, None, 1, 2)
        )
    )
    spec_obj = spec(
        numa_topology=guest_topology(guest_cell()),
        pci_requests=pci_requests(pci_request(numa_policy=policy)),
    )
    assert passing(conf, hosts, spec_obj) == expected


def test_guest_of_many_cells_is_tried_host_by_host(conf: cfg.ConfigOpts) -> None:
    # 4 of 9 cells are 126 choices, more than are tried for all hosts at once.
    def topology(n_near: int) -> HostTopology:
        near = NetworkMetadata(physnets={"net"}, tunneled=False)
        return HostTopology.read(
            numa_topology(
                *(
                    numa_cell(i, network_metadata=near)
                    if i < n_near
                    else numa_cell(i, pinned_cpus=set(range(36)) if i < 5 else set())
                    for i in range(9)
                )
            )
        )

    full = HostTopology.read(
        numa_topology(
            *(
                numa_cell(
                    i,
                    network_metadata=NetworkMetadata(
                        physnets={"net"} if i == 0 else set(), tunneled=False
                    ),
                    pinned_cpus=set(range(4)) if i == 0 else set(),
                )
                for i in range(9)
            )
        )
    )
    hosts = batch(
        host(host="near", numa_topology=topology(1)),
        host(host="undeclared", numa_topology=topology(0)),
        host(host="far", numa_topology=full),
    )
    spec_obj = spec(
        numa_topology=guest_topology(*(guest_cell(i) for i in range(4))),
        network_metadata=NetworkMetadata(physnets={"net"}, tunneled=False),
    )
    assert passing(conf, hosts, spec_obj) == [True, True, False]


def _near_to_devices(n_cells: int, node: int, **changes: Any) -> HostRecord:
    """A host of which each cell has room, and one has a device."""
    cells = numa_topology(*(numa_cell(i, **changes) for i in range(n_cells)))
    return host(
        host=f"node {node}",
        numa_topology=HostTopology.read(cells),
        pci_stats=HostPools.read(pci_pools(pci_pool(numa_node=node))),
    )


def _with_device(n_cells: int, policy: str = "required") -> RequestSpec:
    return spec(
        numa_topology=guest_topology(*(guest_cell(i) for i in range(n_cells))),
        pci_requests=pci_requests(pci_request(numa_policy=policy)),
    )


def test_any_cell_of_the_largest_host_can_be_near_to_a_device(
    conf: cfg.ConfigOpts,
) -> None:
    hosts = batch(*(_near_to_devices(64, node) for node in (0, 63, 64)))
    assert passing(conf, hosts, _with_device(1)) == [True, True, False]


def test_many_hosts_of_many_cells_are_tried_at_once(conf: cfg.ConfigOpts) -> None:
    # 2 of 13 cells are 78 choices, fewer than hosts.
    hosts = batch(*(_near_to_devices(13, node) for node in range(15)), *_ROOMLESS)
    spec_obj = _with_device(2)
    assert passing(conf, hosts, spec_obj) == [True] * 13 + [False] * (
        2 + len(_ROOMLESS)
    )


_ROOMLESS = tuple(
    host(
        host=f"full {number}",
        numa_topology=HostTopology.read(
            numa_topology(
                *(numa_cell(i, cpu_usage=number) for i in range(12)),
                numa_cell(12, pinned_cpus=set(range(48, 52))),
            )
        ),
        pci_stats=HostPools.read(pci_pools(pci_pool(numa_node=12))),
    )
    for number in range(70)
)


def test_socket_of_number_minus_one_is_a_socket(conf: cfg.ConfigOpts) -> None:
    full = numa_cell(1, socket=-1, pinned_cpus=set(range(4, 8)))
    cells = numa_topology(numa_cell(0, socket=-1), full)
    hosts = batch(
        host(
            numa_topology=HostTopology.read(cells),
            pci_stats=HostPools.read(pci_pools(pci_pool(numa_node=1))),
        )
    )
    assert passing(conf, hosts, _with_device(1, "socket")) == [True]


def test_packing_does_not_change_which_hosts_pass(conf: cfg.ConfigOpts) -> None:
    conf.set_override("packing_host_numa_cells_allocation_strategy", True, "compute")
    hosts = batch(host(numa_topology=two_cells(pinned_cpus={4, 5})))
    assert passing(conf, hosts, spec(numa_topology=PINNED)) == [True]


def test_limits_are_the_hosts_ratios_and_the_requests_networks(
    conf: cfg.ConfigOpts,
) -> None:
    networks = NetworkMetadata(physnets={"net"}, tunneled=True)
    spec_obj = spec(numa_topology=PINNED, network_metadata=networks)
    [state] = batch(
        host(
            numa_topology=two_cells(),
            cpu_allocation_ratio=4.0,
            ram_allocation_ratio=1.5,
        )
    )
    limits: Any = (
        NUMATopologyFilter(conf).prepare(spec_obj).selection_limits(state, spec_obj)
    )
    serialized = limits["numa_topology"]
    assert (serialized.cpu_allocation_ratio, serialized.ram_allocation_ratio) == (
        4.0,
        1.5,
    )
    assert serialized.network_metadata.physnets == {"net"}
    plain = NUMATopologyFilter(conf).prepare(spec())
    assert plain.selection_limits(state, spec()) == {}


def test_rejection_names_required_and_available_cells(conf: cfg.ConfigOpts) -> None:
    spec_obj = spec(numa_topology=guest_topology(guest_cell(pagesize=2048)))
    cells = numa_topology(
        numa_cell(pinned_cpus={0}, mempages=[pages(2048, 100, used=3)])
    )
    [state] = batch(host(numa_topology=HostTopology.read(cells)))
    filter_ = NUMATopologyFilter(conf).prepare(spec_obj)
    rejection = filter_.explain_rejection(state, spec_obj)
    assert rejection is not None
    assert rejection.attribute == "numa_topology"
    assert "2 pinned" in str(rejection.required)
    assert "2048 KiB" in str(rejection.required)
    assert "3 of 4 CPUs for pinning free" in str(rejection.available)
    assert "97 of 100 pages of 2048 KiB free" in str(rejection.available)
