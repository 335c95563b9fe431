# SPDX-License-Identifier: Apache-2.0
"""Which of a host's cells does a guest get, in nova's order of preference?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ...request.numa import Guest
from .arrays import NO_CELL, NO_SOCKET, CellRows, Counts
from .cells import HostCell
from .topology import HostTopology


def chosen_sets(n_host_cells: int, n_guest_cells: int) -> list[int]:
    """Return all choices of `n_guest_cells` of a host's cells, as bits."""
    choices = itertools.combinations(range(n_host_cells), n_guest_cells)
    return [sum(1 << host_cell for host_cell in chosen) for chosen in choices]


@dataclass(frozen=True, slots=True)
class ChosenCells:
    """The host cells that were chosen for a guest, by id, on m hosts.

    Attributes
    ----------
    ids : ndarray of int64, shape (m, n_chosen)
        The chosen cells.
    socket_ids : ndarray of int64, shape (m, n_cells)
        All cells in the sockets of the chosen cells, padded with NO_CELL; none on a
        host with a cell that does not report its socket (nova's
        ``_filter_pools_for_socket_affinity``).
    """

    ids: Counts
    socket_ids: Counts

    @classmethod
    def of(cls, rows: CellRows, chosen: int) -> Self:
        """Return the cells of m hosts that the bits of `chosen` select on each host."""
        ids, sockets = rows["id"], rows["socket"]
        # The bits of a 64th cell do not fit an int64.
        is_chosen = np.array([chosen >> i & 1 == 1 for i in range(ids.shape[1])], bool)
        is_near = (sockets[:, :, None] == sockets[:, None, is_chosen]).any(axis=2)
        is_unknown = ((sockets == NO_SOCKET) & (ids != NO_CELL)).any(axis=1)
        is_near &= (ids != NO_CELL) & ~is_unknown[:, None]
        return cls(ids[:, is_chosen], np.where(is_near, ids, NO_CELL))

    def take(self, indices: npt.NDArray[np.intp]) -> Self:
        """Return the choice on the hosts at these indices."""
        return type(self)(self.ids[indices], self.socket_ids[indices])


def declaring_cells(host: HostTopology, physnet: str | None) -> int:
    """Return, as bits, the cells near to a physical network; None: near to tunnels."""
    near_cells = 0
    for host_cell, cell in enumerate(host.cells):
        hardware = cell.hardware
        is_near = (
            hardware.is_tunneled if physnet is None else physnet in hardware.physnets
        )
        near_cells |= is_near << host_cell
    return near_cells


def cells_in_order(
    host: HostTopology,
    guest: Guest,
    devices_per_cell: Mapping[int | None, int],
    *,
    wants_devices: bool,
    is_packed: bool,
) -> Sequence[int]:
    """Return the indices of a host's cells in the order in which nova tries them.

    Parameters
    ----------
    devices_per_cell : mapping
        Free PCI devices by cell id.
    wants_devices : bool
        Whether the guest requests devices: cells with devices are then tried first,
        otherwise last.
    is_packed : bool
        Whether cells that are in use are tried first.
    """
    host_cells = list(range(len(host.cells)))
    if len(host_cells) <= len(guest.cells):
        return host_cells

    def sort(key: Callable[[HostCell], int], *, reverse: bool) -> None:
        host_cells.sort(key=lambda cell: key(host.cells[cell]), reverse=reverse)

    # Each sort is stable, so that the last one decides first.
    sort(lambda cell: cell.free_memory_mb, reverse=not is_packed)
    if guest.cells[0].is_shared:
        sort(lambda cell: cell.cpu_usage, reverse=is_packed)
    else:
        sort(lambda cell: cell.free_pcpus.bit_count(), reverse=not is_packed)
    sort(lambda cell: devices_per_cell.get(cell.id, 0), reverse=wants_devices)
    return host_cells


def first_permutation(
    masks: Sequence[int], host_cells: Sequence[int], is_allowed: Callable[[int], bool]
) -> tuple[int, ...] | None:
    """Return the host cell of each guest cell; None: the guest does not fit.

    The answer is that of nova's ``numa_fit_instance_to_host``: the first of all
    permutations of the host's cells. The number of sets of cells bounds the time, not
    the number of permutations.

    Parameters
    ----------
    masks : sequence of int
        The host cells that each guest cell fits, as bits.
    host_cells : sequence of int
        The host cells in the order in which they are tried.
    is_allowed : callable
        Returns whether the guest may have these host cells, as bits.
    """
    # Whether the remaining guest cells fit depends on the set of host cells in use, not
    # on their order: a set with which the search failed is not tried again.
    failed_sets: set[int] = set()

    def search(index: int, used: int) -> tuple[int, ...] | None:
        if used in failed_sets:
            return None
        if index == len(masks) and is_allowed(used):
            return ()
        for host_cell in host_cells if index < len(masks) else ():
            if masks[index] & ~used & 1 << host_cell:
                later_cells = search(index + 1, used | 1 << host_cell)
                if later_cells is not None:
                    return (host_cell, *later_cells)
        failed_sets.add(used)
        return None

    return search(0, 0) if masks and all(masks) else None
