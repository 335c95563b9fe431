# SPDX-License-Identifier: Apache-2.0
"""Which cells of many hosts does each cell of a guest fit?

Whether one cell fits another is a matter of counts. The rules are those of nova's
``_numa_fit_instance_cell``, but with nothing left behind by an earlier try; a single
host is an array of one. `pinning` then chooses the CPUs.
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
#: Kinds of guest cells of which all choices are tried: 6 have 63.
_MAX_GROUPS: Final = 6


def fitting_cells(
    rows: CellRows, guest: Guest, ratios: Ratios | None
) -> list[CellMasks]:
    """Return on which of each host's cells each cell of a guest fits, if alone.

    Parameters
    ----------
    ratios : (ndarray of float64, ndarray of float64), shape (m,), or None
        How far CPUs and memory may be overcommitted; None: without limit.

    Returns
    -------
    list of ndarray of uint64, shape (m,), one a cell of the guest
        Bit j: it fits the host's cell j. Cells that ask for the same share one array.
    """
    masks: list[CellMasks] = [np.empty(0, np.uint64)] * len(guest.cells)
    for same in guest.groups:
        cell, n_reserved = guest.cells[same[0]], guest.reserved(same[0])
        mask = _bits(_fits(rows, cell, n_reserved, ratios), rows)
        for index in same:
            masks[index] = mask
    return masks


def can_be_placed(
    masks: Sequence[CellMasks], guest: Guest, within: int | None = None
) -> Mask:
    """Return on which hosts each cell of a guest can have a cell of its own.

    Hall's condition: any choice of guest cells fits, together, at least as many cells
    of the host. Cells that ask for the same count as one choice.

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
    apart = [masks[same[0]] & usable for same in groups]
    fits = _are_enough(apart, len(masks))
    if len(groups) > _MAX_GROUPS:
        at = np.flatnonzero(fits)
        fits[at] = _matched(np.stack([mask[at] for mask in apart], axis=1), guest)
        return fits
    for size in range(1, len(groups)):
        for chosen in itertools.combinations(range(len(groups)), size):
            n_cells = sum(len(groups[group]) for group in chosen)
            fits &= _are_enough([apart[group] for group in chosen], n_cells)
    return fits


def _are_enough(masks: Sequence[CellMasks], n_cells: int) -> Mask:
    """Return where the masks have, together, so many host cells, shape (m,)."""
    enough: Mask = np.bitwise_count(np.bitwise_or.reduce(masks)) >= n_cells
    return enough


def _matched(masks: CellMasks, guest: Guest) -> Mask:
    """Return the same for guests with too many kinds of cells for Hall's condition.

    Hosts of a cloud are much alike: each distinct row of masks is evaluated once.

    Parameters
    ----------
    masks : ndarray of uint64, shape (m, n_groups)
    """
    rows, row_of = np.unique(masks, axis=0, return_inverse=True)
    groups = guest.groups
    fits = [
        _has_matching([row[group] for group, same in enumerate(groups) for _ in same])
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
    columns = np.arange(fits.shape[1])
    there = fits & (columns < rows.n_cells[:, None])
    bits: CellMasks = (there.astype(np.uint64) << columns.astype(np.uint64)).sum(
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
    cpu_ratio, ram_ratio = (ratio[:, None] for ratio in ratios)
    n_cpus = cells["cpu_usage"] + guest.n_shared
    memory_mb = cells["memory_usage"] + guest.memory_mb
    within: Mask = n_cpus <= cells["n_cpus"] * cpu_ratio
    within &= memory_mb <= cells["memory_mb"] * ram_ratio
    return within


def _has_memory(cells: CellRows, guest: GuestCell) -> Mask:
    """Return where there is memory for a cell, and in pages of the size it asks for.

    Without a page size, a pinned one needs it free; a floating one may share it, but
    not with itself.
    """
    if guest.page_size is not None:
        return chosen_pages(cells, guest) > 0
    amount = "free" if guest.is_pinned else "total"
    plain = "free_memory_mb" if guest.is_pinned else "memory_mb"
    smallest, kib = cells["size_kb"][:, :, 0], cells[f"{amount}_kb"][:, :, 0]
    of_pages = _in_pages(cells, smallest, kib, guest.memory_mb * _KIB)
    enough: Mask = np.where(smallest > 0, of_pages, cells[plain] >= guest.memory_mb)
    return enough


def _in_pages(
    cells: CellRows, sizes_kb: Counts, amounts_kb: Counts, memory_kb: int
) -> Mask:
    """Return where memory fits, and is a whole number of pages."""
    fits: Mask = (amounts_kb >= memory_kb) & (sizes_kb > 0)
    for size_kb in cells.page_sizes:  # few; cheaper than a division for each page
        if memory_kb % size_kb:
            fits &= sizes_kb != size_kb
    return fits


def chosen_pages(cells: CellRows, guest: GuestCell) -> Counts:
    """Return the largest page size that a cell asks for and fits, KiB; 0: none.

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

    nova reserves no CPU beside a cell that pins none, and then rejects it. Isolated
    CPUs of cores with threads need all CPUs to be for pinning and floating alike, as
    under nova's old ``vcpu_pin_set``: elsewhere Placement has not counted the idle
    threads (nova's bug 1889633).
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
