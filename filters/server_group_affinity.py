# SPDX-License-Identifier: Apache-2.0
"""Is the host one of those that the request's affinity group is on?"""

from __future__ import annotations

from ..objects import InstanceGroup, RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostFilter, Mask, everyone

REASON = "not a host of the server group with policy affinity"


class ServerGroupAffinityFilter(BaseHostFilter):
    """Pass the hosts of the request's group if its policy is affinity.

    A group that is on no host yet may go anywhere; the later instances of a request
    follow its first.
    """

    REASON = REASON

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts the group is on, shape (n_hosts,)."""
        group = spec_obj.instance_group
        if group is None or "affinity" not in _policies(group):
            return everyone(hosts)
        group_hosts = {*((group.hosts if "hosts" in group else None) or ())}
        group_hosts.update(hosts.placed.values())
        return hosts.matches("host", group_hosts) if group_hosts else everyone(hosts)


def _policies(group: InstanceGroup) -> list[str]:
    """Return the old list of policies, or what it would be."""
    policies = group.policies if "policies" in group else None
    if policies:
        return list(policies)
    return [group.policy] if "policy" in group and group.policy else []
