# SPDX-License-Identifier: Apache-2.0
"""Does the host have none of the instances that the request must be apart from?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, all_hosts
from .hinted_instances import hinted_here, hosts_with_hinted
from .rejection import Rejection
from .requested import hint_values

REASON = "has an instance that the hint different_host names"

_HINT = "different_host"


class DifferentHostFilter(BaseHostFilter):
    """Pass hosts with none of the instances that the hint ``different_host`` names.

    The owner and the existence of the instances are not checked, as in nova.
    """

    REASON = REASON
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts have none of them, shape (n_hosts,)."""
        having = hosts_with_hinted(hosts, spec_obj, _HINT)
        return all_hosts(hosts) if having is None else ~having

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return which of the instances the host has."""
        rejection = super().explain_rejection(host_state, spec_obj)
        return rejection and rejection.because(
            "instances",
            required=f"none of {', '.join(hint_values(spec_obj, _HINT))}",
            available=hinted_here(host_state, spec_obj, _HINT),
        )
