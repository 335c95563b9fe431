# SPDX-License-Identifier: Apache-2.0
"""All NUMA cells of a host, as its compute reports them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ....objects import NUMATopology
from .cells import HostCell
from .guest import FittedGuest
from .wire import read_cells, to_object, write_cells


@dataclass(frozen=True, slots=True)
class HostTopology:
    """All NUMA cells of a host, in the order of its report."""

    cells: tuple[HostCell, ...]

    @classmethod
    def read(cls, value: object) -> HostTopology:
        """Read what a nova compute reports.

        Parameters
        ----------
        value : str, mapping or NUMATopology
            JSON text of ``compute_nodes.numa_topology``; the same decoded, also in the
            form from before there were objects; or the object.

        Raises
        ------
        ValueError
            If it is none of these, or is not valid; the message says why.
        """
        return cls(read_cells(value))

    @property
    def has_threads(self) -> bool:
        """Whether some core has more than one thread."""
        return any(cell.hardware.n_threads > 1 for cell in self.cells)

    def bits_of(self, ids: Collection[int]) -> int:
        """Return the cells of these ids, a bit each."""
        return sum(1 << i for i, cell in enumerate(self.cells) if cell.id in ids)

    def with_guest(self, guest: FittedGuest) -> HostTopology:
        """Return the cells with a guest on them (``numa_usage_from_instance_numa``)."""
        return self._changed_by(guest, 1)

    def without_guest(self, guest: FittedGuest) -> HostTopology:
        """Return the cells without a guest that was on them."""
        return self._changed_by(guest, -1)

    def _changed_by(self, guest: FittedGuest, sign: int) -> HostTopology:
        by_id = {cell.host_cell_id: cell for cell in guest.cells}
        return HostTopology(
            tuple(
                cell.changed_by(by_id[cell.id], sign) if cell.id in by_id else cell
                for cell in self.cells
            )
        )

    def to_object(self) -> NUMATopology:
        """Return the object that computes report."""
        return to_object(self.cells)

    def write(self) -> str:
        """Return what a nova compute reports, as JSON text."""
        return write_cells(self.cells)

    def describe(self) -> str:
        """Return what is free in each cell, for users."""
        return "; ".join(cell.describe() for cell in self.cells) or "no cells"
