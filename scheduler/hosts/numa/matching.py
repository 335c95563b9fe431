# SPDX-License-Identifier: Apache-2.0
"""A guest's cells on the cells of many hosts at once.

Whether one cell fits another is a matter of counts; the rules are those of
`pinning.fit_cell`, whose answer for one pair is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import CellRows, Cells
from .guest import ANY_PAGES, LARGE_PAGES, SMALL_PAGES, Guest, GuestCell

Mask = npt.NDArray[np.bool_]
#: Host cells as bits, shape (n_hosts,).
CellMasks = npt.NDArray[np.uint64]
Ratios = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]

_KIB = 1024


def fitting_cells(
    rows: CellRows, guest: Guest, ratios: Ratios | None
) -> list[CellMasks]:
    """Return on which of each host's cells each cell of a guest fits, if alone.

    Parameters
    ----------
    ratios : (ndarray of float64, ndarray of float64), shape (m,), or None
        How far CPUs and memory may be overcommitted; None: without end.

    Returns
    -------
    list of ndarray of uint64, shape (m,), one a cell of the guest
        Bit j: it fits the host's cell j. Cells that ask for the same share one array.
    """
    masks: list[CellMasks] = [np.empty(0, np.uint64)] * len(guest.cells)
    for same in guest.groups:
        cell, n_reserved = guest.cells[same[0]], guest.reserved(same[0])
        mask = _bits(_fits(rows.cells, cell, n_reserved, ratios), rows)
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
    fits = np.ones(len(masks[0]), bool)
    groups = guest.groups
    for size in range(1, len(groups) + 1):
        for some in itertools.combinations(groups, size):
            together = masks[some[0][0]]
            for group in some[1:]:
                together = together | masks[group[0]]
            if within is not None:
                together = together & np.uint64(within)
            fits &= np.bitwise_count(together) >= sum(map(len, some))
    return fits


def chosen_sets(n_host_cells: int, n_guest_cells: int) -> list[int]:
    """Return all choices of so many of a host's cells, as bits."""
    choices = itertools.combinations(range(n_host_cells), n_guest_cells)
    return [sum(1 << place for place in chosen) for chosen in choices]


def _bits(fits: Mask, rows: CellRows) -> CellMasks:
    places = np.arange(fits.shape[1])
    there = fits & (places < rows.n_cells[:, None])
    bits: CellMasks = (there.astype(np.uint64) << places.astype(np.uint64)).sum(
        axis=1, dtype=np.uint64
    )
    return bits


def _fits(
    cells: Cells, guest: GuestCell, n_reserved: int, ratios: Ratios | None
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


def _is_within(cells: Cells, guest: GuestCell, ratios: Ratios) -> Mask:
    cpu_ratio, ram_ratio = (ratio[:, None] for ratio in ratios)
    n_cpus = cells["cpu_usage"] + guest.n_shared
    memory_mb = cells["memory_usage"] + guest.memory_mb
    within: Mask = n_cpus <= cells["n_cpus"] * cpu_ratio
    within &= memory_mb <= cells["memory_mb"] * ram_ratio
    return within


def _has_memory(cells: Cells, guest: GuestCell) -> Mask:
    if guest.page_size is not None:
        return _has_pages(cells, guest.memory_mb * _KIB, guest.page_size)
    amount = "free" if guest.is_pinned else "total"
    plain = "free_memory_mb" if guest.is_pinned else "memory_mb"
    smallest = cells["size_kb"][:, :, 0]
    of_pages = _in_pages(smallest, cells[f"{amount}_kb"][:, :, 0], guest.memory_mb)
    enough: Mask = np.where(smallest > 0, of_pages, cells[plain] >= guest.memory_mb)
    return enough


def _in_pages(sizes_kb: Any, amounts_kb: Any, memory_mb: int) -> Mask:
    memory_kb = memory_mb * _KIB
    fits: Mask = (amounts_kb >= memory_kb) & (memory_kb % np.maximum(sizes_kb, 1) == 0)
    return fits


def _has_pages(cells: Cells, memory_kb: int, page_size: int) -> Mask:
    sizes = cells["size_kb"]
    fits = (
        (sizes > 0)
        & (cells["free_kb"] >= memory_kb)
        & (memory_kb % np.maximum(sizes, 1) == 0)
    )
    if page_size == SMALL_PAGES:
        fits = fits[:, :, :1]
    elif page_size == LARGE_PAGES:
        fits = fits[:, :, 1:]
    elif page_size != ANY_PAGES:
        fits &= sizes == page_size
    found: Mask = fits.any(axis=2)
    return found


def _can_pin(cells: Cells, guest: GuestCell, n_reserved: int) -> Mask:
    """Return where CPUs can be pinned under the cell's thread policy."""
    n_pinned = len(guest.pcpus)
    n_all = n_pinned + n_reserved
    if n_reserved and not n_pinned:
        return np.zeros(cells.shape, bool)
    fits: Mask = (cells["n_pcpus"] >= n_all) & (cells["n_free_pcpus"] >= n_all)
    if guest.thread_policy == "isolate":
        fits &= (cells["n_threads"] == 1) | cells["are_one_set"]
        fits &= (cells["whole_cores"] >= n_pinned) & (n_pinned > 0)
        fits &= cells["open_cores"] >= n_all
    else:
        fits &= cells["free_threads"] >= n_all
        if guest.thread_policy == "require":
            fits &= cells["paired_threads"] >= max(n_pinned, 1)
    return fits
