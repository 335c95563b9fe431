# SPDX-License-Identifier: Apache-2.0
"""Is the host one of those of the request's affinity group?"""

from __future__ import annotations

from ..objects import InstanceGroup, RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Rejection

REASON = "not a host of the server group with policy affinity"


class ServerGroupAffinityFilter(BaseHostFilter):
    """Pass the hosts of the request's group if its policy is affinity.

    All hosts pass for a group without hosts; later instances of a request follow its
    first.
    """

    REASON = REASON

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts the group is on, shape (n_hosts,)."""
        group_hosts = _group_hosts(hosts, spec_obj)
        return hosts.matches("host", group_hosts) if group_hosts else all_hosts(hosts)

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the hosts that the group is on, and the host."""
        rejection = super().explain_rejection(host_state, spec_obj)
        return rejection and rejection.because(
            "host",
            required=_group_hosts(host_state.as_batch(), spec_obj),
            available=host_state.host,
        )


def _group_hosts(hosts: HostBatch, spec_obj: RequestSpec) -> set[str]:
    """Return the hosts of a group with policy affinity; else none."""
    group = spec_obj.instance_group
    if group is None or "affinity" not in _policies(group):
        return set()
    group_hosts = (group.hosts if "hosts" in group else None) or ()
    return {*group_hosts, *hosts.placed.values()}


def _policies(group: InstanceGroup) -> list[str]:
    """Return the old list of policies, or its equivalent from the policy."""
    policies = group.policies if "policies" in group else None
    if policies:
        return list(policies)
    return [group.policy] if "policy" in group and group.policy else []
