# SPDX-License-Identifier: Apache-2.0
"""Keep instances off hosts in quarantine: the per-host form, clear and slower."""

from moorage.filters import BaseHostFilter
from moorage.objects import RequestSpec
from moorage.scheduler.hosts import HostState


class QuarantineFilter(BaseHostFilter):
    """Reject hosts whose aggregates say ``quarantine=true``."""

    REASON = "host is in quarantine"
    run_filter_once_per_request = True

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        """Return whether none of the host's aggregates is a quarantine."""
        return not any(
            aggregate.metadata.get("quarantine") == "true"
            for aggregate in host_state.aggregates
        )
