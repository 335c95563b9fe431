# SPDX-License-Identifier: Apache-2.0
"""How many members of the request's server group does each host have?"""

from __future__ import annotations

import numpy as np

from ..objects import InstanceGroup, RequestSpec
from ..scheduler.hosts import HostBatch
from .base import Weights


def count_group_members(
    hosts: HostBatch, spec_obj: RequestSpec, policy: str
) -> Weights:
    """Return the group members on each host if the group has `policy`, else zeros.

    Instances that this request has placed already are counted, too.

    Returns
    -------
    ndarray of float64, shape (n_hosts,)
    """
    group = spec_obj.instance_group
    if group is None or _policy(group) != policy:
        return np.zeros(len(hosts))
    members = {*((group.members if "members" in group else None) or ())}
    counts: Weights = hosts.count_instances(members.union(hosts.placed)).astype(float)
    return counts


def _policy(group: InstanceGroup) -> str | None:
    # A group from an old conductor only has `policies`; the object's `policy` reads it.
    is_set = "policy" in group or "policies" in group
    return group.policy if is_set else None
