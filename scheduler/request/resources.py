# SPDX-License-Identifier: Apache-2.0
"""The query groups of a request: flavor, CPU policies, ports and devices, features.

The order matters: a resource that an extra spec names replaces the flavor's own amount,
and a guest's feature replaces what an extra spec names (nova 34).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import os_resource_classes as orc
import os_traits

from ..errors import InvalidRequest
from .checks import MAX_AMOUNT
from .cpu_policy import (
    CPUPolicy,
    EmulatorPolicy,
    ThreadPolicy,
    cpu_policy,
    emulator_policy,
    n_dedicated_cpus,
    thread_policy,
)
from .features import feature_resources, feature_traits
from .flavor_and_image import FlavorAndImage, set_field
from .flavor_groups import FlavorGroups
from .groups import QueryGroup

if TYPE_CHECKING:
    from ...objects import RequestSpec

_MIB_PER_GIB = 1024


def query_groups(
    spec_obj: RequestSpec,
    guest: FlavorAndImage,
    from_flavor: FlavorGroups,
    *,
    is_pinned: bool,
) -> list[QueryGroup]:
    """Return all groups of a request, always one without a suffix.

    Parameters
    ----------
    spec_obj : moorage.objects.RequestSpec
        The request; it is only read.
    guest : FlavorAndImage
        Its flavor and image.
    from_flavor : FlavorGroups
        Its flavor's own groups, which are extended and returned among the others.
    is_pinned : bool
        Whether CPU policies mean PCPU and traits; False for hosts without PCPU.

    Raises
    ------
    InvalidRequest
        A policy, mask or feature is invalid, or the disk exceeds Placement's integer.
    """
    unsuffixed = from_flavor.group("")
    if is_pinned:
        _add_cpu_policies(unsuffixed, guest)
    groups = [*from_flavor.groups.values(), *_requested_groups(spec_obj)]
    _add_flavor_amounts(unsuffixed, groups, spec_obj)
    unsuffixed.required |= set(guest.image_property("traits_required") or ())
    unsuffixed.required |= feature_traits(guest)
    unsuffixed.resources |= feature_resources(guest)
    for group in groups:
        group.strip_zeros()
    return [group for group in groups if not group.suffix or not group.is_empty]


def _add_cpu_policies(group: QueryGroup, guest: FlavorAndImage) -> None:
    policy = cpu_policy(guest)
    n_emulator = int(emulator_policy(guest) is EmulatorPolicy.ISOLATE)
    if policy is CPUPolicy.DEDICATED:
        group.resources[orc.PCPU] = guest.n_vcpus + n_emulator
    elif policy is CPUPolicy.MIXED:
        n_dedicated = n_dedicated_cpus(guest)
        group.resources[orc.VCPU] = guest.n_vcpus - n_dedicated
        group.resources[orc.PCPU] = n_dedicated + n_emulator
    threads = thread_policy(guest)
    if threads is ThreadPolicy.REQUIRE:
        group.required.add(os_traits.HW_CPU_HYPERTHREADING)
    elif threads is ThreadPolicy.ISOLATE:
        group.forbidden.add(os_traits.HW_CPU_HYPERTHREADING)


def _requested_groups(spec_obj: RequestSpec) -> list[QueryGroup]:
    """Return copies of the groups of ports, PCI devices and device profiles."""
    return [
        QueryGroup(
            suffix=group.requester_id,
            resources=dict(set_field(group, "resources") or {}),
            required=set(set_field(group, "required_traits") or ()),
            forbidden=set(set_field(group, "forbidden_traits") or ()),
            member_of=[frozenset(u) for u in set_field(group, "aggregates") or ()],
            forbidden_aggregates=set(set_field(group, "forbidden_aggregates") or ()),
            in_tree=set_field(group, "in_tree"),
        )
        for group in set_field(spec_obj, "requested_resources") or ()
    ]


def _add_flavor_amounts(
    unsuffixed: QueryGroup, groups: list[QueryGroup], spec_obj: RequestSpec
) -> None:
    """Add the flavor's amounts of the classes that no group names, not even with 0."""
    named = {name for group in groups for name in group.resources}
    flavor = spec_obj.flavor
    if not named & {orc.VCPU, orc.PCPU}:
        unsuffixed.resources[orc.VCPU] = flavor.vcpus
    if orc.MEMORY_MB not in named:
        unsuffixed.resources[orc.MEMORY_MB] = flavor.memory_mb
    if orc.DISK_GB not in named:
        unsuffixed.resources[orc.DISK_GB] = _disk_gb(spec_obj)


def _disk_gb(spec_obj: RequestSpec) -> int:
    flavor = spec_obj.flavor
    swap_gb = -(-flavor.swap // _MIB_PER_GIB)
    root_gb = 0 if set_field(spec_obj, "is_bfv") else flavor.root_gb
    disk_gb: int = flavor.ephemeral_gb + swap_gb + root_gb
    if disk_gb > MAX_AMOUNT:
        raise InvalidRequest(
            f"root_gb, ephemeral_gb and swap of the flavor are {disk_gb} GiB together; "
            f"they must be at most {MAX_AMOUNT}"
        )
    return disk_gb
