# SPDX-License-Identifier: Apache-2.0
"""Validation of a request: its amounts, its groups, its names.

nova's API rejects most invalid requests. A request that bypassed it is rejected with
the field, its value and the values that are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import os_resource_classes as orc

from ..errors import InvalidRequest, excerpt, shortened
from .bounds import check_bounds
from .flavor_and_image import set_field
from .flavor_groups import flavor_groups

if TYPE_CHECKING:
    from ...objects import RequestSpec
    from ...objects.base import WireObject

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

#: Fields of a group that select providers, and those that exclude providers.
_SELECTING = ("required_traits", "aggregates")
_EXCLUDING = ("forbidden_traits", "forbidden_aggregates")


def validate_request(spec_obj: RequestSpec) -> None:
    """Reject an invalid request.

    Raises
    ------
    InvalidRequest
        It has no flavor; a part of it is too large (`check_bounds`); an amount is below
        its minimum or above Placement's maximum; a resource class or a group's name is
        malformed or duplicate; a group requests nothing, or a subtree names a group
        that does not exist.
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
                f"{field}.requester_id is {suffix!r}, as in another group; it must be "
                "unique"
            )
        suffixes.add(suffix)
        _check_group(field, group)


def _check_group(field: str, group: WireObject) -> None:
    names = ("resources", *_SELECTING, *_EXCLUDING)
    if not any(set_field(group, name) for name in names):
        raise InvalidRequest(
            f"{field} requests nothing; it must have resources, traits or aggregates"
        )
    for name, amount in (set_field(group, "resources") or {}).items():
        _check_amount(f"{field}.resources[{excerpt(name)}]", amount, least=0)
        # Placement validates classes that are newer than our os-resource-classes.
        if not _ANY_CLASS.fullmatch(name):
            raise _malformed_class(f"{field}.resources", name)
    _check_findable(field, group)


def _check_findable(field: str, group: WireObject) -> None:
    amounts = (set_field(group, "resources") or {}).values()
    finds = any(amounts) or any(set_field(group, name) for name in _SELECTING)
    if not finds and any(set_field(group, name) for name in _EXCLUDING):
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
        "have one of them, because Placement finds no provider by forbidden traits "
        "or aggregates or by a tree alone"
    )


def _malformed_class(field: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} names the resource class {excerpt(name)}; it must be a standard one, "
        'or CUSTOM_ followed by capital letters, digits or "_"'
    )
