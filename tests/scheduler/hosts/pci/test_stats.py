# SPDX-License-Identifier: Apache-2.0
"""Pools have the methods that filters written for nova call."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import InstanceNUMACell, InstancePCIRequest
from moorage.scheduler.hosts import HostTopology
from moorage.scheduler.hosts.pci import NO_POOLS, PciDeviceStats
from moorage.testing.builders import numa_cell, numa_topology

from .conftest import flat, pools

HOST = pools(flat(2, numa_node=1, rp_uuid="rp-a"))
ID = "9477d46c-6df1-402b-a164-e5d1a21ab489"


def topology(*sockets: int | None) -> HostTopology:
    """Cells 0, 1, … in these sockets."""
    cells = (numa_cell(i, socket=socket) for i, socket in enumerate(sockets))
    return HostTopology.read(numa_topology(*cells))


def pci_request(count: int, **fields: Any) -> InstancePCIRequest:
    plain = {"alias_name": "a", "request_id": ID, "spec": [{"vendor_id": "8086"}]}
    return InstancePCIRequest(**{**plain, "count": count, **fields})


def test_pools_are_flat() -> None:
    stats = PciDeviceStats(HOST, None)
    assert stats.pools == list(stats) == HOST.to_dicts()


def test_what_is_written_to_pools_changes_nothing() -> None:
    stats = PciDeviceStats(HOST, None)
    stats.pools[0]["count"] = 0
    assert list(stats) == HOST.to_dicts()
    assert stats.support_requests([pci_request(2)], None)


def test_stats_are_true_even_without_pools() -> None:
    assert PciDeviceStats(NO_POOLS, None)


@pytest.mark.parametrize(
    ("count", "mapping", "supported"),
    [
        pytest.param(2, None, True, id="enough"),
        pytest.param(3, None, False, id="too few"),
        pytest.param(1, {f"{ID}-0": ["rp-a"]}, True, id="the provider's"),
        pytest.param(1, {f"{ID}-0": ["rp-b"]}, False, id="another provider's"),
    ],
)
def test_requests_are_supported(
    count: int, mapping: dict[str, list[str]] | None, supported: bool
) -> None:
    stats = PciDeviceStats(HOST, None)
    assert stats.support_requests([pci_request(count)], mapping) == supported


@pytest.mark.parametrize(
    ("policy", "cell", "sockets", "supported"),
    [
        pytest.param("required", 1, (0, 0), True, id="near"),
        pytest.param("required", 0, (0, 0), False, id="far"),
        pytest.param("socket", 0, (0, 0), True, id="same socket"),
        pytest.param("socket", 0, (0, 1), False, id="another socket"),
        pytest.param("socket", 0, (0, None), False, id="socket unknown"),
        pytest.param("socket", 0, None, False, id="topology unknown"),
    ],
)
def test_requests_near_to_a_guest_are_supported(
    policy: str, cell: int, sockets: tuple[int | None, ...] | None, supported: bool
) -> None:
    stats = PciDeviceStats(HOST, topology(*sockets) if sockets else None)
    requests = [pci_request(1, numa_policy=policy)]
    cells = [InstanceNUMACell(id=cell)]
    assert stats.support_requests(requests, None, cells) == supported


def test_topology_is_that_of_the_host() -> None:
    topology_ = PciDeviceStats(HOST, topology(0, 1)).numa_topology
    assert topology_ is not None
    assert [(cell.id, cell.socket) for cell in topology_.cells] == [(0, 0), (1, 1)]
    assert PciDeviceStats(HOST, None).numa_topology is None
