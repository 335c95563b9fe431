# SPDX-License-Identifier: Apache-2.0
"""Do the image's isolation and the host's go together?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Rejection
from .requested import image_id

REASON = "isolated for other images, or the image is isolated to other hosts"


class IsolatedHostsFilter(BaseHostFilter):
    """Keep ``isolated_images`` on ``isolated_hosts``, and other images off them.

    The latter only with ``restrict_isolated_hosts_to_isolated_images``, the default.
    Names of hosts are compared as they are. An instance without an image ID, as one
    that boots from a volume, has no isolated image.
    """

    REASON = REASON
    RUN_ON_REBUILD = True
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts suit the image, shape (n_hosts,)."""
        options = self.conf.filter_scheduler
        is_isolated = hosts.matches("host", options.isolated_hosts)
        if self._has_isolated_image(spec_obj):
            return is_isolated
        if options.restrict_isolated_hosts_to_isolated_images:
            return ~is_isolated
        return all_hosts(hosts)

    def _has_isolated_image(self, spec_obj: RequestSpec) -> bool:
        return image_id(spec_obj) in self.conf.filter_scheduler.isolated_images

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the image's isolation and the host's."""
        rejection = super().explain_rejection(host_state, spec_obj)
        hosts = ", ".join(self.conf.filter_scheduler.isolated_hosts) or "nothing"
        is_wanted = self._has_isolated_image(spec_obj)
        return rejection and rejection.because(
            "host",
            required=f"{'one of' if is_wanted else 'none of'} isolated_hosts: {hosts}",
            available=host_state.host,
        )
