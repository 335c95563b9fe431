# SPDX-License-Identifier: Apache-2.0
"""Does the host have fewer instances than its aggregates allow?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .aggregate_limit import Limits, aggregate_limits
from .base import BaseHostFilter, Mask
from .rejection import Rejection

REASON = "as many instances as its aggregates allow, or more"


class AggregateNumInstancesFilter(BaseHostFilter):
    """Pass hosts with fewer instances than their aggregates allow.

    The metadata ``max_instances_per_host`` says how many, or else the option.
    """

    REASON = REASON

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts have fewer, shape (n_hosts,)."""
        passing: Mask = hosts.num_instances < self._limits(hosts)
        return passing

    def _limits(self, hosts: HostBatch) -> Limits:
        default: int = self.conf.filter_scheduler.max_instances_per_host
        return aggregate_limits(hosts, "max_instances_per_host", default)

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return how many there are, and the limit."""
        rejection = super().explain_rejection(host_state, spec_obj)
        return rejection and rejection.because(
            "num_instances",
            required=f"less than {self._limits(host_state.as_batch())[0]}",
            available=host_state.num_instances,
        )
