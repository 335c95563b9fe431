# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells of many hosts as arrays, one row a state of a host's cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .topology import HostCell, HostTopology

#: In place of a socket: the cell does not tell.
NO_SOCKET: Final = -1
#: In place of an id: the host has fewer cells.
NO_CELL: Final = -1

Cells = npt.NDArray[Any]


def _dtype(n_sizes: int) -> np.dtype[Any]:
    """Return what is kept of a cell: counts, MiB, and pages of several sizes, KiB."""
    numbers = (
        "id",
        "socket",
        "memory_mb",
        "memory_usage",
        "free_memory_mb",
        "cpu_usage",
        "n_cpus",
        "n_pcpus",
        "n_free_pcpus",
        "n_threads",
        "free_threads",
        "open_cores",
        "whole_cores",
        "paired_threads",
    )
    return np.dtype(
        [
            *((name, np.int64) for name in numbers),
            ("are_one_set", np.bool_),
            ("size_kb", np.int64, (n_sizes,)),
            ("free_kb", np.int64, (n_sizes,)),
            ("total_kb", np.int64, (n_sizes,)),
        ]
    )


@dataclass(frozen=True, slots=True, eq=False)
class CellRows:
    """The cells of m hosts, padded to as many as any host has.

    Attributes
    ----------
    cells : structured ndarray, shape (m, n_cells)
        `free_threads`: free CPUs that are in a core; `open_cores`: cores with a free
        thread; `whole_cores`: cores that are free; `paired_threads`: the most CPUs to
        be had as two or more free threads of each core; `are_one_set`: the CPUs for
        floating and for pinning are the same; `size_kb` is 0 where there are fewer
        page sizes, and the smallest is the first.
    n_cells : ndarray of int64, shape (m,)
        How many are there.
    """

    cells: Cells
    n_cells: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.n_cells)

    def take(self, indices: npt.NDArray[Any]) -> CellRows:
        """Return some of the rows, in this order; a row can occur again."""
        return CellRows(self.cells[indices], self.n_cells[indices])


class CellArrays:
    """States of hosts' cells, a row each; rows are added and never changed.

    Room for up to as many rows again is kept free.
    """

    def __init__(self) -> None:
        self._n = 0
        self._cells: Cells = np.zeros((0, 0), _dtype(1))
        self._n_cells = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self._n

    def rows(self, start: int = 0) -> CellRows:
        """Return the rows from one on, as they stay whatever is added later."""
        part = slice(start, self._n)
        return CellRows(self._cells[part], self._n_cells[part])

    def extend(self, values: Sequence[HostTopology | None]) -> None:
        """Add a row for each of these, in their order; None has no cells."""
        topologies = [() if value is None else value.cells for value in values]
        pages = (len(cell.pages) for cells in topologies for cell in cells)
        self._reserve(
            self._n + len(values),
            max(map(len, topologies), default=0),
            max(pages, default=0),
        )
        n_sizes = self._cells.dtype["size_kb"].shape[0]
        for row, cells in enumerate(topologies, start=self._n):
            self._n_cells[row] = len(cells)
            for place, cell in enumerate(cells):
                self._cells[row, place] = _written(cell, n_sizes)
        self._n += len(values)

    def _reserve(self, n: int, n_cells: int, n_sizes: int) -> None:
        """Make room. What is full is copied, so that rows taken earlier stay as is."""
        old = self._cells
        old_sizes = old.dtype["size_kb"].shape[0]
        fits = n <= old.shape[0] and n_cells <= old.shape[1] and n_sizes <= old_sizes
        if fits:
            return
        room = max(n, 2 * self._n) if n > old.shape[0] else old.shape[0]
        shape = (room, max(n_cells, old.shape[1]))
        grown = np.zeros(shape, _dtype(max(n_sizes, old_sizes)))
        grown["id"] = NO_CELL
        kept = grown[: self._n, : old.shape[1]]
        for name in old.dtype.names or ():
            part = old[name][: self._n]
            if part.ndim == 3:  # pages
                kept[name][:, :, :old_sizes] = part
            else:
                kept[name] = part
        self._cells = grown
        self._n_cells = np.resize(self._n_cells, room)


def _written(cell: HostCell, n_sizes: int) -> tuple[Any, ...]:
    hardware, free = cell.hardware, cell.free_pcpus
    threads = [(core & free).bit_count() for core in hardware.cores]
    n_threads = hardware.n_threads
    pages = sorted(cell.pages, key=lambda pages: pages.size_kb)
    padding = (0,) * (n_sizes - len(pages))
    return (
        hardware.id,
        NO_SOCKET if hardware.socket is None else hardware.socket,
        hardware.memory_mb,
        cell.memory_usage,
        cell.free_memory_mb,
        cell.cpu_usage,
        len(hardware.cpus),
        len(hardware.pcpus),
        free.bit_count(),
        n_threads,
        sum(threads),
        sum(map(bool, threads)),
        threads.count(n_threads),
        _paired(threads),
        hardware.cpu_mask == hardware.pcpu_mask,
        (*(p.size_kb for p in pages), *padding),
        (*(p.free_kb for p in pages), *padding),
        (*(p.total_kb for p in pages), *padding),
    )


def _paired(threads: Sequence[int]) -> int:
    """Return the most CPUs to be had as t >= 2 threads of each core that has them."""
    most = 0
    for n_threads in range(2, max(threads, default=0) + 1):
        most = max(most, n_threads * sum(n >= n_threads for n in threads))
    return most
