# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells of many hosts as arrays: a row for each state of a host's cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from .cells import HostCell
from .topology import HostTopology

#: In place of a socket: the cell does not report it. (Reports can have the socket -1.)
NO_SOCKET: Final = -2
#: In place of an id: the host has fewer cells; no PCI pool is at such a NUMA node.
NO_CELL: Final = -4

#: The columns of a cell; memory in MiB.
_COUNTS: Final = (
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
    "are_one_set",
)
#: The columns of a cell's pages of each size, KiB.
_PAGES: Final = ("size_kb", "free_kb", "total_kb")

_PADDING: Final = {"id": NO_CELL}

_Scalar = TypeVar("_Scalar", bound=np.generic)

Counts = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


class CellRows:
    """The cells of m hosts, padded to as many as any host has.

    ``rows["n_cpus"]`` and the other columns are ndarrays of int64, shape (m, n_cells).
    ``free_threads``: free CPUs that are in a core; ``open_cores``: cores with a free
    thread; ``whole_cores``: cores of which all threads are free; ``paired_threads``:
    the most CPUs, if two or more free threads of each core are used; ``are_one_set``: 1
    where the CPUs for floating and for pinning are the same. The columns of pages,
    ``size_kb``, ``free_kb`` and ``total_kb``, have shape (m, n_cells, n_sizes); the
    smallest size comes first, and 0 pads cells with fewer sizes.

    Attributes
    ----------
    n_cells : ndarray of int64, shape (m,)
        How many cells each host has.
    shape : (int, int)
        m and n_cells.
    page_sizes : frozenset of int
        All page sizes that occur, KiB; some may occur on other hosts only.
    """

    def __init__(
        self,
        columns: Mapping[str, Counts],
        n_cells: Counts,
        page_sizes: frozenset[int],
        picked: npt.NDArray[np.intp] | None = None,
    ) -> None:
        self._columns = columns
        self._picked = picked
        self._gathered: dict[str, Counts] = {}
        self.n_cells = n_cells
        self.page_sizes = page_sizes
        self.shape = len(n_cells), columns["id"].shape[0]

    @classmethod
    def of_host(cls, topology: HostTopology) -> CellRows:
        """Return the cells of one host, as arrays of one row."""
        n_sizes = max([len(cell.pages) for cell in topology.cells], default=0)
        counted = _counted_cells(topology.cells, max(n_sizes, 1))
        columns = {name: column[..., None] for name, column in counted.items()}
        n_cells = np.array([len(topology.cells)])
        return cls(columns, n_cells, _page_sizes(topology.cells))

    def __len__(self) -> int:
        return len(self.n_cells)

    def __getitem__(self, name: str) -> Counts:
        """Return one column; its rows are gathered at the first use."""
        column = self._gathered.get(name)
        if column is None:
            # A cell's counts lie in memory one after the other, host by host.
            column = self._columns[name]
            if self._picked is not None:
                column = column.take(self._picked, axis=-1)
            column = self._gathered[name] = column.T
        return column

    def take(self, indices: npt.NDArray[Any]) -> CellRows:
        """Return some of the rows, in this order; a row can occur again."""
        picked = indices if self._picked is None else self._picked[indices]
        rows = self.n_cells[indices]
        return CellRows(self._columns, rows, self.page_sizes, picked)


