# SPDX-License-Identifier: Apache-2.0
"""A guest's cells on the cells of one host, each on one of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .cells import HostCell
from .guest import FittedCell, FittedGuest, Guest, Limits
from .pinning import fit_cell
from .topology import HostTopology


@dataclass(frozen=True, slots=True)
class Devices:
    """What the fit has to know of PCI devices.

    Attributes
    ----------
    per_cell : mapping
        Free devices by host cell id.
    are_requested : bool
        Whether the guest asks for any: cells with devices are then used first, else
        last.
    suffice : callable
        Answer whether the devices will do with the guest on the cells of these ids.
    """

    per_cell: Mapping[int, int]
    are_requested: bool
    suffice: Callable[[frozenset[int]], bool]


def fit(
    host: HostTopology,
    guest: Guest,
    limits: Limits | None = None,
    *,
    is_packed: bool = False,
    devices: Devices | None = None,
) -> FittedGuest | None:
    """Return how a guest fits a host, None if it does not.

    The answer is that of nova's ``numa_fit_instance_to_host``: the first of all
    permutations of the host's cells, in the order of `ordered_cells`. The time is not:
    it is bound by the number of sets of cells, not of permutations.

    Parameters
    ----------
    limits : Limits or None
        None: no limit of overcommit, and no network to be near to.
    is_packed : bool
        Use cells first that are in use.
    devices : Devices or None
        None: the host tells nothing of devices.
    """
    if not guest.cells or len(host.cells) < len(guest.cells):
        return None
    cells = host.cells
    if len(cells) > len(guest.cells):
        cells = ordered_cells(cells, guest, is_packed=is_packed, devices=devices)
    found = _Search(cells, guest, limits, devices).run()
    return None if found is None else FittedGuest(tuple(found))


def ordered_cells(
    cells: Sequence[HostCell],
    guest: Guest,
    *,
    is_packed: bool,
    devices: Devices | None,
) -> tuple[HostCell, ...]:
    """Return a host's cells in the order in which they are tried."""
    # Each sort is stable, so that the last one decides first.
    ordered = sorted(cells, key=lambda cell: cell.free_memory_mb, reverse=not is_packed)
    if guest.cells[0].is_shared:
        ordered.sort(key=lambda cell: cell.cpu_usage, reverse=is_packed)
    else:
        ordered.sort(
            key=lambda cell: cell.free_pcpus.bit_count(), reverse=not is_packed
        )
    if devices is not None:
        ordered.sort(
            key=lambda cell: devices.per_cell.get(cell.id, 0),
            reverse=devices.are_requested,
        )
    return tuple(ordered)


def declaring_cells(host: HostTopology, physnet: str | None) -> int:
    """Return the cells near to a physical network, None: to tunnels; a bit each."""
    near = 0
    for place, cell in enumerate(host.cells):
        hardware = cell.hardware
        is_near = (
            hardware.is_tunneled if physnet is None else physnet in hardware.physnets
        )
        near |= is_near << place
    return near


class _Search:
    """Look for the first permutation, depth first.

    What is left to be found depends on the set of host cells in use, not on their
    order: a set from which nothing was found is not entered again.
    """

    def __init__(
        self,
        cells: Sequence[HostCell],
        guest: Guest,
        limits: Limits | None,
        devices: Devices | None,
    ) -> None:
        self._cells = cells
        self._guest = guest
        self._limits = limits
        self._devices = devices
        self._networks = _networks(cells, limits)
        self._dead: set[int] = set()
        self._pairs: dict[tuple[int, int], FittedCell | None] = {}

    def run(self) -> list[FittedCell] | None:
        """Return the guest's cells on those of the host, None if they do not fit."""
        places = range(len(self._cells))
        for index in range(len(self._guest.cells)):
            if not any(self._pair(place, index) for place in places):
                return None
        return self._from(0, 0)

    def _from(self, index: int, used: int) -> list[FittedCell] | None:
        """Return the guest's cells from one on, the others on the used host cells."""
        if index == len(self._guest.cells):
            return [] if self._is_near(used) else None
        if used in self._dead:
            return None
        for place in range(len(self._cells)):
            if used >> place & 1:
                continue
            fitted = self._pair(place, index)
            if fitted is None:
                continue
            rest = self._from(index + 1, used | 1 << place)
            if rest is not None:
                return [fitted, *rest]
        self._dead.add(used)
        return None

    def _pair(self, place: int, index: int) -> FittedCell | None:
        key = (place, index)
        if key not in self._pairs:
            self._pairs[key] = fit_cell(
                self._cells[place],
                self._guest.cells[index],
                self._guest.reserved(index),
                self._limits,
            )
        return self._pairs[key]

    def _is_near(self, used: int) -> bool:
        """Return whether devices and networks will do with these cells."""
        if used in self._dead:
            return False
        ids = frozenset(c.id for i, c in enumerate(self._cells) if used >> i & 1)
        near = all(used & cells for cells in self._networks)
        devices = self._devices
        if near and devices is not None and devices.are_requested:
            near = devices.suffice(ids)
        if not near:
            self._dead.add(used)
        return near


def _networks(cells: Sequence[HostCell], limits: Limits | None) -> list[int]:
    """Return, for each network that some cell declares, the cells near to it.

    The guest has to be on one of them (``_numa_cells_support_network_metadata``).
    """
    if limits is None:
        return []
    host = HostTopology(tuple(cells))
    names: list[str | None] = [*limits.physnets]
    names += [None] if limits.is_tunneled else []
    declared = (declaring_cells(host, name) for name in names)
    return [cells for cells in declared if cells]
