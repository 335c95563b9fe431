# SPDX-License-Identifier: Apache-2.0
"""Random NUMA topologies and PCI pools, as computes report them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.objects import (
    NetworkMetadata,
    NUMACell,
    NUMAPagesTopology,
    NUMATopology,
    PciDevicePool,
)
from moorage.testing import builders

_KIB = 1024

#: The IDs and tags that pools of one kind of device share.
PCI_KINDS: Sequence[Mapping[str, str]] = (
    {"product_id": "1520", "dev_type": "type-PCI"},
    {"product_id": "10fb", "dev_type": "type-PF", "physical_network": "net1"},
    {"product_id": "10fb", "dev_type": "type-VF", "physical_network": "net1"},
    {
        "product_id": "10fb",
        "dev_type": "type-VF",
        "physical_network": "net2",
        "trusted": "true",
        "remote_managed": "false",
    },
    {"product_id": "10FB", "dev_type": "type-VF", "remote_managed": "True"},
    {"vendor_id": "15b3", "product_id": "101e", "dev_type": "vdpa"},
    {"vendor_id": "10de", "product_id": "1db4", "live_migratable": "true"},
    {"vendor_id": "10de", "product_id": "1db4", "live_migratable": "false"},
)

#: Providers of devices, which pools, specs and candidates may name.
PCI_PROVIDERS = tuple(builders.node_uuid(f"provider {i}") for i in range(8))

#: A cell that no host has: drivers report it for devices of cells that nova omitted.
FOREIGN_NODE = 9


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """The hardware that some hosts share.

    Attributes
    ----------
    n_cores, n_threads : int
        Cores of a cell; threads of a core.
    memory_mb : int
        Of a cell; pages of each size get the same share of it.
    n_shared : int or None
        CPUs of a cell that are only for floating guests; None: all are for both, as
        with an old ``vcpu_pin_set``.
    are_adjacent : bool
        Whether a core's threads have neighbouring numbers, as on few machines.
    """

    n_cells: int
    n_cores: int
    n_threads: int
    memory_mb: int
    page_sizes_kb: tuple[int, ...]
    n_shared: int | None
    are_adjacent: bool

    def cores(self, cell: int) -> list[list[int]]:
        """Return the CPUs of each core of a cell."""
        first, n_all = cell * self.n_cores, self.n_cells * self.n_cores
        return [
            [
                core * self.n_threads + t if self.are_adjacent else core + t * n_all
                for t in range(self.n_threads)
            ]
            for core in range(first, first + self.n_cores)
        ]


def random_model(rng: random.Random) -> Model:
    """Return a model of 1 to 6 cells of at most 16 CPUs."""
    return Model(
        n_cells=rng.choice([1, 2, 2, 2, 3, 4, 4, 4, 6]),
        n_cores=rng.choice([2, 3, 4]),
        n_threads=rng.choice([1, 2, 2, 2, 4]),
        memory_mb=rng.choice([2048, 4096]),
        page_sizes_kb=rng.choice(
            [(), (4,), (4, 2048), (4, 2048), (4, 2048, 1 << 20), (2048, 1 << 20)]
        ),
        n_shared=rng.choice([None, None, None, 0, 0, 1, 2, 3]),
        are_adjacent=rng.random() < 0.5,
    )


def random_topology(rng: random.Random, model: Model) -> NUMATopology:
    """Return a host's partly used topology, with or without sockets and networks."""
    per_socket = rng.choice([1, 2, None])
    has_networks, has_odd_socket = rng.random() < 0.5, rng.random() < 0.05
    cells = [_cell(rng, model, number) for number in range(model.n_cells)]
    for cell in cells:
        has_socket = per_socket and not (has_odd_socket and cell.id == 0)
        cell.socket = cell.id // per_socket if has_socket else None
        if has_networks and rng.random() < 0.4:
            cell.network_metadata = NetworkMetadata(
                physnets={net for net in ("net1", "net2") if rng.random() < 0.5},
                tunneled=rng.random() < 0.5,
            )
    return builders.numa_topology(*cells)


def _cell(rng: random.Random, model: Model, number: int) -> NUMACell:
    cores = model.cores(number)
    cpus = [cpu for core in cores for cpu in core]
    shared, pinnable = cpus[: model.n_shared], cpus[model.n_shared or 0 :]
    share_pinned = rng.choice([0, 0, 0.1, 0.3, 0.6, 1])
    return builders.numa_cell(
        number,
        cpuset=set(shared),
        pcpuset=set(pinnable),
        siblings=[set(core) for core in cores],
        pinned_cpus={cpu for cpu in pinnable if rng.random() < share_pinned},
        cpu_usage=rng.choice([0, 0, 1, 2]) * rng.randint(0, len(shared)),
        memory=model.memory_mb,
        memory_usage=model.memory_mb * _quarters(rng) // 4,
        mempages=[_pages(rng, model, size_kb) for size_kb in model.page_sizes_kb],
    )


def _pages(rng: random.Random, model: Model, size_kb: int) -> NUMAPagesTopology:
    total = model.memory_mb * _KIB // len(model.page_sizes_kb) // size_kb
    pages = builders.pages(size_kb, total, used=total * _quarters(rng) // 4)
    pages.reserved = rng.choice([0, 0, 0, total // 8])
    return pages


def _quarters(rng: random.Random) -> int:
    return rng.choice([0, 0, 0, 0, 1, 1, 2, 3, 4])


def random_pools(rng: random.Random, n_cells: int) -> list[PciDevicePool]:
    """Return 0 to 5 pools, some in a cell, some with a provider, few with the same."""
    nodes = [*range(n_cells), *range(n_cells), None, FOREIGN_NODE]
    have_providers, pools = rng.random() < 0.6, list[PciDevicePool]()
    for number in range(rng.randint(0, 5)):
        tags: dict[str, Any] = dict(rng.choice(PCI_KINDS))
        if have_providers and rng.random() < 0.8:
            is_spread = rng.random() < 0.05
            tags["rp_uuid"] = PCI_PROVIDERS[0 if is_spread else number]
        count = rng.choice([0, 1, 1, 2, 3, 4])
        pools.append(builders.pci_pool(count, numa_node=rng.choice(nodes), **tags))
    return pools
