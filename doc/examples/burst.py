# SPDX-License-Identifier: Apache-2.0
"""A filter in both forms, and a weigher in both forms."""

from moorage.filters import BaseHostFilter
from moorage.weighers import BaseHostWeigher

REASON = "may not burst: its CPUs are not overcommitted"


class Burst(BaseHostFilter):
    """Pass hosts that may burst."""

    REASON = REASON

    def host_passes(self, host_state, spec_obj):
        """Return whether one host may."""
        return host_state.cpu_allocation_ratio > 1.0


class BurstColumn(BaseHostFilter):
    """Pass hosts that may burst."""

    REASON = REASON

    def passing(self, hosts, spec_obj):
        """Return which hosts may, shape (n_hosts,)."""
        return hosts.cpu_allocation_ratio > 1.0


class FewInstances(BaseHostWeigher):
    """Weigh down by instances."""

    def weigh_host(self, host_state, spec_obj):
        """Return minus the instances of one host."""
        return -float(host_state.num_instances)


class FewInstancesColumn(BaseHostWeigher):
    """Weigh down by instances."""

    def weigh_all(self, hosts, spec_obj):
        """Return minus the instances of each host, shape (n_hosts,)."""
        return -hosts.num_instances.astype(float)