class CellArrays:
    """States of hosts' cells, a row each; rows are added and never changed.

    One thread adds rows at a time; any thread may read rows at the same time.

    A row has room for as many cells as the host with the most. Each takes 144 bytes, of
    which 24 are for one page size. The capacity is up to twice the number of rows.
    """

    def __init__(self) -> None:
        self._n = 0
        self._columns: dict[str, Counts] = {
            **{name: np.zeros((0, 0), np.int64) for name in _COUNTS},
            **{name: np.zeros((1, 0, 0), np.int64) for name in _PAGES},
        }
        self._n_cells = np.zeros(0, np.int64)
        self._page_sizes: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return self._n

    def rows(self, start: int = 0) -> CellRows:
        """Return the rows from `start` on; later additions do not change them."""
        # Rows that another thread adds after this line are not read.
        part = slice(start, self._n)
        columns = {name: column[..., part] for name, column in self._columns.items()}
        return CellRows(columns, self._n_cells[part], self._page_sizes)

    def extend(self, values: Sequence[HostTopology | None]) -> None:
        """Add a row for each topology, in their order; None has no cells."""
        topologies = [() if value is None else value.cells for value in values]
        end = self._n + len(values)
        pages = (len(cell.pages) for cells in topologies for cell in cells)
        self._reserve(end, max(map(len, topologies), default=0), max(pages, default=0))
        lengths = [len(cells) for cells in topologies]
        self._n_cells[self._n : end] = lengths
        if any(lengths):
            rows = np.repeat(np.arange(self._n, end), lengths)
            indices = np.concatenate([np.arange(length) for length in lengths])
            self._write([cell for cells in topologies for cell in cells], indices, rows)
        self._n = end

    def _write(self, cells: Sequence[HostCell], indices: Rows, rows: Rows) -> None:
        n_sizes = self._columns["size_kb"].shape[0]
        self._page_sizes |= _page_sizes(cells)
        for name, values in _counted_cells(cells, n_sizes).items():
            self._columns[name][..., indices, rows] = values

    def _reserve(self, n: int, n_cells: int, n_sizes: int) -> None:
        """Grow if necessary, into new arrays: rows read earlier do not change."""
        old_sizes, old_cells, old_n = self._columns["size_kb"].shape
        if n <= old_n and n_cells <= old_cells and n_sizes <= old_sizes:
            return
        capacity = max(n, 2 * self._n) if n > old_n else old_n
        shape = (max(n_sizes, old_sizes), max(n_cells, old_cells), capacity)
        # In one assignment: a concurrent reader gets columns of one shape.
        self._columns = {
            name: grown(
                column, shape if name in _PAGES else shape[1:], _PADDING.get(name, 0)
            )
            for name, column in self._columns.items()
        }
        self._n_cells = grown(self._n_cells, (capacity,), 0)


def grown(
    old: npt.NDArray[_Scalar], shape: tuple[int, ...], padding: int
) -> npt.NDArray[_Scalar]:
    """Return a larger copy of an array, with `padding` in the new indices."""
    larger = np.full(shape, padding, old.dtype)
    larger[tuple(slice(length) for length in old.shape)] = old
    return larger


def _page_sizes(cells: Iterable[HostCell]) -> frozenset[int]:
    return frozenset(pages.size_kb for cell in cells for pages in cell.pages)


def _counted_cells(cells: Sequence[HostCell], n_sizes: int) -> dict[str, Counts]:
    """Return the columns of cells, shape (n_cells,) or (n_sizes, n_cells)."""
    counts = np.array([_counted(cell) for cell in cells], np.int64)
    pages = np.array([_counted_pages(cell, n_sizes) for cell in cells], np.int64)
    columns = dict(zip(_COUNTS, counts.reshape(-1, len(_COUNTS)).T, strict=True))
    of_sizes = pages.reshape(-1, n_sizes, len(_PAGES)).transpose(2, 1, 0)
    return columns | dict(zip(_PAGES, of_sizes, strict=True))


def _counted(cell: HostCell) -> tuple[int, ...]:
    hardware, free = cell.hardware, cell.free_pcpus
    threads = [(core & free).bit_count() for core in hardware.cores]
    n_threads = hardware.n_threads
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
        len(threads) - threads.count(0),
        threads.count(n_threads),
        _paired(threads),
        hardware.cpu_mask == hardware.pcpu_mask,
    )


def _paired(threads: Sequence[int]) -> int:
    """Return the most CPUs, if t >= 2 threads of each core that has t are used."""
    n_cores = most = 0
    for n_threads in range(max(threads, default=0), 1, -1):
        n_cores += threads.count(n_threads)
        most = max(most, n_threads * n_cores)
    return most


def _counted_pages(cell: HostCell, n_sizes: int) -> list[tuple[int, int, int]]:
    pages = sorted(
        (entry.size_kb, entry.free_kb, entry.total_kb) for entry in cell.pages
    )
    return pages + [(0, 0, 0)] * (n_sizes - len(pages))
