# SPDX-License-Identifier: Apache-2.0
"""Fill the fullest host first: the form for all hosts at once."""

import numpy as np
import numpy.typing as npt

from moorage.objects import RequestSpec
from moorage.scheduler.hosts import HostBatch
from moorage.weighers import BaseHostWeigher


class FillWeigher(BaseHostWeigher):
    """Prefer hosts with the most used memory, so that others can be switched off."""

    # The weight is a share of the memory, so its range is known for all hosts.
    minval = 0.0
    maxval = 1.0

    def weigh_all(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> npt.NDArray[np.float64]:
        """Return the share of memory in use, float64, shape (n_hosts,)."""
        total_mb = hosts.total_usable_ram_mb
        used_mb = (total_mb - hosts.free_ram_mb).astype(np.float64)
        # The share of a host without memory is 0.
        return np.divide(
            used_mb, total_mb, out=np.zeros(len(hosts)), where=total_mb > 0
        )
