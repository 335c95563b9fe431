# SPDX-License-Identifier: Apache-2.0
"""Random NUMA cells and PCI devices of requests that nearly fit a host."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

from moorage.objects import (
    InstanceNUMACell,
    InstanceNUMATopology,
    InstancePCIRequest,
    NUMACell,
    NUMATopology,
    PciDevicePool,
)
from moorage.testing import builders

from .hardware import PCI_KINDS, PCI_PROVIDERS

_KIB = 1024

#: The size of a guest cell: pinned CPUs, floating CPUs, MiB.
Sizes = tuple[int, int, int]

_PINNED = ("dedicated", "mixed")

_POLICIES = (*["dedicated"] * 4, "mixed", "mixed", "shared", None)
_THREADS = (None, None, "prefer", "isolate", "require")
_EMULATOR = (None, None, None, "share", "isolate")

#: Unset, any, large, small, sizes that hosts have, one that no host has; KiB.
_PAGE_SIZES = (None, None, None, None, None, -3, -3, -2, -1, 4, 2048, 2048, 1 << 20, 64)

_NUMA_POLICIES = (None, "legacy", "required", "required", "preferred", "socket")

#: Guest cells that fit often.
_SMALL: Mapping[str | None, Sizes] = {
    "dedicated": (1, 0, 256),
    "mixed": (1, 1, 256),
    "shared": (0, 1, 256),
    None: (0, 1, 256),
}

#: The number of requested CPUs beyond the free ones, mostly 0 or less.
_EXCESS = (-6, -5, -4, -3, -2, -2, -1, -1, 0, 0, 1)


def random_guest(rng: random.Random, host: NUMATopology) -> InstanceNUMATopology:
    """Return 1 to 4 guest cells, equal or not, that nearly fit cells of a host.

    Few have a cell more than the host. CPUs, pages and memory are near the free
    amounts; all cells have the same CPU policy, as nova's API ensures.
    """
    near = rng.sample(host.cells, len(host.cells))
    most = min(4, len(near) + (rng.random() < 0.1))
    n_cells = min(most, rng.choice([1, 1, 1, 1, 2, 2, 2, 3, 4, 4]))
    policy, page_size = _policy(rng, near[0]), rng.choice(_PAGE_SIZES)
    sizes = [
        _sizes(rng, near[number % len(near)], policy, page_size, n_cells)
        for number in range(n_cells)
    ]
    if rng.random() < 0.5:
        sizes = [sizes[0]] * n_cells
    cells = _cells(sizes)
    threads = rng.choice(_THREADS) if policy in _PINNED else None
    for cell in cells:
        cell.cpu_policy, cell.pagesize = policy, page_size
        cell.cpu_thread_policy = threads
    return builders.guest_topology(
        *cells, emulator_threads_policy=rng.choice(_EMULATOR)
    )


def _policy(rng: random.Random, near: NUMACell) -> str | None:
    """Return a CPU policy, mostly one for which a host cell has CPUs."""
    policy = rng.choice(_POLICIES)
    if rng.random() < 0.8 and not near.pcpuset:
        return rng.choice(["shared", None])
    if rng.random() < 0.8 and not near.cpuset:
        return "dedicated"
    return policy


def _cells(sizes: Sequence[Sizes]) -> list[InstanceNUMACell]:
    """Return guest cells with consecutive CPU numbers."""
    numbers, cells = itertools.count(), list[InstanceNUMACell]()
    for n_pinned, n_floating, memory_mb in sizes:
        cells.append(
            builders.guest_cell(
                len(cells),
                pcpuset=set(itertools.islice(numbers, n_pinned)),
                cpuset=set(itertools.islice(numbers, n_floating)),
                memory=memory_mb,
            )
        )
    return cells


def _sizes(
    rng: random.Random,
    near: NUMACell,
    policy: str | None,
    page_size: int | None,
    n_cells: int,
) -> Sizes:
    # If several cells must all fit, each must be easier to fit.
    if n_cells > 1 and rng.random() < 0.7:
        return _SMALL[policy]
    n_pinned = n_floating = 0
    if policy in _PINNED:
        n_pinned = max(1, near.avail_pcpus + rng.choice(_EXCESS))
    if policy == "mixed" and rng.random() < 0.1:
        n_pinned = 0  # one cell of a mixed guest may have floating CPUs only
    if policy != "dedicated":
        n_floating = max(1, min(3, len(near.cpuset) + rng.choice(_EXCESS)))
    return n_pinned, n_floating, _memory_mb(rng, near, page_size)


def _memory_mb(rng: random.Random, near: NUMACell, page_size: int | None) -> int:
    least = max(1, (page_size or 0) // _KIB)
    if rng.random() < 0.7:
        return least * max(1, rng.choice([128, 256, 512, 1024]) // least)
    free = [pages.free_kb // _KIB for pages in near.mempages if pages.free_kb > 0]
    sizes = [pages.size_kb // _KIB for pages in near.mempages]
    near_mb = [near.avail_memory, near.memory, *sizes, *free, *free]
    return int(max(1, rng.choice([*near_mb, *(mb - least for mb in free)])))


def random_pci_requests(
    rng: random.Random, near: Sequence[PciDevicePool]
) -> list[InstancePCIRequest]:
    """Return 1 to 3 requests for devices of these pools, few for others.

    For ports and aliases, with every policy; the specs have few or many keys.
    """
    kinds = [_kind(pool) for pool in near]
    if not kinds or rng.random() < 0.2:
        kinds = [_kind(builders.pci_pool(1, **kind)) for kind in PCI_KINDS]
    n_requests = rng.choice([1, 1, 1, 1, 2, 3])
    return [_request(rng, kinds, number) for number in range(n_requests)]


def _kind(pool: PciDevicePool) -> dict[str, str]:
    flat = pool.to_dict()
    return {k: v for k, v in flat.items() if k not in ("count", "numa_node", "rp_uuid")}


def _request(
    rng: random.Random, kinds: Sequence[dict[str, str]], number: int
) -> InstancePCIRequest:
    specs = [_spec(rng, rng.choice(kinds)) for _ in range(rng.choice([1, 1, 1, 2]))]
    if rng.random() < 0.05:
        specs[0]["rp_uuids"] = ",".join(PCI_PROVIDERS[:2])
    return builders.pci_request(
        rng.choice([1, 1, 1, 1, 2, 3]),
        alias_name=rng.choice([None, "alias"]),
        numa_policy=rng.choice(_NUMA_POLICIES),
        request_id=builders.instance_uuid(f"PCI request {number}"),
        spec=specs,
    )


def _spec(rng: random.Random, kind: dict[str, str]) -> dict[str, str]:
    """Return a spec of a kind: its IDs, and some of the other keys."""
    spec = {
        key: rng.choice([value, value.upper()])
        for key, value in kind.items()
        if key.endswith("_id") or rng.random() < 0.5
    }
    if "dev_type" in spec:
        # The only case-sensitive tag, if special devices are requested.
        spec["dev_type"] = kind["dev_type"]
    if rng.random() < 0.1:
        spec["resource_class"], spec["traits"] = "CUSTOM_NIC", ""
    return spec
