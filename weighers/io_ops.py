# SPDX-License-Identifier: Apache-2.0
"""How busy is the host building, resizing, snapshotting?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class IoOpsWeigher(BaseHostWeigher):
    """Weigh by ``num_io_ops``; the default multiplier prefers quiet hosts."""

    MULTIPLIER = "io_ops_weight_multiplier"
    minval = 0.0

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return operations under way, shape (n_hosts,)."""
        weights: Weights = hosts.num_io_ops.astype(float)
        return weights
