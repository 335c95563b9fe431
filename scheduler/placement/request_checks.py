# SPDX-License-Identifier: Apache-2.0
"""Whether a request can be asked at all: its amounts, its groups, its names.

What an API would have refused never gets here from a well-kept cloud; what comes
around an API is refused with the field, its value and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import os_resource_classes as orc

from ..errors import InvalidRequest, excerpt, shortened
from .flavor_and_image import set_field
from .flavor_groups import flavor_groups
from .request_bounds import check_bounds

if TYPE_CHECKING:
    from ...objects import RequestSpec
    from ...objects.base import WireObject

#: Placement's integer: what one allocation can hold of one resource class.
MAX_AMOUNT = 2**31 - 1

#: Instances of one request: far more than any quota lets through.
MAX_INSTANCES = 10_000

#: As in Placement's schemas (resource classes, group suffixes).
_CUSTOM_CLASS = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_ANY_CLASS = re.compile(r"[A-Z0-9_]{1,255}")
_SUFFIX = re.compile(r"[a-zA-Z0-9_-]{1,64}")

#: Least value of each field of a flavor; vCPUs, MiB, GiB, GiB, MiB.
_FLAVOR_MINIMA = {
    "vcpus": 1,
    "memory_mb": 1,
    "root_gb": 0,
    "ephemeral_gb": 0,
    "swap": 0,
}

#: Fields of a group by which a provider is found, and by which it is left out.
_FINDING = ("required_traits", "aggregates")
_FORBIDDING = ("forbidden_traits", "forbidden_aggregates")


def validate_request(spec_obj: RequestSpec) -> None:
    """Refuse a request that no host could ever be asked for.

    Raises
    ------
    InvalidRequest
        It has no flavor; a part of it is too large (`check_bounds`); an amount is below
        its least or above Placement's largest value; a resource class or a group's name
        cannot be one, or is there twice; a group asks for nothing, or a subtree names
        one that is not there.
    """
    flavor = set_field(spec_obj, "flavor")
    if flavor is None:
        raise InvalidRequest("flavor is missing; a request must have one")
    check_bounds(spec_obj)
    if "num_instances" in spec_obj:
        _check_amount("num_instances", spec_obj.num_instances, 1, MAX_INSTANCES)
    for name, least in _FLAVOR_MINIMA.items():
        _check_amount(f"flavor.{name}", set_field(flavor, name), least)
    suffixes = _check_extra_specs(flavor)
    _check_groups(set_field(spec_obj, "requested_resources") or (), suffixes)
    _check_subtrees(set_field(spec_obj, "request_level_params"), suffixes)


def _check_amount(
    field: str, value: object, least: int, most: int = MAX_AMOUNT
) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(
            f"{field} is {excerpt(value)}; it must be a number from {least} to {most}"
        )


def _check_extra_specs(flavor: WireObject) -> set[str]:
    groups = flavor_groups(set_field(flavor, "extra_specs") or {}).groups
    for suffix, group in groups.items():
        for name, amount in group.resources.items():
            field = f"flavor.extra_specs['resources{suffix}:{name}']"
            _check_amount(field, amount, least=0)
            if name not in orc.STANDARDS and not _CUSTOM_CLASS.fullmatch(name):
                raise _malformed_class(field, name)
        narrows = group.forbidden or group.forbidden_aggregates or group.in_tree
        if suffix and narrows and not group.finds_providers:
            raise _unfindable(f"flavor.extra_specs: the group {suffix!r}")
    return {suffix for suffix in groups if suffix}


def _check_groups(groups: Iterable[Any], suffixes: set[str]) -> None:
    for index, group in enumerate(groups):
        field = f"requested_resources[{index}]"
        suffix = set_field(group, "requester_id")
        if not suffix or not _SUFFIX.fullmatch(suffix):
            raise InvalidRequest(
                f"{field}.requester_id is {excerpt(suffix)}; it must have 1 to 64 "
                'letters, digits, "_" or "-"'
            )
        if suffix in suffixes:
            raise InvalidRequest(
                f"{field}.requester_id is {suffix!r}, as of another group; each group "
                "must have one of its own"
            )
        suffixes.add(suffix)
        _check_group(field, group)


def _check_group(field: str, group: WireObject) -> None:
    asked = ("resources", *_FINDING, *_FORBIDDING)
    if not any(set_field(group, name) for name in asked):
        raise InvalidRequest(
            f"{field} asks for nothing; it must have resources, traits or aggregates"
        )
    for name, amount in (set_field(group, "resources") or {}).items():
        _check_amount(f"{field}.resources[{excerpt(name)}]", amount, least=0)
        # A class that is newer than our os-resource-classes is Placement's to judge.
        if not _ANY_CLASS.fullmatch(name):
            raise _malformed_class(f"{field}.resources", name)
    _check_findable(field, group)


def _check_findable(field: str, group: WireObject) -> None:
    amounts = (set_field(group, "resources") or {}).values()
    finds = any(amounts) or any(set_field(group, name) for name in _FINDING)
    if not finds and any(set_field(group, name) for name in _FORBIDDING):
        raise _unfindable(field)


def _check_subtrees(level: WireObject | None, suffixes: set[str]) -> None:
    for index, subtree in enumerate(set_field(level, "same_subtree") or ()):
        for suffix in subtree:
            if suffix not in suffixes:
                raise InvalidRequest(
                    f"request_level_params.same_subtree[{index}] has "
                    f"{excerpt(suffix)}; it must be a group of the request: "
                    f"{shortened(', '.join(sorted(suffixes)))}"
                )


def _unfindable(group: str) -> InvalidRequest:
    return InvalidRequest(
        f"{group} has neither resources nor required traits or aggregates; it must "
        "have one of them, because Placement finds no provider by what is forbidden "
        "or by a tree alone"
    )


def _malformed_class(field: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} names the resource class {excerpt(name)}; it must be a standard one, "
        'or CUSTOM_ and then capital letters, digits or "_"'
    )
