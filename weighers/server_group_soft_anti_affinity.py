# SPDX-License-Identifier: Apache-2.0
"""How few members of the server group are on the host (soft anti-affinity)?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights
from .server_group import count_group_members


class ServerGroupSoftAntiAffinityWeigher(BaseHostWeigher):
    """Weigh by minus the members on the host if the policy is soft-anti-affinity."""

    MULTIPLIER = "soft_anti_affinity_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return minus the members on each host, shape (n_hosts,)."""
        return -count_group_members(hosts, spec_obj, "soft-anti-affinity")
