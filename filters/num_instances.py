# SPDX-License-Identifier: Apache-2.0
"""Does the host have few enough instances?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask
from .rejection import Rejection

REASON = "as many instances as max_instances_per_host allows, or more"


class NumInstancesFilter(BaseHostFilter):
    """Pass hosts with fewer instances than ``max_instances_per_host``."""

    REASON = REASON

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts have fewer, shape (n_hosts,)."""
        passing: Mask = hosts.num_instances < self._limit
        return passing

    @property
    def _limit(self) -> int:
        limit: int = self.conf.filter_scheduler.max_instances_per_host
        return limit

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return how many there are, and the limit."""
        rejection = super().explain_rejection(host_state, spec_obj)
        return rejection and rejection.because(
            "num_instances",
            required=f"less than {self._limit}",
            available=host_state.num_instances,
        )
