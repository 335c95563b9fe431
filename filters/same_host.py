# SPDX-License-Identifier: Apache-2.0
"""Does the host have one of the instances that the request must be with?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, all_hosts
from .hinted_instances import hinted_here, hosts_with_hinted
from .rejection import Rejection
from .requested import hint_values

REASON = "has no instance that the hint same_host names"

_HINT = "same_host"


class SameHostFilter(BaseHostFilter):
    """Pass hosts with at least one instance that the hint ``same_host`` names.

    One is enough, as in nova, although nova's documentation requires all.
    """

    REASON = REASON
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts have one of them, shape (n_hosts,)."""
        having = hosts_with_hinted(hosts, spec_obj, _HINT)
        return all_hosts(hosts) if having is None else having

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the instances that the hint names, and those that the host has."""
        rejection = super().explain_rejection(host_state, spec_obj)
        return rejection and rejection.because(
            "instances",
            required=f"one of {', '.join(hint_values(spec_obj, _HINT))}",
            available=hinted_here(host_state, spec_obj, _HINT),
        )
