# SPDX-License-Identifier: Apache-2.0
"""Count how many equal guests fit the NUMA cells and PCI devices of each host.

If the number does not depend on which cells and devices the guests take, guests are
counted for all hosts at once. Otherwise guests are placed one by one with `Need.take`,
once for each distinct state of a host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..hosts import HostBatch, Limits
from ..hosts.fitting.devices import pool_rows
from ..hosts.fitting.need import Need
from ..hosts.numa import CellArrays, CellRows
from ..hosts.pci import NO_NODE, PoolRows
from ..request.numa import (
    ANY_PAGES,
    ISOLATE,
    LARGE_PAGES,
    REQUIRE,
    SMALL_PAGES,
    GuestCell,
)
from ..request.pci import LEGACY, REQUIRED

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

#: The maximum number of guests that are placed one by one for one flavor.
MAX_PLACED: Final = 4000

_MANY: Final = 1 << 40
_KIB: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCounts:
    """The numbers of guests by host.

    Attributes
    ----------
    n_guests : ndarray of int64, shape (n_hosts,)
        An upper bound, at most the `limits` of `count_guests`.
    is_exact : ndarray of bool, shape (n_hosts,)
        Whether exactly that many guests fit.
    """

    n_guests: Int64s
    is_exact: Mask


def count_guests(
    hosts: HostBatch, need: Need, limits: Int64s, *, is_limited: bool
) -> DeviceCounts:
    """Return how many guests fit each host; allocation candidates are ignored.

    Parameters
    ----------
    need : Need
        What each guest needs; the guest has no network.
    limits : ndarray of int64, shape (n_hosts,)
        Counting stops at these numbers.
    is_limited : bool
        Whether a cell may be overcommitted only up to the host's allocation ratios,
        which have nothing to do with `limits`.
    """
    n_guests = _count_at_once(hosts, need, is_limited=is_limited)
    if n_guests is not None:
        all_exact = np.ones(len(hosts), np.bool_)
        return DeviceCounts(np.minimum(n_guests, limits), all_exact)
    return _place_one_by_one(hosts, need, limits, is_limited=is_limited)


# -- for all hosts at once -------------------------------------------------------------


def _count_at_once(hosts: HostBatch, need: Need, *, is_limited: bool) -> Int64s | None:
    """Return how many guests fit each host.

    None: it depends on which cells and devices the guests take.
    """
    if len(need.requests) > 1:
        return None
    pools = pool_rows(hosts, np.arange(len(hosts))) if need.requests else None
    if need.guest is None:
        return _count_by_devices(pools, need) if pools is not None else None
    [equal_cells, *other_groups] = need.guest.groups
    cell = need.guest.cells[equal_cells[0]]
    if other_groups or need.guest.is_isolated_emulator:
        return None
    if cell.is_pinned and cell.thread_policy in (ISOLATE, REQUIRE):
        return None
    cells = hosts.value_arrays("numa_topology", CellArrays).rows()
    cells = cells.take(hosts.codes("numa_topology"))
    ratios = hosts.cpu_allocation_ratio, hosts.ram_allocation_ratio
    of_cells = _count_in_cells(cells, cell, ratios if is_limited else None)
    if len(equal_cells) > 1:
        return (
            _count_in_all_cells(cells, of_cells, len(equal_cells))
            if pools is None
            else None
        )
    if pools is not None:
        n_near = _count_by_near_devices(cells, pools, need)
        if n_near is None:
            return None
        of_cells = np.minimum(of_cells, n_near)
    total: Int64s = of_cells.sum(axis=1)
    return total


def _count_in_all_cells(
    cells: CellRows, of_cells: Int64s, n_cells: int
) -> Int64s | None:
    """Return how many guests fit each host if each guest takes all cells of its host.

    None: a host has more cells than a guest.
    """
    if ((cells.n_cells != n_cells) & (cells.n_cells > n_cells)).any():
        return None
    is_there = np.arange(of_cells.shape[1]) < cells.n_cells[:, None]
    minimum: Int64s = np.where(is_there, of_cells, _MANY).min(axis=1, initial=_MANY)
    return np.where(cells.n_cells == n_cells, minimum, 0)


def _count_in_cells(
    cells: CellRows,
    guest: GuestCell,
    ratios: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None,
) -> Int64s:
    """Return how many guest cells fit each host cell, shape (n_hosts, n_cells)."""
    counts = np.full(cells.shape, _MANY, np.int64)
    counts[np.arange(cells.shape[1]) >= cells.n_cells[:, None]] = 0

    def limit(free: npt.NDArray[np.float64] | Int64s, amount: int) -> None:
        fits = np.floor_divide(free, amount).astype(np.int64) if amount else counts
        np.minimum(counts, np.maximum(fits, 0), out=counts)

    if guest.is_floating:
        counts[cells["n_cpus"] < guest.n_shared] = 0
        if ratios is not None:
            cpu_ratio, ram_ratio = (ratio[:, None] for ratio in ratios)
            limit(cells["n_cpus"] * cpu_ratio - cells["cpu_usage"], guest.n_shared)
            free_mb = cells["memory_mb"] * ram_ratio - cells["memory_usage"]
            limit(free_mb, guest.memory_mb)
    if guest.is_pinned:
        n_pinned = len(guest.pcpus)
        counts[cells["n_pcpus"] < n_pinned] = 0
        limit(np.minimum(cells["n_free_pcpus"], cells["free_threads"]), n_pinned)
    np.minimum(counts, _count_in_memory(cells, guest), out=counts)
    return counts


def _count_in_memory(cells: CellRows, guest: GuestCell) -> Int64s:
    """Return how many guest cells fit the memory of each host cell."""
    sizes, memory_kb = cells["size_kb"], guest.memory_mb * _KIB
    is_whole = (sizes > 0) & (memory_kb % np.maximum(sizes, 1) == 0)
    in_pages = np.where(is_whole, cells["free_kb"] // memory_kb, 0)
    in_pages = np.maximum(in_pages, 0)
    if guest.page_size is not None:
        match guest.page_size:
            case size if size == SMALL_PAGES:
                in_pages = in_pages[:, :, :1]
            case size if size == LARGE_PAGES:
                in_pages = in_pages[:, :, 1:]
            case size if size != ANY_PAGES:
                in_pages = in_pages * (sizes == size)
        # Guests take the largest pages first, and then the next smaller ones.
        total: Int64s = in_pages.sum(axis=2)
        return total
    has_pages = sizes[:, :, 0] > 0
    if guest.is_pinned:
        n_in_free_memory = np.maximum(cells["free_memory_mb"] // guest.memory_mb, 0)
        return np.where(has_pages, in_pages[:, :, 0], n_in_free_memory)
    # Guests without pinning share memory: it has to fit, but is not consumed.
    fits = np.where(
        has_pages,
        is_whole[:, :, 0] & (cells["total_kb"][:, :, 0] >= memory_kb),
        cells["memory_mb"] >= guest.memory_mb,
    )
    return np.where(fits, _MANY, 0)


def _count_by_devices(pools: PoolRows, need: Need) -> Int64s | None:
    [request] = need.requests
    if not request.count:
        return None
    _, usable = pools.match(request)
    free: Int64s = (pools.count * usable).sum(axis=1)
    return free // request.count


def _count_by_near_devices(
    cells: CellRows, pools: PoolRows, need: Need
) -> Int64s | None:
    """Return for how many guests the devices near to each host cell suffice.

    None: a guest may also take devices that are near to other cells.
    """
    [request] = need.requests
    _, usable = pools.match(request)
    is_bound = request.numa_policy == REQUIRED or (
        request.numa_policy == LEGACY
        and not (usable & (pools.numa_node == NO_NODE)).any()
    )
    if not is_bound or not request.count:
        return None
    n_near = np.zeros(cells.shape, np.int64)
    for cell in range(cells.shape[1]):
        is_near = usable & (pools.numa_node == cells["id"][:, cell, None])
        n_near[:, cell] = (pools.count * is_near).sum(axis=1)
    return n_near // request.count


# -- one by one ------------------------------------------------------------------------


def _place_one_by_one(
    hosts: HostBatch, need: Need, limits: Int64s, *, is_limited: bool
) -> DeviceCounts:
    n_guests = limits.copy()
    is_exact = np.ones(len(hosts), np.bool_)
    placed_of_state: dict[tuple[object, ...], tuple[int, bool]] = {}
    n_placeable = MAX_PLACED
    keys = zip(
        hosts.codes("numa_topology").tolist(),
        hosts.codes("pci_stats").tolist(),
        hosts.cpu_allocation_ratio.tolist(),
        hosts.ram_allocation_ratio.tolist(),
        strict=True,
    )
    for index, key in enumerate(keys):
        limit = int(limits[index])
        placed = placed_of_state.get(key)
        if placed is None or (not placed[1] and placed[0] < limit):
            if n_placeable <= 0:
                is_exact[index] = limit == 0
                continue
            ratios = Limits(*key[2:]) if is_limited else None
            placed = _place_all(hosts, index, need.within(ratios), limit)
            placed_of_state[key] = placed
            n_placeable -= placed[0] + 1
        n_guests[index] = min(placed[0], limit)
    return DeviceCounts(n_guests, is_exact)


def _place_all(
    hosts: HostBatch, index: int, need: Need, limit: int
) -> tuple[int, bool]:
    """Return how many guests were placed on a host, and whether no more fits."""
    topology = hosts.value("numa_topology", index)
    pools = hosts.value("pci_stats", index)
    for n_placed in range(limit):
        usage = need.take(topology, pools)
        if usage is None or (need.guest is not None and usage.guest is None):
            return n_placed, True
        topology, pools = usage.topology, usage.pools
    return limit, False
