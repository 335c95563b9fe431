# SPDX-License-Identifier: Apache-2.0
"""How many I/O-heavy operations (build, resize, snapshot, …) run on the host?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class IoOpsWeigher(BaseHostWeigher):
    """Weigh by ``num_io_ops``; the default multiplier prefers idle hosts."""

    MULTIPLIER = "io_ops_weight_multiplier"
    minval = 0.0

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the operations in progress, shape (n_hosts,)."""
        weights: Weights = hosts.num_io_ops.astype(float)
        return weights
