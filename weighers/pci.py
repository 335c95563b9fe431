# SPDX-License-Identifier: Apache-2.0
"""How few PCI devices does the host have free?"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights

#: From here on devices are not scarce, and hosts are alike.
_MANY: Final = 99


class PCIWeigher(BaseHostWeigher):
    """Weigh by ``100 - min(free devices, 99)``, whatever is asked for.

    Hosts without devices are used first, then those with few: guests that need devices
    find hosts that have many left, and others stay away from them.
    """

    MULTIPLIER = "pci_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return 100 for no free devices, 1 for 99 and more, shape (n_hosts,)."""
        free: Weights = hosts.map_distinct(
            "pci_stats",
            lambda pools: pools.n_free,
            np.float64,
            cache_key=("HostPools.n_free",),
        )
        weights: Weights = _MANY + 1 - np.minimum(free, _MANY)
        return weights
