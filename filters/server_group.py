# SPDX-License-Identifier: Apache-2.0
"""Filters by the policy of the request's server group: affinity or anti-affinity."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.locality import JointRule, OnePlace, RoomOfPlaces
from ..scheduler.request import Request
from ..scheduler.request.server_group import AFFINITY, ANTI_AFFINITY, ServerGroup
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Mismatch
from .remedy import Remedy


class ServerGroupAffinityFilter(BaseHostFilter):
    """Pass the hosts of the request's server group if its policy is affinity.

    All hosts pass if the group is on no host yet. Instances that this request has
    already placed count, so that later instances follow the first one.
    """

    REASON = "not a host of the server group with policy affinity"

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts the group is on, shape (n_hosts,)."""
        group_hosts = _group_hosts(hosts, spec_obj)
        return hosts.matches("host", group_hosts) if group_hosts else all_hosts(hosts)

    def joint_rules(self, hosts: HostBatch, spec_obj: RequestSpec) -> list[JointRule]:
        """Return the rule to use one host for all instances, if the group has none."""
        is_first = not _group_hosts(hosts, spec_obj)
        if is_first and _group_with(AFFINITY, spec_obj) is not None:
            return [OnePlace(hosts.codes("host"))]
        return []

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the hosts that the group is on, and the name of the rejected host."""
        required = _group_hosts(host_state.as_batch(), spec_obj)
        return "host", required, host_state.host

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change of the server group."""
        group_hosts = sorted(_group_hosts(hosts, spec_obj))
        text = (
            "no server group, or one with policy soft-affinity: the group with policy "
            f"affinity is on {', '.join(group_hosts[:3])}"
        )
        yield Remedy(rejected, text, is_of_group=True)


def _group_hosts(hosts: HostBatch, spec_obj: RequestSpec) -> frozenset[str]:
    """Return the hosts of the group if its policy is affinity; otherwise no hosts."""
    group = _group_with(AFFINITY, spec_obj)
    return frozenset() if group is None else group.hosts.union(hosts.placed.values())


class ServerGroupAntiAffinityFilter(BaseHostFilter):
    """Pass hosts with fewer members of the group than ``max_server_per_host``.

    The rule's default is 1. The host that has reported an existing instance passes, so
    that the instance can be resized there. The instance itself does not count, other
    instances that this request has already placed do.
    """

    REASON = "already has as many members of the server group as anti-affinity allows"
    ROWWISE = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts may have one more member, shape (n_hosts,)."""
        group = _group_with(ANTI_AFFINITY, spec_obj)
        if group is None:
            return all_hosts(hosts)
        instance = _instance_of(spec_obj)
        others = group.members.union(hosts.placed) - {instance}
        is_below: Mask = hosts.count_instances(others) < group.max_per_host
        return is_below | hosts.has_reported(instance)

    def joint_rules(self, hosts: HostBatch, spec_obj: RequestSpec) -> list[JointRule]:
        """Return how many further members each service host may have."""
        group = _group_with(ANTI_AFFINITY, spec_obj)
        if group is None:
            return []
        host_codes = hosts.codes("host")
        room = np.zeros(int(host_codes.max(initial=-1)) + 1, np.int64)
        n_members = hosts.count_instances(group.members.union(hosts.placed))
        room[host_codes] = group.max_per_host - n_members
        return [RoomOfPlaces(host_codes, room)]

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch | None:
        """Return how many members the host may have, and which members it has."""
        group = _group_with(ANTI_AFFINITY, spec_obj)
        if group is None:
            return None
        members = group.members.union(host_state.as_batch().placed)
        members -= {_instance_of(spec_obj)}
        required = f"fewer than {group.max_per_host} of the group"
        return "instances", required, host_state.instances.keys() & members

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change of the server group."""
        group = _group_with(ANTI_AFFINITY, spec_obj)
        limit = group.max_per_host if group is not None else 1
        text = (
            "no server group, or one with policy soft-anti-affinity or a higher "
            f"max_server_per_host than {limit}"
        )
        yield Remedy(rejected, text, is_of_group=True)


def _instance_of(spec_obj: RequestSpec) -> str:
    """Return the UUID of the request's instance; empty if it has none."""
    return spec_obj.instance_uuid if "instance_uuid" in spec_obj else ""


def _group_with(policy: str, spec_obj: RequestSpec) -> ServerGroup | None:
    """Return the request's server group if it has the given policy; otherwise None."""
    group = Request.of(spec_obj).server_group
    return group if group is not None and group.policy == policy else None
