# SPDX-License-Identifier: Apache-2.0
"""The current members of server groups: the request's own, and those that hints name.

The members of another group are added to the values of the hint, so that they count as
instances that it names. The group's UUID stays, as that of an unknown instance.

The request's own group has its members, deleted ones included: nova keeps them until
its database is archived. Where each of the members without a host is, Placement is
asked after a claim, so that many of them are reduced to those that still exist.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from ...filters.locality import LocalityFilter
from ...objects import InstanceGroup, RequestSpec
from ...weighers.locality import LocalityWeigher
from ..errors import NoValidHost
from ..request import Request
from ..request.locality import SOFT_HINTS, named_uuids
from ..request.server_group import ServerGroup
from ..sources.base import GroupsUnavailable
from .parts import Parts

LOG = logging.getLogger(__name__)

_Object = TypeVar("_Object", InstanceGroup, RequestSpec)

_UNREAD: Final = (
    "The server groups that {hint} may name cannot be read now; try again later."
)


#: Members without a host from which those of the request's own group are read again.
_MANY: Final = 10


def with_current_groups(parts: Parts, request: Request) -> Request:
    """Return the request with the current members of all groups that it is about.

    Errors are those of `with_named_groups`.
    """
    group = request.server_group
    if group is not None and group.uuid and len(group.members) > _MANY:
        request = _without_deleted(parts, request, group)
    if request.hints and parts.conf.locality.levels:
        request = with_named_groups(parts, request)
    return request


def _without_deleted(parts: Parts, request: Request, group: ServerGroup) -> Request:
    """Return the request without the deleted members of its own group, if many."""
    group_uuid, project_id = group.uuid, request.project_id
    is_placed = parts.table.instances.is_known
    unplaced = {uuid for uuid in group.members if not is_placed(uuid)}
    if len(unplaced) <= _MANY or not project_id or not group_uuid:
        return request
    try:
        read = parts.source.members_of_groups([group_uuid], project_id, is_placed)
    except GroupsUnavailable as e:
        LOG.warning("%s; deleted members of the server group count as others", e)
        return request
    if group_uuid not in read:
        return request
    deleted = unplaced - read[group_uuid] - {request.instance_uuid}
    if not deleted:
        return request
    instance_group = request.spec_obj.instance_group
    assert instance_group is not None  # it has members
    current = _copy(instance_group)
    current.members = sorted(group.members - deleted)
    spec_obj = _copy(request.spec_obj)
    spec_obj.instance_group = current
    return Request.validated(spec_obj)


def with_named_groups(parts: Parts, request: Request) -> Request:
    """Return the request with the members of the groups that its hints name.

    It is the same request if they name none. Nothing is looked up for UUIDs of known
    instances. Groups of other projects are unknown instances.

    Raises
    ------
    NoValidHost
        The groups of a hint that must be followed cannot be read now.
    InvalidRequest
        A hint has too many values with the members.
    """
    named, project_id = _unknown(parts, request), request.project_id
    if not named or not project_id:
        return request
    uuids = frozenset[str]().union(*named.values())
    try:
        is_placed = parts.table.instances.is_known
        members = parts.source.members_of_groups(uuids, project_id, is_placed)
    except GroupsUnavailable as e:
        hint = next((hint for hint in named if hint not in SOFT_HINTS), None)
        if hint is not None:
            raise NoValidHost(_UNREAD.format(hint=hint)) from e
        LOG.warning("%s; the hints near and far are followed without", e)
        return request
    added = {hint: _members_of(uuids, members) for hint, uuids in named.items()}
    if not any(added.values()):
        return request
    return Request.validated(_with_values(request.spec_obj, added))


def _unknown(parts: Parts, request: Request) -> Mapping[str, frozenset[str]]:
    """Return the UUIDs by hint that may be those of other groups."""
    plugins = (*parts.filters, *parts.weighers)
    if not any(isinstance(p, (LocalityFilter, LocalityWeigher)) for p in plugins):
        return {}
    is_placed = parts.table.instances.is_known
    named = named_uuids(request, parts.conf.locality.levels)
    unknown = {
        hint: frozenset(uuid for uuid in uuids if not is_placed(uuid))
        for hint, uuids in named.items()
    }
    return {hint: uuids for hint, uuids in unknown.items() if uuids}


def _members_of(
    uuids: Collection[str], members: Mapping[str, Collection[str]]
) -> list[str]:
    return sorted({member for uuid in uuids for member in members.get(uuid, ())})


def _with_values(
    spec_obj: RequestSpec, added: Mapping[str, Collection[str]]
) -> RequestSpec:
    """Return a copy of a request with more values of its hints."""
    copied = _copy(spec_obj)
    hints = dict(spec_obj.scheduler_hints)
    for hint, values in added.items():
        hints[hint] = list(dict.fromkeys([*hints[hint], *values]))
    copied.scheduler_hints = hints
    return copied


def _copy(original: _Object) -> _Object:
    copied = copy.copy(original)
    # A copy shares its set of changes, which has no public name.
    copied._changed_fields = set(original._changed_fields)  # noqa: SLF001
    return copied
