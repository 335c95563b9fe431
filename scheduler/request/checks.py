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
from .flavor_and_image import FlavorAndImage, get_field
from .groups import MAX_AMOUNT, FlavorGroups, QueryGroup

if TYPE_CHECKING:
    from ...objects import RequestSpec

#: The most characters of one image property, name or ID.
MAX_TEXT: Final = 255
#: Longer image properties, which the scheduler does not read: a signature by an RSA key
#: of 2048 bits has 344 characters. Only the bound of all properties together holds for
#: them.
_LONG_PROPERTIES: Final = frozenset({"img_signature", "os_command_line"})
#: The most characters of all hints, of all image properties or of all extra specs.
MAX_TOTAL_TEXT: Final = 64 * 1024
#: The most hosts that a request may ignore or force.
MAX_HOST_NAMES: Final = 10_000
#: The most instances of one request: far more than any quota allows.
MAX_INSTANCES: Final = 10_000

_NAMES: Final = ("availability_zone", "project_id", "user_id")
_LISTS: Final = ("ignore_hosts", "force_hosts", "force_nodes")

#: As in Placement's schemas (resource classes, group suffixes).
_CUSTOM_CLASS: Final = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_ANY_CLASS: Final = re.compile(r"[A-Z0-9_]{1,255}")
_SUFFIX: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

#: Minimum of each field of a flavor; vCPUs, MiB, GiB, GiB, MiB.
_FLAVOR_MINIMA: Final = {
    "vcpus": 1,
    "memory_mb": 1,
    "root_gb": 0,
    "ephemeral_gb": 0,
    "swap": 0,
}


def check_fields(spec_obj: RequestSpec, settings: FlavorAndImage) -> None:
    """Reject a request with an invalid field; `check_groups` checks its groups.

    Raises
    ------
    InvalidRequest
        The request has no flavor; a field is too large, of which the message quotes the
        first 200 characters; an amount is below its minimum or above Placement's
        maximum.
    """
    flavor = get_field(spec_obj, "flavor")
    if flavor is None:
        raise InvalidRequest("flavor is missing; a request must have one")
    # The sizes of texts.
    for name in _NAMES:
        _check_text(name, get_field(spec_obj, name))
    for name in _LISTS:
        hosts = get_field(spec_obj, name) or ()
        if len(hosts) > MAX_HOST_NAMES:
            raise InvalidRequest(
                f"{name} has {len(hosts)} names, {excerpt(hosts[:10])}; it must have "
                f"at most {MAX_HOST_NAMES}"
            )
        for host in hosts:
            _check_text(name, host)
    for name, value in settings.properties.items():
        if name not in _LONG_PROPERTIES:
            for text in _texts(value):
                _check_text(f"image.properties.{name}", text)
    _check_total("scheduler_hints", get_field(spec_obj, "scheduler_hints") or {})
    _check_total("flavor.extra_specs", settings.extra_specs)
    _check_total("image.properties", settings.properties)
    # The amounts.
    if "num_instances" in spec_obj:
        _check_amount("num_instances", spec_obj.num_instances, 1, MAX_INSTANCES)
    for name, least in _FLAVOR_MINIMA.items():
        _check_amount(f"flavor.{name}", get_field(flavor, name), least)


def _check_text(name: str, text: str | None) -> None:
    if text is not None and len(text) > MAX_TEXT:
        raise InvalidRequest(
            f"{name} is {excerpt(text)}; it must have at most {MAX_TEXT} characters"
        )


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
        for item in value:
            yield from _texts(item)


def _check_amount(
    field: str, value: object, least: int, most: int = MAX_AMOUNT
) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(
            f"{field} is {excerpt(value)}; it must be a number from {least} to {most}"
        )


def check_groups(
    in_flavor: FlavorGroups,
    requested: Iterable[QueryGroup],
    subtrees: Iterable[Iterable[str]],
) -> None:
    """Reject a request with an invalid group.

    Parameters
    ----------
    requested : iterable of QueryGroup
        The groups of ports, PCI devices and device profiles.
    subtrees : iterable of iterable of str
        Suffixes of groups that one subtree must serve.

    Raises
    ------
    InvalidRequest
        A group has an invalid amount, name or suffix, requests nothing or finds no
        provider, or a subtree names a group which the request does not have.
    """
    for suffix, group in in_flavor.groups.items():
        for name, amount in group.resources.items():
            field = f"flavor.extra_specs['resources{suffix}:{name}']"
            _check_amount(field, amount, least=0)
            if name not in orc.STANDARDS and not _CUSTOM_CLASS.fullmatch(name):
                raise _malformed_class(field, name)
        if suffix:
            field = f"flavor.extra_specs: the group {suffix!r}"
            _check_findable(field, group, is_narrowed=bool(group.in_tree))
    suffixes = {suffix for suffix in in_flavor.groups if suffix}
    for index, group in enumerate(requested):
        _check_requested(f"requested_resources[{index}]", group, suffixes)
        suffixes.add(group.suffix)
    for index, subtree in enumerate(subtrees):
        for suffix in subtree:
            if suffix not in suffixes:
                raise InvalidRequest(
                    f"request_level_params.same_subtree[{index}] has "
                    f"{excerpt(suffix)}; it must be a group of the request: "
                    f"{shortened(', '.join(sorted(suffixes)))}"
                )


def _check_requested(field: str, group: QueryGroup, suffixes: set[str]) -> None:
    """Reject a port's or device's group; `suffixes` are those of the other groups."""
    suffix = group.suffix
    if not suffix or not _SUFFIX.fullmatch(suffix):
        raise InvalidRequest(
            f"{field}.requester_id is {excerpt(suffix)}; it must have 1 to 64 letters, "
            'digits, "_" or "-"'
        )
    if suffix in suffixes:
        raise InvalidRequest(
            f"{field}.requester_id is {suffix!r}, as in another group; it must be "
            "unique"
        )
    if group.is_empty:
        raise InvalidRequest(
            f"{field} requests nothing; it must have resources, traits or aggregates"
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


def _malformed_class(field: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} names the resource class {excerpt(name)}; it must be a standard one, "
        'or CUSTOM_ followed by capital letters, digits or "_"'
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


def instance_uuids_of(
    spec_obj: RequestSpec, instance_uuids: Sequence[str] | None
) -> list[str]:
    """Return one UUID for each instance: those in `instance_uuids`, if they are sent.

    An old conductor sends none, but ``num_instances`` and perhaps the UUID of the first
    instance: the others get placeholders that no real instance has.

    Raises
    ------
    InvalidRequest
        A UUID is malformed, or occurs twice.
    """
    if instance_uuids is not None:
        for uuid in instance_uuids:
            if not uuidutils.is_uuid_like(uuid):
                raise InvalidRequest(f"instance_uuids: {excerpt(uuid)} is not a UUID")
        for uuid, count in Counter(instance_uuids).most_common(1):
            if count > 1:
                raise InvalidRequest(f"instance_uuids: duplicate instance: {uuid}")
        return list(instance_uuids)
    n_instances = spec_obj.num_instances if "num_instances" in spec_obj else 1
    uuids = [str(UUID(int=i)) for i in range(n_instances)]
    if "instance_uuid" in spec_obj:
        uuids[0] = spec_obj.instance_uuid
    return uuids
