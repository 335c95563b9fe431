# SPDX-License-Identifier: Apache-2.0
"""Reject hosts in quarantine: the form for one host, clear and slower."""

from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec
from moorage.scheduler.hosts import HostState


class QuarantineFilter(BaseHostFilter):
    """Reject hosts of aggregates with the metadata ``quarantine=true``."""

    REASON = "host is in quarantine"
    run_filter_once_per_request = True

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        """Return whether no aggregate of the host has the metadata."""
        return not any(
            aggregate.metadata.get("quarantine") == "true"
            for aggregate in host_state.aggregates
        )
