# SPDX-License-Identifier: Apache-2.0
"""How few free PCI devices does the host have?"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights

#: All hosts with at least this number of free devices weigh the same.
_MANY: Final = 99


class PCIWeigher(BaseHostWeigher):
    """Weigh by ``100 - min(free devices, 99)``, for every request.

    Hosts without devices are used first, then hosts with few devices, so that hosts
    with many devices stay free for guests that need devices.
    """

    MULTIPLIER = "pci_weight_multiplier"
    ROWWISE = True

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return 100 for hosts without free devices, 1 for 99 or more; (n_hosts,)."""
        n_free: Weights = hosts.map_distinct(
            "pci_stats",
            lambda pools: pools.n_free,
            np.float64,
            cache_key=("HostPools.n_free",),
        )
        weights: Weights = _MANY + 1 - np.minimum(n_free, _MANY)
        return weights
