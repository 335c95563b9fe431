# SPDX-License-Identifier: Apache-2.0
"""Save power: a column of hosts that agents report, and a weigher that reads it."""

import numpy as np
import numpy.typing as npt

from moorage.objects import RequestSpec
from moorage.scheduler.hosts import Column, HostBatch
from moorage.weighers import BaseHostWeigher

POWER = Column(
    name="power_watts",
    dtype=float,
    default=0.0,
    unit="W",
    description="electrical power that the host draws",
)


class PowerWeigher(BaseHostWeigher):
    """Prefer hosts that draw little power."""

    def weigh_all(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> npt.NDArray[np.float64]:
        """Return minus the power, W, float64, shape (n_hosts,)."""
        return -hosts.power_watts
