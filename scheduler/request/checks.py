# SPDX-License-Identifier: Apache-2.0
"""Validation of a request: its amounts, its groups, its names.

nova's API rejects most invalid requests. A request that bypassed it is rejected with
the field, its value and the values that are allowed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import os_resource_classes as orc
from oslo_utils import uuidutils

from ..errors import InvalidRequest, excerpt, shortened
from .bounds import check_bounds
from .flavor_and_image import set_field

if TYPE_CHECKING:
    from ...objects import RequestSpec
    from .flavor_groups import FlavorGroups
    from .groups import QueryGroup
    from .request import Request

#: Placement's integer: the most that one allocation can hold of one resource class.
MAX_AMOUNT = 2**31 - 1

#: Instances of one request: far more than any quota allows.
MAX_INSTANCES = 10_000

#: As in Placement's schemas (resource classes, group suffixes).
_CUSTOM_CLASS = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_ANY_CLASS = re.compile(r"[A-Z0-9_]{1,255}")
_SUFFIX = re.compile(r"[a-zA-Z0-9_-]{1,64}")

#: Minimum of each field of a flavor; vCPUs, MiB, GiB, GiB, MiB.
_FLAVOR_MINIMA = {
    "vcpus": 1,
    "memory_mb": 1,
    "root_gb": 0,
    "ephemeral_gb": 0,
    "swap": 0,
}


def check_fields(spec_obj: RequestSpec) -> None:
    """Reject a request by what can be checked before it is read.

    Raises
    ------
    InvalidRequest
        It has no flavor; a part of it is too large (`check_bounds`); an amount is below
        its minimum or above Placement's maximum.
    """
    flavor = set_field(spec_obj, "flavor")
    if flavor is None:
        raise InvalidRequest("flavor is missing; a request must have one")
    check_bounds(spec_obj)
    if "num_instances" in spec_obj:
        _check_amount("num_instances", spec_obj.num_instances, 1, MAX_INSTANCES)
    for name, least in _FLAVOR_MINIMA.items():
        _check_amount(f"flavor.{name}", set_field(flavor, name), least)


def check_groups(request: Request) -> None:
    """Read the groups of a request and its server group, and reject invalid ones.

    Raises
    ------
    InvalidRequest
        A resource class or a group's name is malformed or duplicate; a group requests
        nothing, or a subtree names a group that does not exist; a setting of the guest
        is invalid; no amount is above 0; a trait is not ASCII; the server group's rule
        is invalid.
    """
    suffixes = _check_flavor_groups(request.flavor_groups)
    _check_requested_groups(request.requested_groups, suffixes)
    _check_subtrees(request.request_level("same_subtree"), suffixes)
    if request.is_rebuild:
        return  # Placement is not queried
    _ = request.server_group  # reading it raises
    if not any(group.resources for group in request.groups):
        raise InvalidRequest(
            "flavor.extra_specs set every amount to 0; at least one must be requested"
        )
    for group in request.groups:
        for name, value in group.params():
            if not (name.isascii() and value.isascii()):
                raise InvalidRequest(
                    f"{excerpt(name)} is {excerpt(value)} in the request's query to "
                    "Placement, whose names have ASCII characters only"
                )


def _check_amount(
    field: str, value: object, least: int, most: int = MAX_AMOUNT
) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(
            f"{field} is {excerpt(value)}; it must be a number from {least} to {most}"
        )


def _check_flavor_groups(in_flavor: FlavorGroups) -> set[str]:
    """Check the flavor's groups; return their suffixes."""
    for suffix, group in in_flavor.groups.items():
        for name, amount in group.resources.items():
            field = f"flavor.extra_specs['resources{suffix}:{name}']"
            _check_amount(field, amount, least=0)
            if name not in orc.STANDARDS and not _CUSTOM_CLASS.fullmatch(name):
                raise _malformed_class(field, name)
        if suffix:
            field = f"flavor.extra_specs: the group {suffix!r}"
            _check_findable(field, group, is_narrowed=bool(group.in_tree))
    return {suffix for suffix in in_flavor.groups if suffix}


def _check_requested_groups(groups: Iterable[QueryGroup], suffixes: set[str]) -> None:
    for index, group in enumerate(groups):
        field, suffix = f"requested_resources[{index}]", group.suffix
        if not suffix or not _SUFFIX.fullmatch(suffix):
            raise InvalidRequest(
                f"{field}.requester_id is {excerpt(suffix)}; it must have 1 to 64 "
                'letters, digits, "_" or "-"'
            )
        if suffix in suffixes:
            raise InvalidRequest(
                f"{field}.requester_id is {suffix!r}, as in another group; it must be "
                "unique"
            )
        suffixes.add(suffix)
        if group.is_empty:
            raise InvalidRequest(
                f"{field} requests nothing; it must have resources, traits or "
                "aggregates"
            )
        for name, amount in group.resources.items():
            _check_amount(f"{field}.resources[{excerpt(name)}]", amount, least=0)
            # Placement validates classes that are newer than our os-resource-classes.
            if not _ANY_CLASS.fullmatch(name):
                raise _malformed_class(f"{field}.resources", name)
        _check_findable(field, group)


def _check_findable(
    field: str, group: QueryGroup, *, is_narrowed: bool = False
) -> None:
    narrows = group.forbidden or group.forbidden_aggregates or is_narrowed
    if narrows and not group.finds_providers:
        raise InvalidRequest(
            f"{field} has neither resources nor required traits or aggregates; it must "
            "have one of them, because Placement finds no provider by forbidden traits "
            "or aggregates or by a tree alone"
        )


def _check_subtrees(subtrees: Iterable[Iterable[str]], suffixes: set[str]) -> None:
    for index, subtree in enumerate(subtrees):
        for suffix in subtree:
            if suffix not in suffixes:
                raise InvalidRequest(
                    f"request_level_params.same_subtree[{index}] has "
                    f"{excerpt(suffix)}; it must be a group of the request: "
                    f"{shortened(', '.join(sorted(suffixes)))}"
                )


def _malformed_class(field: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} names the resource class {excerpt(name)}; it must be a standard one, "
        'or CUSTOM_ followed by capital letters, digits or "_"'
    )


def instance_uuids_of(
    spec_obj: RequestSpec, instance_uuids: Sequence[str] | None
) -> list[str]:
    """Return a UUID an instance; given UUIDs take precedence over ``num_instances``.

    An old conductor gives none: placeholders that no real instance has stand for them.
    """
    if instance_uuids is not None:
        _check_instance_uuids(instance_uuids)
        return list(instance_uuids)
    number = spec_obj.num_instances if "num_instances" in spec_obj else 1
    uuids = [str(UUID(int=i)) for i in range(number)]
    if "instance_uuid" in spec_obj:
        uuids[0] = spec_obj.instance_uuid
    return uuids


def _check_instance_uuids(instance_uuids: Sequence[str]) -> None:
    for each in instance_uuids:
        if not uuidutils.is_uuid_like(each):
            raise InvalidRequest(f"instance_uuids: {excerpt(each)} is not a UUID")
    for uuid, count in Counter(instance_uuids).most_common(1):
        if count > 1:
            raise InvalidRequest(f"instance_uuids: duplicate instance: {uuid}")
