# SPDX-License-Identifier: Apache-2.0
"""Does the host have the requested PCI devices?"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Self

from ..objects import RequestSpec
from ..scheduler.conf.compute import packs_cells
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.hosts.fitting.devices import (
    assigned_providers,
    candidates_with_devices,
    hosts_with_devices,
)
from ..scheduler.hosts.fitting.need import Need
from ..scheduler.request import Request
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Mismatch
from .remedy import Remedy


class PciPassthroughFilter(BaseHostFilter):
    """Pass hosts whose PCI pools have the requested devices, in any NUMA cell.

    If Placement tracks the devices of a flavor, each allocation candidate is checked by
    the providers that the candidate maps.
    """

    REASON = "the PCI devices are not free"
    ROWWISE = True

    _need = Need()

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Read the PCI requests."""
        prepared = copy.copy(self)
        request = Request.of(spec_obj)
        prepared._need = Need(
            request.numa, request.pci_requests, is_packed=packs_cells(self.conf)
        )
        return prepared

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return on which hosts the devices are free, shape (n_hosts,)."""
        candidates = self.passing_candidates(hosts, spec_obj)
        if candidates is not None:
            return hosts.any_candidate(candidates)
        if not self._need.requests:
            return all_hosts(hosts)
        return hosts_with_devices(hosts, self._need)

    def passing_candidates(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> Mask | None:
        """Return the candidates whose providers have the devices, (n_candidates,).

        Return None if Placement does not track the devices.
        """
        providers = assigned_providers(hosts, self._need)
        if providers is None:
            return None
        return candidates_with_devices(hosts, self._need, providers)

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the requested devices, and the devices that are free on the host."""
        required = [request.describe() for request in self._need.requests]
        pools = host_state.as_batch().value("pci_stats", 0)
        return "pci_stats", required, pools.describe()

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the request with fewer devices."""
        devices = "; ".join(request.describe() for request in self._need.requests)
        yield Remedy(
            rejected,
            f"another flavor or ports, with fewer or other PCI devices than {devices}",
            values=lambda hosts: hosts.map_distinct(
                "pci_stats",
                lambda pools: pools.describe(),
                object,
            ),
        )
