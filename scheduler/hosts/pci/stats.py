# SPDX-License-Identifier: Apache-2.0
"""A host's pools as a filter of nova's protocol reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....objects import InstanceNUMACell, InstancePCIRequest, NUMATopology
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

    def __init__(self, pools: HostPools, numa_topology: NUMATopology | None) -> None:
        self._pools = pools
        self.numa_topology = numa_topology
        self.pools = pools.to_dicts()

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
        near = None if not numa_cells else self._near({cell.id for cell in numa_cells})
        return take(self._pools, asked, providers, near) is not None

    def _near(self, cells: set[int]) -> Affinity:
        of_host = self.numa_topology.cells if self.numa_topology is not None else []
        sockets = {cell.socket for cell in of_host if cell.id in cells}
        same = {cell.id for cell in of_host if cell.socket in sockets}
        if any(cell.socket is None for cell in of_host):
            same = set()
        return Affinity(frozenset(cells), frozenset(same))
