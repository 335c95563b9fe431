# SPDX-License-Identifier: Apache-2.0
"""How new is the hypervisor?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class HypervisorVersionWeigher(BaseHostWeigher):
    """Weigh by ``hypervisor_version``; a host that does not report one has 0."""

    MULTIPLIER = "hypervisor_version_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return versions in libvirt's encoding, shape (n_hosts,)."""
        weights: Weights = hosts.hypervisor_version.astype(float)
        return weights
