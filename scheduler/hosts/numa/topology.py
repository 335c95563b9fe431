# SPDX-License-Identifier: Apache-2.0
"""All NUMA cells of a host, as its compute reports them."""

from __future__ import annotations

from dataclasses import dataclass

from ....objects import NUMATopology
from .cells import HostCell
from .guest import FittedGuest
from .wire import read_cells, written


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
            It is none of these; the message says what is wrong.
        """
        return cls(read_cells(value))

    @property
    def has_threads(self) -> bool:
        """Whether some core has more than one thread."""
        return any(cell.hardware.n_threads > 1 for cell in self.cells)

    def in_sockets_of(self, ids: frozenset[int]) -> frozenset[int]:
        """Return the ids of all cells in the sockets of these cells.

        None where some cell does not tell its socket (nova's
        ``_filter_pools_for_socket_affinity``).
        """
        cells = [cell.hardware for cell in self.cells]
        if any(cell.socket is None for cell in cells):
            return frozenset()
        sockets = {cell.socket for cell in cells if cell.id in ids}
        return frozenset(cell.id for cell in cells if cell.socket in sockets)

    def with_guest(self, guest: FittedGuest) -> HostTopology:
        """Return the cells with a guest on them (``numa_usage_from_instance_numa``)."""
        return self._changed_by(guest, 1)

    def without_guest(self, guest: FittedGuest) -> HostTopology:
        """Return the cells after a guest has gone."""
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
        return NUMATopology.obj_from_primitive(written(self.cells))

    def describe(self) -> str:
        """Return what is free in each cell, for people."""
        return "; ".join(cell.describe() for cell in self.cells) or "no cells"
