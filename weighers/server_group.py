# SPDX-License-Identifier: Apache-2.0
"""How many members of the request's server group does each host have?"""

from __future__ import annotations

import numpy as np

from ..objects import InstanceGroup, RequestSpec
from ..scheduler.hosts import HostBatch
from .base import Weights


def members_on_hosts(hosts: HostBatch, spec_obj: RequestSpec, policy: str) -> Weights:
    """Return the members on each host if the group has that policy, else zeros.

    Instances that this request has placed already count.

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
    # A group of an old conductor has the list only; the object reads it as the policy.
    is_set = "policy" in group or "policies" in group
    return group.policy if is_set else None
