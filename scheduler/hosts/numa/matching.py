# SPDX-License-Identifier: Apache-2.0
"""Which cells of many hosts does each cell of a guest fit?

Whether a guest's cell fits a host's cell is decided by counts, such as that of free
CPUs; `pinning` chooses the CPUs afterwards. The rules are those of nova's
``_numa_fit_instance_cell``, except that an attempt does not modify the guest's cell. A
single host is passed as arrays of length 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...request.numa import (
    ANY_PAGES,
    ISOLATE,
    LARGE_PAGES,
    REQUIRE,
    SMALL_PAGES,
    Guest,
    GuestCell,
)
from .arrays import CellRows, Counts
from .cells import cpus_of

Mask = npt.NDArray[np.bool_]
#: Host cells as bits, shape (n_hosts,).
CellMasks = npt.NDArray[np.uint64]
Ratios = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]

_KIB: Final = 1024
_ALL: Final = (1 << 64) - 1
#: The most kinds of guest cells (cells with equal requests) of which all combinations
#: are tried: 6 kinds have 63 combinations.
_MAX_GROUPS: Final = 6


def fitting_cells(
    rows: CellRows, guest: Guest, ratios: Ratios | None
) -> list[CellMasks]:
    """Return on which cells of each host each cell of a guest fits without the others.

    Parameters
    ----------
    ratios : (ndarray of float64, ndarray of float64), shape (m,), or None
        How far CPUs and memory may be overcommitted; None: without limit.

    Returns
    -------
    list of ndarray of uint64, shape (m,), one for each cell of the guest
        Bit j: the guest's cell fits the host's cell j. Guest cells with equal requests
        share one array.
    """
    masks: list[CellMasks] = [np.empty(0, np.uint64)] * len(guest.cells)
    for indices in guest.groups:
        cell, n_reserved = guest.cells[indices[0]], guest.reserved(indices[0])
        mask = _bits(_fits(rows, cell, n_reserved, ratios), rows)
        for index in indices:
            masks[index] = mask
    return masks


def can_be_placed(
    masks: Sequence[CellMasks], guest: Guest, within: int | None = None
) -> Mask:
    """Return on which hosts each cell of a guest can have a cell of its own.

    Hall's condition: any k guest cells must together fit at least k host cells. Only
    combinations that have all or none of the cells with equal requests are tried.

    Parameters
    ----------
    masks : sequence of ndarray of uint64, shape (m,)
        As `fitting_cells` returns them.
    within : int, optional
        The host cells that may be used, as bits.

    Returns
    -------
    ndarray of bool, shape (m,)
    """
    groups = guest.groups
    usable = np.uint64(_ALL if within is None else within)
    group_masks = [masks[indices[0]] & usable for indices in groups]
    fits = _are_enough(group_masks, len(masks))
    if len(groups) > _MAX_GROUPS:
        rows = np.flatnonzero(fits)
        fits[rows] = _matched(
            np.stack([mask[rows] for mask in group_masks], axis=1), guest
        )
        return fits
    for size in range(1, len(groups)):
        for chosen in itertools.combinations(range(len(groups)), size):
            n_cells = sum(len(groups[group]) for group in chosen)
            fits &= _are_enough([group_masks[group] for group in chosen], n_cells)
    return fits


def _are_enough(masks: Sequence[CellMasks], n_cells: int) -> Mask:
    """Return on which hosts the masks together have `n_cells` cells, shape (m,)."""
    are_enough: Mask = np.bitwise_count(np.bitwise_or.reduce(masks)) >= n_cells
    return are_enough


def _matched(masks: CellMasks, guest: Guest) -> Mask:
    """Return `can_be_placed` for a guest with more than `_MAX_GROUPS` kinds of cells.

    Many hosts of a cloud are equal: each distinct row of masks is evaluated once.

    Parameters
    ----------
    masks : ndarray of uint64, shape (m, n_groups)
    """
    rows, row_of = np.unique(masks, axis=0, return_inverse=True)
    groups = guest.groups
    fits = [
        _has_matching(
            [row[group] for group, indices in enumerate(groups) for _ in indices]
        )
        for row in rows.tolist()
    ]
    return np.array(fits, bool)[row_of.reshape(-1)]


def _has_matching(masks: Sequence[int]) -> bool:
    """Return whether each guest cell can have a host cell of its own (Kuhn, 1955)."""
    holder: dict[int, int] = {}

    def assign(index: int, tried: set[int]) -> bool:
        for host_cell in cpus_of(masks[index]):
            if host_cell in tried:
                continue
            tried.add(host_cell)
            if host_cell not in holder or assign(holder[host_cell], tried):
                holder[host_cell] = index
                return True
        return False

    return all(assign(index, set()) for index in range(len(masks)))


def _bits(fits: Mask, rows: CellRows) -> CellMasks:
    """Return a mask of shape (m, n_cells) as bits, without the padding of a host."""
    columns = np.arange(fits.shape[1])
    fits_cell = fits & (columns < rows.n_cells[:, None])
    bits: CellMasks = (fits_cell.astype(np.uint64) << columns.astype(np.uint64)).sum(
        axis=1, dtype=np.uint64
    )
    return bits


def _fits(
    cells: CellRows, guest: GuestCell, n_reserved: int, ratios: Ratios | None
) -> Mask:
    """Return which cells one cell of a guest fits, shape (m, n_cells)."""
    fits = _has_memory(cells, guest)
    if guest.is_floating:
        fits &= cells["n_cpus"] >= guest.n_shared
        if ratios is not None:
            fits &= _is_within(cells, guest, ratios)
    if guest.is_pinned:
        fits &= _can_pin(cells, guest, n_reserved)
    return fits


def _is_within(cells: CellRows, guest: GuestCell, ratios: Ratios) -> Mask:
    """Return where the overcommit limits allow a cell, shape (m, n_cells)."""
    cpu_ratio, ram_ratio = (ratio[:, None] for ratio in ratios)
    n_cpus = cells["cpu_usage"] + guest.n_shared
    memory_mb = cells["memory_usage"] + guest.memory_mb
    within: Mask = n_cpus <= cells["n_cpus"] * cpu_ratio
    within &= memory_mb <= cells["memory_mb"] * ram_ratio
    return within


def _has_memory(cells: CellRows, guest: GuestCell) -> Mask:
    """Return where a cell's memory fits, in pages of the size that the cell requests.

    Without a page size, a pinned cell needs free memory; a floating cell may share
    memory with other guests, and so only needs as much as there is in total.
    """
    if guest.page_size is not None:
        return chosen_pages(cells, guest) > 0
    amount = "free" if guest.is_pinned else "total"
    column = "free_memory_mb" if guest.is_pinned else "memory_mb"
    smallest_kb, amounts_kb = cells["size_kb"][:, :, 0], cells[f"{amount}_kb"][:, :, 0]
    fits_pages = _in_pages(cells, smallest_kb, amounts_kb, guest.memory_mb * _KIB)
    has_memory: Mask = np.where(
        smallest_kb > 0, fits_pages, cells[column] >= guest.memory_mb
    )
    return has_memory


def _in_pages(
    cells: CellRows, sizes_kb: Counts, amounts_kb: Counts, memory_kb: int
) -> Mask:
    """Return where memory fits into pages, and is a whole number of pages."""
    fits: Mask = (amounts_kb >= memory_kb) & (sizes_kb > 0)
    for size_kb in cells.page_sizes:  # few sizes: cheaper than a division for each cell
        if memory_kb % size_kb:
            fits &= sizes_kb != size_kb
    return fits


def chosen_pages(cells: CellRows, guest: GuestCell) -> Counts:
    """Return the largest page size that a cell requests and fits, KiB; 0: none.

    Returns
    -------
    ndarray of int64, shape (m, n_cells)
    """
    sizes = cells["size_kb"]
    fits = _in_pages(cells, sizes, cells["free_kb"], guest.memory_mb * _KIB)
    if guest.page_size == SMALL_PAGES:
        sizes, fits = sizes[:, :, :1], fits[:, :, :1]
    elif guest.page_size == LARGE_PAGES:
        sizes, fits = sizes[:, :, 1:], fits[:, :, 1:]
    elif guest.page_size != ANY_PAGES:
        fits &= sizes == guest.page_size
    chosen: Counts = np.maximum.reduce(sizes * fits, axis=2, initial=0)
    return chosen


def _can_pin(cells: CellRows, guest: GuestCell, n_reserved: int) -> Mask:
    """Return where CPUs can be pinned under the cell's thread policy.

    A guest cell that pins no CPU but must reserve one for the emulator is rejected, as
    in nova. To isolate CPUs of cores with several threads, all CPUs of the host cell
    must serve both pinned and floating guests, as under nova's old ``vcpu_pin_set``:
    otherwise Placement has not counted the idle threads (nova's bug 1889633).
    """
    n_pinned = len(guest.pcpus)
    n_all = n_pinned + n_reserved
    if n_reserved and not n_pinned:
        return np.zeros(cells.shape, bool)
    fits: Mask = (cells["n_pcpus"] >= n_all) & (cells["n_free_pcpus"] >= n_all)
    if guest.thread_policy == ISOLATE:
        fits &= (cells["n_threads"] == 1) | (cells["are_one_set"] == 1)
        fits &= (cells["whole_cores"] >= n_pinned) & (n_pinned > 0)
        fits &= cells["open_cores"] >= n_all
    else:
        fits &= cells["free_threads"] >= n_all
        if guest.thread_policy == REQUIRE:
            fits &= cells["paired_threads"] >= max(n_pinned, 1)
    return fits
