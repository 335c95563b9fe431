# SPDX-License-Identifier: Apache-2.0
"""Is the compute service enabled and up?"""

from __future__ import annotations

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostFilter, Mask

REASON = "compute service disabled or down"


class ComputeFilter(BaseHostFilter):
    """Pass hosts whose compute service is enabled and beat lately.

    Up: not forced down, and a heartbeat at most ``service_down_time`` seconds away
    from now in either direction (nova's servicegroup driver "db").
    """

    REASON = REASON
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which services are up, shape (n_hosts,)."""
        age_s = np.abs(self.clock() - hosts.last_seen_up)
        is_vouched_for = np.isposinf(hosts.last_seen_up)
        is_up = is_vouched_for | (age_s <= self.conf.service_down_time)
        passing: Mask = is_up & ~hosts.forced_down & ~hosts.disabled
        return passing
