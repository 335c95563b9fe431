# SPDX-License-Identifier: Apache-2.0
"""Is the host near to the rest of the server group?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights
from .server_group import members_on_hosts


class ServerGroupSoftAffinityWeigher(BaseHostWeigher):
    """Weigh by the members of the group on the host if its policy is soft-affinity."""

    MULTIPLIER = "soft_affinity_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the members on each host, shape (n_hosts,)."""
        return members_on_hosts(hosts, spec_obj, "soft-affinity")
