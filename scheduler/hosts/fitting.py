# SPDX-License-Identifier: Apache-2.0
"""What an instance needs, and takes, of one host's NUMA cells and PCI devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from .numa import Devices, FittedGuest, Guest, HostTopology, Limits, fit
from .pci import Affinity, HostPools, PciRequest, providers_of, take, taken
from .pci import Taken as TakenDevices

#: Values of columns by name.
Changes = Collection[tuple[str, HostTopology | HostPools | None]]


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """What an instance took of a host's cells and devices.

    Attributes
    ----------
    topology, pools
        What it left.
    guest : FittedGuest or None
        The cells and CPUs that it has; None: none, or it did not fit any more.
    """

    topology: HostTopology | None
    pools: HostPools
    guest: FittedGuest | None
    devices: TakenDevices

    def changes(self) -> Changes:
        """Return the columns that have changed, with their new values."""
        return (("numa_topology", self.topology), ("pci_stats", self.pools))

    def undone(self, topology: HostTopology | None, pools: HostPools) -> Changes:
        """Return the columns of a host after the instance gave all of it back."""
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
        The resource providers that a candidate assigns to each request; none: any
        device will do.
    limits : Limits or None
        How far the host's cells may be overcommitted, and the networks to be near to;
        None: as far as one likes, and none.
    is_packed : bool
        Prefer cells that are in use (nova's
        ``packing_host_numa_cells_allocation_strategy``).
    """

    guest: Guest | None = None
    requests: tuple[PciRequest, ...] = ()
    providers: tuple[tuple[str, ...], ...] = ()
    limits: Limits | None = None
    is_packed: bool = False

    def __bool__(self) -> bool:
        return self.guest is not None or bool(self.requests)

    @property
    def asks_providers(self) -> bool:
        """Whether candidates may assign the devices: those of ports are nobody's."""
        return any(not request.is_from_port for request in self.requests)

    def assigned(self, mappings: Mapping[str, Sequence[str]] | None) -> Need:
        """Return the same with the providers that a candidate's `mappings` assign."""
        providers = tuple(providers_of(each, mappings) for each in self.requests)
        return dataclasses.replace(self, providers=providers)

    def within(self, limits: Limits | None) -> Need:
        """Return the same under the limits of one host."""
        return dataclasses.replace(self, limits=limits)

    def fits(self, topology: HostTopology, pools: HostPools) -> FittedGuest | None:
        """Return how the guest fits a host, its devices near to it, or None.

        The rule is nova's ``numa_fit_instance_to_host``.
        """
        if self.guest is None:
            return None
        devices = Devices(
            per_cell={n: i for n, i in pools.free_by_node.items() if n is not None},
            are_requested=bool(self.requests),
            suffice=lambda cells: self._left(topology, pools, cells) is not None,
        )
        return fit(
            topology, self.guest, self.limits, is_packed=self.is_packed, devices=devices
        )

    def has_devices(self, pools: HostPools) -> bool:
        """Return whether a host has the devices, near to the guest or not."""
        return take(pools, self.requests, self.providers, None) is not None

    def take(self, topology: HostTopology | None, pools: HostPools) -> Taken | None:
        """Return what the instance takes of a host; None for nothing.

        The rule is nova's ``HostState.consume_from_request``. What does not fit any
        more, for the host has changed meanwhile, is not taken: the host will tell.
        """
        fitted = self.fits(topology, pools) if topology is not None else None
        cells = None
        if fitted is not None:
            cells = frozenset(cell.host_cell_id for cell in fitted.cells)
        left = self._left(topology, pools, cells)
        if fitted is None and left is None:
            return None
        if fitted is not None and topology is not None:
            topology = topology.with_guest(fitted)
        after = pools if left is None else left
        return Taken(topology, after, fitted, taken(pools, after))

    def _left(
        self,
        topology: HostTopology | None,
        pools: HostPools,
        cells: frozenset[int] | None,
    ) -> HostPools | None:
        near = None
        if topology is not None and cells is not None:
            near = Affinity(cells, topology.in_sockets_of(cells))
        return take(pools, self.requests, self.providers, near)
