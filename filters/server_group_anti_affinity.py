# SPDX-License-Identifier: Apache-2.0
"""May the host have one more member of the anti-affinity group?"""

from __future__ import annotations

from ..objects import InstanceGroup, RequestSpec
from ..scheduler.errors import InvalidRequest, excerpt
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Rejection

_RULE = "max_server_per_host"
REASON = "already has as many members of the server group as anti-affinity allows"


class ServerGroupAntiAffinityFilter(BaseHostFilter):
    """Pass hosts with fewer members of the group than ``max_server_per_host``.

    The rule's default is 1. The host that the instance is already on passes, so that it
    can be resized in place. Instances that this request has already placed count.
    """

    REASON = REASON

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts may have one more member, shape (n_hosts,)."""
        group = spec_obj.instance_group
        if group is None or _policy(group) != "anti-affinity":
            return all_hosts(hosts)
        n_members = hosts.count_instances(_members(group, hosts))
        passing: Mask = n_members < max_server_per_host(group)
        if "instance_uuid" in spec_obj:
            passing |= hosts.count_instances({spec_obj.instance_uuid}) > 0
        return passing

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return how many members the host may have, and those it has."""
        rejection = super().explain_rejection(host_state, spec_obj)
        if rejection is None:
            return None
        group = spec_obj.instance_group
        here = host_state.instances.keys() & _members(group, host_state.as_batch())
        return rejection.because(
            "instances",
            required=f"fewer than {max_server_per_host(group)} of the group",
            available=here,
        )


def _members(group: InstanceGroup, hosts: HostBatch) -> set[str]:
    """Return the group's members, including those placed by this request."""
    members = (group.members if "members" in group else None) or ()
    return {*members, *hosts.placed}


def _policy(group: InstanceGroup) -> str | None:
    # An old conductor's group has only the list; the object derives the policy from it.
    is_set = "policy" in group or "policies" in group
    return group.policy if is_set else None


def max_server_per_host(group: InstanceGroup) -> int:
    """Return how many members of a group may be on one host.

    Raises
    ------
    InvalidRequest
        The rule is not a number of at least 1.
    """
    # Rules are text on the wire.
    given = group.get("_rules", {}).get(_RULE, "1")
    try:
        number = int(given)
    except ValueError:
        number = 0
    if number < 1:
        raise InvalidRequest(
            f"instance_group.rules: {_RULE} is {excerpt(given)}; it must be a number "
            "of at least 1"
        )
    return number
