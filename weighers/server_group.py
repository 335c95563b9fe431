# SPDX-License-Identifier: Apache-2.0
"""Weighers by the members of the request's server group on each host."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from ..scheduler.locality import PlacesUsed, per_place
from ..scheduler.request import Request
from ..scheduler.request.server_group import SOFT_AFFINITY, SOFT_ANTI_AFFINITY
from .base import BaseHostWeigher, Weights


class GroupMembersWeigher(BaseHostWeigher):
    """Weigh by the number of group members on the host, if the policy is `POLICY`.

    Instances that this request has already placed count. Each member counts `SIGN`.
    """

    POLICY: ClassVar[str]
    SIGN: ClassVar[float]

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the number of members on each host times `SIGN`, shape (n_hosts,)."""
        group = Request.of(spec_obj).server_group
        if group is None or group.policy != self.POLICY:
            return np.zeros(len(hosts))
        members = group.members.union(hosts.placed)
        counts: Weights = hosts.count_instances(members).astype(np.float64)
        return counts * self.SIGN

    def joint_wishes(self, hosts: HostBatch, spec_obj: RequestSpec) -> list[PlacesUsed]:
        """Return the wish that the instances use few, or many, service hosts.

        The multiplier is the weight of each used host; `SIGN` decides for few or many.
        """
        group = Request.of(spec_obj).server_group
        if group is None or group.policy != self.POLICY:
            return []
        host_codes = hosts.codes("host")
        return [
            PlacesUsed(
                host_codes, per_place(host_codes, -self.SIGN * self.multipliers(hosts))
            )
        ]


class ServerGroupSoftAffinityWeigher(GroupMembersWeigher):
    """Weigh by the group members on the host, for policy soft-affinity."""

    POLICY = SOFT_AFFINITY
    SIGN = 1.0
    MULTIPLIER = "soft_affinity_weight_multiplier"
    ROWWISE = True


class ServerGroupSoftAntiAffinityWeigher(GroupMembersWeigher):
    """Weigh by minus the group members on the host, for policy soft-anti-affinity."""

    POLICY = SOFT_ANTI_AFFINITY
    SIGN = -1.0
    MULTIPLIER = "soft_anti_affinity_weight_multiplier"
    ROWWISE = True
