# SPDX-License-Identifier: Apache-2.0
"""A filter that passes every host."""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostFilter, Mask, all_hosts


class AllHostsFilter(BaseHostFilter):
    """Pass all hosts."""

    REASON = "never: all hosts pass"
    run_filter_once_per_request = True
    ROWWISE = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return True for every host, shape (n_hosts,)."""
        return all_hosts(hosts)
