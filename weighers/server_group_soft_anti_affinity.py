# SPDX-License-Identifier: Apache-2.0
"""Is the host far from the rest of the server group?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights
from .server_group import members_on_hosts


class ServerGroupSoftAntiAffinityWeigher(BaseHostWeigher):
    """Weigh down by the members on the host if the policy is soft-anti-affinity."""

    MULTIPLIER = "soft_anti_affinity_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return minus the members on each host, shape (n_hosts,)."""
        return -members_on_hosts(hosts, spec_obj, "soft-anti-affinity")
