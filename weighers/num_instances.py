# SPDX-License-Identifier: Apache-2.0
"""How many instances does the host have?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class NumInstancesWeigher(BaseHostWeigher):
    """Weigh by ``num_instances``."""

    MULTIPLIER = "num_instances_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the numbers of instances, shape (n_hosts,)."""
        weights: Weights = hosts.num_instances.astype(float)
        return weights
