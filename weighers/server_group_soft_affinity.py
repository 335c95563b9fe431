# SPDX-License-Identifier: Apache-2.0
"""How many members of the server group are on the host (soft affinity)?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights
from .server_group import count_group_members


class ServerGroupSoftAffinityWeigher(BaseHostWeigher):
    """Weigh by the members of the group on the host if its policy is soft-affinity."""

    MULTIPLIER = "soft_affinity_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the members on each host, shape (n_hosts,)."""
        return count_group_members(hosts, spec_obj, "soft-affinity")
