# SPDX-License-Identifier: Apache-2.0
"""How much RAM is free?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class RAMWeigher(BaseHostWeigher):
    """Weigh by ``free_ram_mb``: the last report of the compute, less our own claims."""

    MULTIPLIER = "ram_weight_multiplier"
    minval = 0.0

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return free MiB, shape (n_hosts,)."""
        weights: Weights = hosts.free_ram_mb.astype(float)
        return weights
