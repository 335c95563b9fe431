# SPDX-License-Identifier: Apache-2.0
"""Validation of a request: its amounts, its groups, its names.

nova's API rejects most invalid requests. A request that bypassed it is rejected with
the field, its value and the values that are allowed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import os_resource_classes as orc
from oslo_utils import uuidutils

from ..errors import InvalidRequest, excerpt, shortened
from .flavor_and_image import set_field

if TYPE_CHECKING:
    from ...objects import RequestSpec
    from ...objects.base import WireObject
    from .groups import FlavorGroups, QueryGroup

#: Characters of one image property, name or ID.
MAX_TEXT: Final = 255
#: Longer image properties, which the scheduler does not read: a signature by an RSA key
#: of 2048 bits has 344 characters. Only the bound of all together holds for them.
_LONG_PROPERTIES: Final = frozenset({"img_signature", "os_command_line"})
#: Characters of all scheduler hints, of all image properties or of all extra specs.
MAX_TOTAL_TEXT: Final = 64 * 1024
#: Hosts that a request may ignore or force.
MAX_HOST_NAMES: Final = 10_000

_NAMES: Final = ("availability_zone", "project_id", "user_id")
_LISTS: Final = ("ignore_hosts", "force_hosts", "force_nodes")


def check_bounds(spec_obj: RequestSpec) -> None:
    """Reject a request if a part of it is too large.

    Raises
    ------
    InvalidRequest
        It names the part, and quotes its first 200 characters.
    """
    for name in _NAMES:
        _check_text(name, set_field(spec_obj, name))
    for name in _LISTS:
        _check_host_names(name, set_field(spec_obj, name) or ())
    _check_total("scheduler_hints", set_field(spec_obj, "scheduler_hints") or {})
    extra_specs = set_field(set_field(spec_obj, "flavor"), "extra_specs") or {}
    _check_total("flavor.extra_specs", extra_specs)
    _check_image(set_field(set_field(spec_obj, "image"), "properties"))


def _check_image(properties: WireObject | None) -> None:
    if properties is None:
        return
    present = properties.set_values()
    for name, value in present.items():
        for text in () if name in _LONG_PROPERTIES else _texts(value):
            _check_text(f"image.properties.{name}", text)
    _check_total("image.properties", present)


def _check_text(name: str, text: str | None) -> None:
    if text is not None and len(text) > MAX_TEXT:
        raise InvalidRequest(
            f"{name} is {excerpt(text)}; it must have at most {MAX_TEXT} characters"
        )


def _check_host_names(name: str, hosts: Sequence[str]) -> None:
    if len(hosts) > MAX_HOST_NAMES:
        raise InvalidRequest(
            f"{name} has {len(hosts)} names, {excerpt(hosts[:10])}; it must have at "
            f"most {MAX_HOST_NAMES}"
        )
    for host in hosts:
        _check_text(name, host)


def _check_total(name: str, values: Mapping[str, object]) -> None:
    sizes = {key: len(key) + sum(map(len, _texts(values[key]))) for key in values}
    if sum(sizes.values()) > MAX_TOTAL_TEXT:
        largest = max(sizes, key=sizes.__getitem__)
        raise InvalidRequest(
            f"{name} have {sum(sizes.values())} characters together; they must have at "
            f"most {MAX_TOTAL_TEXT}. The largest is {excerpt(largest)}: "
            f"{excerpt(', '.join(_texts(values[largest])))}"
        )


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - of its field's type
    """Yield the texts in a value, recursively."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        yield from _texts(list(value.values()))
    elif isinstance(value, Iterable):
        for each in value:
            yield from _texts(each)


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


def _check_amount(
    field: str, value: object, least: int, most: int = MAX_AMOUNT
) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(
            f"{field} is {excerpt(value)}; it must be a number from {least} to {most}"
        )


def check_flavor_groups(in_flavor: FlavorGroups) -> set[str]:
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


def check_requested_groups(groups: Iterable[QueryGroup], suffixes: set[str]) -> None:
    """Check the groups of ports and devices; add their suffixes to `suffixes`."""
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


def check_subtrees(subtrees: Iterable[Iterable[str]], suffixes: set[str]) -> None:
    """Reject a subtree that names a group which the request does not have."""
    for index, subtree in enumerate(subtrees):
        for suffix in subtree:
            if suffix not in suffixes:
                raise InvalidRequest(
                    f"request_level_params.same_subtree[{index}] has "
                    f"{excerpt(suffix)}; it must be a group of the request: "
                    f"{shortened(', '.join(sorted(suffixes)))}"
                )


def check_query(groups: Iterable[QueryGroup]) -> None:
    """Reject groups that request no amount, or a name that Placement cannot have."""
    if not any(group.resources for group in groups):
        raise InvalidRequest(
            "flavor.extra_specs set every amount to 0; at least one must be requested"
        )
    for group in groups:
        for name, value in group.params():
            if not (name.isascii() and value.isascii()):
                raise InvalidRequest(
                    f"{excerpt(name)} is {excerpt(value)} in the request's query to "
                    "Placement, whose names have ASCII characters only"
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
