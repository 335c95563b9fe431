# SPDX-License-Identifier: Apache-2.0
"""Does the image's isolation match the host's?"""

from __future__ import annotations

from collections.abc import Iterator

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.request import Request, get_field
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Mismatch
from .remedy import Remedy


class IsolatedHostsFilter(BaseHostFilter):
    """Pass ``isolated_hosts`` for ``isolated_images``; other hosts for other images.

    Isolated hosts also pass for other images if
    ``restrict_isolated_hosts_to_isolated_images``, which is true by default, is false.
    Host names are compared literally. An instance without an image ID, for example one
    that boots from a volume, has no isolated image.
    """

    REASON = "isolated for other images, or the image is isolated to other hosts"
    RUN_ON_REBUILD = True
    run_filter_once_per_request = True
    ROWWISE = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts match the image's isolation, shape (n_hosts,)."""
        options = self.conf.filter_scheduler
        is_isolated = hosts.matches("host", options.isolated_hosts)
        if self._has_isolated_image(spec_obj):
            return is_isolated
        if options.restrict_isolated_hosts_to_isolated_images:
            return ~is_isolated
        return all_hosts(hosts)

    def _has_isolated_image(self, spec_obj: RequestSpec) -> bool:
        image_id = get_field(Request.of(spec_obj).image, "id")
        return image_id in self.conf.filter_scheduler.isolated_images

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return whether the host must be one of the isolated hosts, and the host."""
        hosts = ", ".join(self.conf.filter_scheduler.isolated_hosts) or "nothing"
        quantifier = "one of" if self._has_isolated_image(spec_obj) else "none of"
        return "host", f"{quantifier} isolated_hosts: {hosts}", host_state.host

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change of the image."""
        if self._has_isolated_image(spec_obj):
            text = (
                "another image, one that is not in [filter_scheduler] isolated_images"
            )
            alternative = "the hosts in [filter_scheduler] isolated_hosts"
        else:
            text = "another image, one of [filter_scheduler] isolated_images"
            alternative = "the hosts not in [filter_scheduler] isolated_hosts"
        yield Remedy(rejected, text, alternative=alternative)
