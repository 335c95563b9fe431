# SPDX-License-Identifier: Apache-2.0
"""A filter that passes every host."""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Rejection

REASON = "never: all hosts pass"


class AllHostsFilter(BaseHostFilter):
    """Pass all hosts."""

    REASON = REASON
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return True for every host, shape (n_hosts,)."""
        return all_hosts(hosts)

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return None: no host is rejected."""
        return None
