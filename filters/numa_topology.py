# SPDX-License-Identifier: Apache-2.0
"""Do the guest's NUMA cells fit the host's cells, near to its devices and networks?"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Final, Self

from ..objects import NUMATopologyLimits, RequestSpec
from ..scheduler.conf.compute import packs_cells
from ..scheduler.hosts import HostBatch, HostState, HostTopology
from ..scheduler.hosts.fitting.devices import assigned_providers
from ..scheduler.hosts.fitting.guests import candidates_that_fit, hosts_that_fit
from ..scheduler.hosts.fitting.need import Need
from ..scheduler.request import Request
from ..scheduler.request.flavor_and_image import FlavorAndImage
from ..scheduler.request.numa import Networks
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Mismatch
from .remedy import Remedy

_CELLS: Final = "hw:numa_"
_PAGES_AND_CPUS: Final = frozenset(
    {
        "hw:mem_page_size",
        "hw:cpu_policy",
        "hw:cpu_thread_policy",
        "hw:pci_numa_affinity_policy",
    }
)


class NUMATopologyFilter(BaseHostFilter):
    """Pass hosts on which every cell of the guest fits a different cell of the host.

    Policies, page sizes, overcommit, devices and networks are checked as nova's
    ``numa_fit_instance_to_host`` does. If Placement tracks the devices of a flavor,
    each allocation candidate is checked.
    """

    REASON = "the guest's NUMA cells do not fit"
    ROWWISE = True

    _need = Need()
    _networks = Networks()
    _needs_threads = False

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Read the guest's cells, devices and networks."""
        prepared = copy.copy(self)
        request = Request.of(spec_obj)
        prepared._need = Need(
            request.numa, request.pci_requests, is_packed=packs_cells(self.conf)
        )
        prepared._networks = request.networks
        prepared._needs_threads = _needs_threads(request.settings)
        return prepared

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts the guest fits, shape (n_hosts,)."""
        candidates = self.passing_candidates(hosts, spec_obj)
        if candidates is not None:
            return hosts.any_candidate(candidates)
        if self._need.guest is None:
            return self._threaded(hosts)
        return self._threaded(hosts) & hosts_that_fit(hosts, self._need, self._networks)

    def passing_candidates(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> Mask | None:
        """Return which candidates the guest fits, shape (n_candidates,).

        Return None if Placement does not track the guest's devices.
        """
        if self._need.guest is None:
            return None
        providers = assigned_providers(hosts, self._need)
        if providers is None:
            return None
        fit = candidates_that_fit(hosts, self._need, self._networks, providers)
        return fit & self._threaded(hosts)[hosts.candidates.rows]

    def _threaded(self, hosts: HostBatch) -> Mask:
        """Return which hosts have the threads that the guest requires.

        All hosts pass if the guest requires none.
        """
        if not self._needs_threads:
            return all_hosts(hosts)
        return hosts.map_distinct(
            "numa_topology", _may_have_threads, bool, cache_key="threads"
        )

    def selection_limits(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Mapping[str, object]:
        """Return the cells' limits of overcommit, and the metadata of networks."""
        topology = host_state.as_batch().value("numa_topology", 0)
        if self._need.guest is None or topology is None:
            return {}
        limits = NUMATopologyLimits(
            cpu_allocation_ratio=host_state.cpu_allocation_ratio,
            ram_allocation_ratio=host_state.ram_allocation_ratio,
        )
        if "network_metadata" in spec_obj and spec_obj.network_metadata:
            limits.network_metadata = spec_obj.network_metadata
        return {"numa_topology": limits}

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the request with other NUMA cells, named by what makes the cells."""
        settings = Request.of(spec_obj).settings
        extra_specs = [
            f"{name}={value}"
            for name, value in settings.extra_specs.items()
            if name.startswith(_CELLS) or name in _PAGES_AND_CPUS
        ]
        properties = [
            f"{name}={value}"
            for name, value in settings.properties.items()
            if name.replace("hw_", "hw:", 1).startswith(_CELLS)
            or name.replace("hw_", "hw:", 1) in _PAGES_AND_CPUS
        ]
        named = ", ".join([*extra_specs, *properties]) or "its cells"
        text = f"another flavor or image, with NUMA cells that fit: now {named}"
        yield Remedy(rejected, text)

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch | None:
        """Return the guest's cells, and the free amounts of the host's cells."""
        if self._need.guest is None:
            return None
        topology = host_state.as_batch().value("numa_topology", 0)
        required = self._need.guest.describe()
        return "numa_topology", required, topology and topology.describe()


def _may_have_threads(topology: HostTopology | None) -> bool:
    return topology is None or topology.has_threads


def _needs_threads(settings: FlavorAndImage) -> bool:
    """Return whether pinned CPUs have to be threads of one core, by flavor or image."""
    return "dedicated" in settings.both("cpu_policy") and "require" in settings.both(
        "cpu_thread_policy"
    )
