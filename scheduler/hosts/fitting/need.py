# SPDX-License-Identifier: Apache-2.0
"""What an instance needs, and takes, of one host's NUMA cells and PCI devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ...request.numa import Guest
from ...request.pci import PciRequest, providers_of
from ..numa import (
    CellRows,
    ChosenCells,
    FittedGuest,
    HostTopology,
    Limits,
    cells_in_order,
    chosen_pages,
    declaring_cells,
    first_permutation,
    fitting_cells,
    pin,
)
from ..pci import (
    HostPools,
    PoolRows,
    Providers,
    TakenPools,
    apply_requests,
    single_pools,
)
from .cases import Cases

#: Values of columns by name.
Changes = Collection[tuple[str, HostTopology | HostPools | None]]

#: The index of the only host in the arrays of `Need._case`.
_FIRST = np.zeros(1, np.intp)
_NO_CELLS = CellRows.of_host(HostTopology(()))


@dataclasses.dataclass(frozen=True, slots=True)
class NumaPciUsage:
    """What an instance took of a host's cells and devices.

    Attributes
    ----------
    topology, pools
        The host's cells and devices, without those that the instance took.
    guest : FittedGuest or None
        The cells and CPUs of the instance; None: it needs none, or it no longer fits.
    devices : TakenPools
        The devices that the instance took.
    is_complete : bool
        Whether the instance got all that it needs.
    """

    topology: HostTopology | None
    pools: HostPools
    guest: FittedGuest | None
    devices: TakenPools
    is_complete: bool

    def changes(self) -> Changes:
        """Return the columns that have changed, with their new values."""
        return (("numa_topology", self.topology), ("pci_stats", self.pools))

    def undone(self, topology: HostTopology | None, pools: HostPools) -> Changes:
        """Return the columns of a host after this usage is released.

        Parameters
        ----------
        topology, pools
            The present cells and devices of the host.
        """
        if self.guest is not None and topology is not None:
            topology = topology.without_guest(self.guest)
        return (
            ("numa_topology", topology),
            ("pci_stats", pools.plus(self.devices)),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """What an instance needs of a host's NUMA cells and PCI devices.

    Attributes
    ----------
    requests : tuple of PciRequest
    providers : tuple of tuple of str, length n_requests
        The resource providers that a candidate assigns to each request; empty: any
        device matches.
    limits : Limits or None
        How far the host's cells may be overcommitted, and the networks that the cells
        must be near to; None: no limits and no networks.
    is_packed : bool
        Whether cells that are in use are preferred (nova's
        ``packing_host_numa_cells_allocation_strategy``).
    """

    guest: Guest | None = None
    requests: tuple[PciRequest, ...] = ()
    providers: tuple[tuple[str, ...], ...] = ()
    limits: Limits | None = None
    is_packed: bool = False

    @property
    def asks_providers(self) -> bool:
        """Whether a candidate may assign providers to some request.

        Candidates assign none to the requests of ports.
        """
        return any(not request.is_from_port for request in self.requests)

    def assigned(self, mappings: Mapping[str, Sequence[str]] | None) -> Need:
        """Return the need with the providers that a candidate's `mappings` assign."""
        providers = tuple(providers_of(request, mappings) for request in self.requests)
        return dataclasses.replace(self, providers=providers)

    def within(self, limits: Limits | None) -> Need:
        """Return the need with the limits of one host."""
        return dataclasses.replace(self, limits=limits)

    def fits(self, topology: HostTopology, pools: HostPools) -> FittedGuest | None:
        """Return the guest on cells near to its devices; None: it does not fit."""
        return self._fitted(self._case(topology, pools), topology, pools)

    def take(
        self, topology: HostTopology | None, pools: HostPools
    ) -> NumaPciUsage | None:
        """Return what the instance takes of a host; None: it takes nothing.

        The rule is nova's ``HostState.consume_from_request``. If the host has changed
        and the cells or devices no longer fit, they are not taken: the next report of
        the host includes what the instance uses.
        """
        case = self._case(topology, pools)
        chosen, fitted = 0, None
        if topology is not None:
            fitted = self._fitted(case, topology, pools)
        if fitted is not None and topology is not None:
            chosen = topology.bits_of(fitted.cell_ids)
            topology = topology.with_guest(fitted)
        pools_left = self._left(case, pools, chosen)
        if fitted is None and pools_left is None:
            return None
        remaining_pools = pools if pools_left is None else pools_left
        has_cells = self.guest is None or fitted is not None
        return NumaPciUsage(
            topology,
            remaining_pools,
            fitted,
            pools.minus(remaining_pools),
            is_complete=has_cells and pools_left is not None,
        )

    def _case(self, topology: HostTopology | None, pools: HostPools) -> Cases:
        """Return a single host as arrays of length 1, with only the parts needed."""
        rows: PoolRows | None = None
        codes: Sequence[Providers] = ()
        if self.requests:
            rows, codes = single_pools(pools, self.providers)
        if topology is None or self.guest is None:
            return Cases(_NO_CELLS, (), self.requests, rows, codes)
        names = () if self.limits is None else self.limits.networks.names()
        declaring = (declaring_cells(topology, name) for name in names)
        declared = [np.array([cells], np.uint64) for cells in declaring]
        cells = CellRows.of_host(topology)
        return Cases(cells, declared, self.requests, rows, codes)

    def _fitted(
        self, case: Cases, topology: HostTopology, pools: HostPools
    ) -> FittedGuest | None:
        """Return the guest as nova's ``numa_fit_instance_to_host`` places it."""
        guest = self.guest
        if guest is None or not 0 < len(guest.cells) <= len(topology.cells):
            return None
        host_cells = cells_in_order(
            topology,
            guest,
            pools.free_by_node,
            wants_devices=bool(self.requests),
            is_packed=self.is_packed,
        )
        ratios = None if self.limits is None else self.limits.ratios
        masks = fitting_cells(case.cells, guest, ratios)
        chosen = first_permutation(
            [int(mask[0]) for mask in masks],
            host_cells,
            lambda cells: bool(case.allow(_FIRST, cells)[0]),
        )
        if chosen is None:
            return None
        return _pinned(case.cells, topology, guest, chosen)

    def _left(self, case: Cases, pools: HostPools, chosen: int) -> HostPools | None:
        """Return the pools without the requested devices; None: some do not fit.

        Parameters
        ----------
        chosen : int
            The host cells that the guest takes, as bits; 0: it takes none.
        """
        if case.pools is None:
            return pools
        cells = ChosenCells.of(case.cells, chosen) if chosen else None
        [passes], free = apply_requests(
            case.pools, self.requests, case.providers, cells
        )
        if not passes:
            return None
        return pools.with_free(free.count[0].tolist(), free.is_there[0].tolist())


def _pinned(
    rows: CellRows, topology: HostTopology, guest: Guest, chosen: Sequence[int]
) -> FittedGuest:
    """Return a guest on the chosen host cells, one for each of its cells."""
    fitted = []
    for index, (host_cell, cell) in enumerate(zip(chosen, guest.cells, strict=True)):
        size = cell.page_size and int(chosen_pages(rows, cell)[0, host_cell])
        fitted.append(pin(topology.cells[host_cell], cell, guest.reserved(index), size))
    return FittedGuest(tuple(fitted))
