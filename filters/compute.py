# SPDX-License-Identifier: Apache-2.0
"""Is the compute service enabled and up?"""

from __future__ import annotations

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask
from .rejection import Mismatch


class ComputeFilter(BaseHostFilter):
    """Pass hosts whose compute service is enabled and up.

    A service is up if it is not forced down, and its last heartbeat is at most
    ``service_down_time`` seconds from now in either direction (nova's servicegroup
    driver "db").
    """

    REASON = "compute service disabled or down"
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which services are up, shape (n_hosts,)."""
        age_s = np.abs(self.clock() - hosts.last_seen_up)
        is_always_up = np.isposinf(hosts.last_seen_up)
        is_up = is_always_up | (age_s <= self.conf.service_down_time)
        passing: Mask = is_up & ~hosts.forced_down & ~hosts.disabled
        return passing

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return disabled or forced_down if that is true, else the heartbeat's age."""
        if host_state.disabled:
            reason = host_state.disabled_reason
            return "disabled", False, f"True: {reason}" if reason else True
        if host_state.forced_down:
            return "forced_down", False, True
        last_seen: float = host_state.last_seen_up
        age = (
            "never" if np.isnan(last_seen) else f"{self.clock() - last_seen:.0f} s ago"
        )
        return "last_seen_up", f"at most {self.conf.service_down_time} s ago", age
