"""How many members of the request's server group does each host have?"""

from __future__ import annotations

import numpy as np

from ..objects import RequestSpec
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
    if group is None or "policy" not in group or group.policy != policy:
        return np.zeros(len(hosts))
    members = {*((group.members if "members" in group else None) or ())}
    counts: Weights = hosts.count_instances(members.union(hosts.placed)).astype(float)
    return counts
