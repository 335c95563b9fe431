# SPDX-License-Identifier: Apache-2.0
"""A host's pools with the interface that nova's filters expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ....objects import InstanceNUMACell, InstancePCIRequest, NUMATopology
from ...request.pci import PciRequest, providers_of
from ..numa import CellRows, ChosenCells, HostTopology
from .pools import HostPools
from .support import single_pools, supported


class PciDeviceStats:
    """The part of nova's object of that name that filters use.

    Attributes
    ----------
    pools : list of dict
        In nova's flat form; writing to them has no effect.
    """

    def __init__(self, pools: HostPools, topology: HostTopology | None) -> None:
        self._pools = pools
        self._topology = topology
        self.pools = pools.to_dicts()

    @property
    def numa_topology(self) -> NUMATopology | None:
        """The host's NUMA cells, as the object that computes report."""
        return None if self._topology is None else self._topology.to_object()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._pools.to_dicts())

    def support_requests(
        self,
        requests: Sequence[InstancePCIRequest],
        provider_mapping: Mapping[str, Sequence[str]] | None,
        numa_cells: Sequence[InstanceNUMACell] | None = None,
    ) -> bool:
        """Return whether all requests can be met, near to these cells if given."""
        pci_requests = [PciRequest.read(request) for request in requests]
        providers = [
            providers_of(request, provider_mapping) for request in pci_requests
        ]
        cells = self._chosen(numa_cells) if numa_cells else None
        rows, codes = single_pools(self._pools, providers)
        return bool(supported(rows, pci_requests, codes, cells)[0])

    def _chosen(self, numa_cells: Sequence[InstanceNUMACell]) -> ChosenCells:
        ids = [cell.id for cell in numa_cells]
        if self._topology is None:
            return ChosenCells(np.array([ids]), np.empty((1, 0), np.int64))
        chosen = self._topology.bits_of(ids)
        return ChosenCells.of(CellRows.of_host(self._topology), chosen)
