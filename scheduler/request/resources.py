# SPDX-License-Identifier: Apache-2.0
"""The query groups of a request.

    flavor's extra specs ─┐
    CPU policies ─────────┤
    ports, devices ───────┼─▶ groups
    flavor's amounts ─────┤
    guest's features ─────┘

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
from .groups import QueryGroup

if TYPE_CHECKING:
    from ...objects import RequestSpec
    from .request import Request

_MIB_PER_GIB = 1024


def query_groups(request: Request, *, is_pinned: bool) -> list[QueryGroup]:
    """Return all groups of a request, always one without a suffix.

    Parameters
    ----------
    request : Request
        Its flavor groups and settings are only read.
    is_pinned : bool
        Whether CPU policies mean PCPU and traits; False for hosts without PCPU.

    Raises
    ------
    InvalidRequest
        A policy, mask or feature is invalid, or the disk exceeds Placement's integer.
    """
    settings = request.settings
    groups = [group.copy() for group in request.flavor_groups.groups.values()]
    unsuffixed = next((group for group in groups if not group.suffix), None)
    if unsuffixed is None:
        unsuffixed = QueryGroup()
        groups.append(unsuffixed)
    if is_pinned:
        _add_cpu_policies(unsuffixed, settings)
    groups += [group.copy() for group in request.requested_groups]
    _add_flavor_amounts(unsuffixed, groups, request.spec_obj)
    unsuffixed.required |= set(settings.image_property("traits_required") or ())
    unsuffixed.required |= feature_traits(settings)
    unsuffixed.resources |= feature_resources(settings)
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
