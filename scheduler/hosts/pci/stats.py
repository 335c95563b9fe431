# SPDX-License-Identifier: Apache-2.0
"""A host's pools as a filter of nova's protocol reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....objects import InstanceNUMACell, InstancePCIRequest, NUMATopology
from ..numa import HostTopology
from .pools import HostPools
from .requests import PciRequest, providers_of
from .support import Affinity, take


class PciDeviceStats:
    """Answer what nova's object of that name answers to a filter.

    Attributes
    ----------
    pools : list of dict
        In nova's flat form; what is written to them changes nothing.
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
        """Return whether all requests can be met, near to these cells if any."""
        asked = [PciRequest.read(request) for request in requests]
        providers = [providers_of(each, provider_mapping) for each in asked]
        near = None if not numa_cells else self._near(numa_cells)
        return take(self._pools, asked, providers, near) is not None

    def _near(self, numa_cells: Sequence[InstanceNUMACell]) -> Affinity:
        cells = frozenset(cell.id for cell in numa_cells)
        if self._topology is None:
            return Affinity(cells)
        return Affinity(cells, self._topology.in_sockets_of(cells))
