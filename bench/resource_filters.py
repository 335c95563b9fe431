# SPDX-License-Identifier: Apache-2.0
"""Filters for RAM, CPU and disk, one host at a time, as nova had before Placement.

The rules are those of RamFilter, CoreFilter and DiskFilter in nova 14.
"""

from __future__ import annotations

from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec
from moorage.scheduler.hosts import HostState


class OldRamFilter(BaseHostFilter):
    """Pass hosts with enough RAM."""

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        total = host_state.total_usable_ram_mb
        if total < spec_obj.memory_mb:  # an instance never overcommits against itself
            return False
        used = total - host_state.free_ram_mb
        return total * host_state.ram_allocation_ratio - used >= spec_obj.memory_mb


class OldCoreFilter(BaseHostFilter):
    """Pass hosts with enough vCPUs."""

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        total = host_state.vcpus_total
        if total < spec_obj.vcpus:
            return False
        free = total * host_state.cpu_allocation_ratio - host_state.vcpus_used
        return free >= spec_obj.vcpus


class OldDiskFilter(BaseHostFilter):
    """Pass hosts with enough local disk."""

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        requested = 1024 * (spec_obj.root_gb + spec_obj.ephemeral_gb) + spec_obj.swap
        total = 1024 * host_state.total_usable_disk_gb
        if total < requested:
            return False
        used = total - host_state.free_disk_mb
        return total * host_state.disk_allocation_ratio - used >= requested
