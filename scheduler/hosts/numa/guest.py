# SPDX-License-Identifier: Apache-2.0
"""The limits of a host's cells, and a guest on the cells that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ....objects import NUMATopologyLimits
from ...request.numa import NO_NETWORKS, GuestCell, Networks


@dataclass(frozen=True, slots=True)
class Limits:
    """Overcommit limits of a host's cells, and a guest's networks."""

    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    networks: Networks = NO_NETWORKS

    @classmethod
    def read(cls, limits: NUMATopologyLimits) -> Self:
        """Read the NUMATopologyLimits of a selection."""
        ratios = limits.cpu_allocation_ratio, limits.ram_allocation_ratio
        return cls(*ratios, Networks.read(limits))

    @property
    def ratios(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The ratios of CPUs and memory, two arrays of one element."""
        return (
            np.array([self.cpu_allocation_ratio]),
            np.array([self.ram_allocation_ratio]),
        )


@dataclass(frozen=True, slots=True)
class FittedCell:
    """A guest's cell on the host's cell that was chosen for it.

    Attributes
    ----------
    page_size : int or None
        KiB; None: the guest requests no page size.
    pins : tuple of (int, int)
        Pairs of a guest CPU and the host CPU that it is pinned to.
    reserved : frozenset of int
        Host CPUs for the emulator.
    idle : frozenset of int
        Host CPUs that no other guest gets: the other threads of an isolated core.
    """

    host_cell_id: int
    guest: GuestCell
    page_size: int | None = None
    pins: tuple[tuple[int, int], ...] = ()
    reserved: frozenset[int] = frozenset()
    idle: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FittedGuest:
    """A guest on the cells of a host, in the order of the guest's cells."""

    cells: tuple[FittedCell, ...]

    @property
    def cell_ids(self) -> tuple[int, ...]:
        """The ids of the host cells."""
        return tuple(cell.host_cell_id for cell in self.cells)
