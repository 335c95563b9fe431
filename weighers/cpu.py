# SPDX-License-Identifier: Apache-2.0
"""How many vCPUs are free?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class CPUWeigher(BaseHostWeigher):
    """Weigh by the free vCPUs, ``vcpus_total * cpu_allocation_ratio - vcpus_used``."""

    MULTIPLIER = "cpu_weight_multiplier"
    minval = 0.0

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return free vCPUs, shape (n_hosts,)."""
        usable = hosts.vcpus_total * hosts.cpu_allocation_ratio
        weights: Weights = usable - hosts.vcpus_used
        return weights
