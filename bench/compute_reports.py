# SPDX-License-Identifier: Apache-2.0
"""Reports of nova computes on NUMA cells and PCI devices, as JSON texts.

One of five hosts is in one of four states, as empty hosts are; all others differ in
pinned CPUs, used pages and free virtual functions.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

#: Vendor and product of the two kinds of virtual functions.
PRODUCTS = (("8086", "154c"), ("15b3", "1018"))
PHYSNETS = ("physnet0", "physnet1")

_N_CELLS = 2
_N_STATES = 4  # that several hosts share
_SHARE = 5  # one host of five is in one of them
_CORES_PER_CELL = 16
_SIBLING = _N_CELLS * _CORES_PER_CELL  # a core's second thread, from its first
_KIB_PER_MIB = 1024
_CELL_MIB = 128 * 1024
_N_2M_PAGES = 96 * 512
_N_1G_PAGES = 16
_N_VFS = 16
_VERSIONS = MappingProxyType(
    {
        "NUMATopology": "1.2",
        "NUMACell": "1.5",
        "NUMAPagesTopology": "1.1",
        "NetworkMetadata": "1.0",
        "PciDevicePoolList": "1.1",
        "PciDevicePool": "1.1",
    }
)


@dataclass(frozen=True, slots=True)
class PciPoolRow:
    """A pool of virtual functions of one physical function."""

    vendor_id: str
    product_id: str
    numa_node: int
    count: int
    provider_uuid: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Report:
    """The two texts of one compute node; `pools` is the content of `pci_stats`."""

    numa_topology: str
    pci_stats: str | None
    pools: tuple[PciPoolRow, ...]


def report(number: int, *, has_pools: bool, turn: int = 0) -> Report:
    """Return the report of host `number`; it differs in each turn."""
    is_shared = number % _SHARE == 0
    state = number // _SHARE % _N_STATES if is_shared else number
    rng = np.random.default_rng((int(is_shared), state, turn))
    cells = [_cell(rng, each) for each in range(_N_CELLS)]
    pools = _pools(rng, number) if has_pools else ()
    return Report(
        json.dumps(_object("NUMATopology", cells=cells)),
        _pools_text(pools) if has_pools else None,
        pools,
    )


def _object(name: str, **data: object) -> dict[str, Any]:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": _VERSIONS[name],
        "nova_object.data": data,
        "nova_object.changes": sorted(data),
    }


def _cell(rng: np.random.Generator, cell: int) -> dict[str, Any]:
    """Return a cell with one core for shared CPUs, and the others dedicated."""
    first = cell * _CORES_PER_CELL
    cores = [[core, core + _SIBLING] for core in range(first, first + _CORES_PER_CELL)]
    shared, *dedicated = cores
    pinned = rng.permutation(len(dedicated))[: rng.integers(len(dedicated) + 1)]
    n_used = int(rng.integers(_N_2M_PAGES + 1))
    return _object(
        "NUMACell",
        id=cell,
        cpuset=shared,
        pcpuset=sorted(cpu for core in dedicated for cpu in core),
        memory=_CELL_MIB,
        cpu_usage=int(rng.integers(8)),
        memory_usage=2 * n_used,
        pinned_cpus=sorted(cpu for i in pinned for cpu in dedicated[i]),
        siblings=cores,
        mempages=_pages(n_used),
        network_metadata=_object("NetworkMetadata", physnets=[], tunneled=False),
        socket=cell,
    )


def _pages(n_used: int) -> list[dict[str, Any]]:
    small_mib = _CELL_MIB - 2 * _N_2M_PAGES - 1024 * _N_1G_PAGES
    pages = (
        (4, small_mib * _KIB_PER_MIB // 4, 0),
        (2048, _N_2M_PAGES, n_used),
        (1048576, _N_1G_PAGES, 0),
    )
    return [
        _object("NUMAPagesTopology", size_kb=size, total=total, used=used, reserved=0)
        for size, total, used in pages
    ]


def _pools(rng: np.random.Generator, number: int) -> tuple[PciPoolRow, ...]:
    """Return eight pools: one for each product, cell and network."""
    kinds = [
        (vendor, product, cell, physnet)
        for vendor, product in PRODUCTS
        for cell in range(_N_CELLS)
        for physnet in PHYSNETS
    ]
    counts = rng.integers(1, _N_VFS + 1, size=len(kinds)).tolist()
    trusted = rng.integers(2, size=len(kinds)).tolist()
    return tuple(
        PciPoolRow(
            vendor, product, cell, counts[i], _provider(number, i),
            _tags(i, physnet, is_trusted=bool(trusted[i])),
        )
        for i, (vendor, product, cell, physnet) in enumerate(kinds)
    )  # fmt: skip


def _provider(number: int, index: int) -> str:
    return str(uuid.UUID(int=(number + 1 << 16) + index, version=4))


def _tags(index: int, physnet: str, *, is_trusted: bool) -> dict[str, str]:
    return {
        "dev_type": "type-VF",
        "physical_network": physnet,
        "trusted": str(is_trusted).lower(),
        "remote_managed": "false",
        "address": f"0000:{0x3B + index:02x}:00.0",
        "parent_ifname": f"ens{index}f0",
    }


def _pools_text(pools: Sequence[PciPoolRow]) -> str:
    objects = [
        _object(
            "PciDevicePool",
            vendor_id=pool.vendor_id,
            product_id=pool.product_id,
            numa_node=pool.numa_node,
            count=pool.count,
            tags={**pool.tags, "rp_uuid": pool.provider_uuid},
        )
        for pool in pools
    ]
    return json.dumps(_object("PciDevicePoolList", objects=objects))
