# SPDX-License-Identifier: Apache-2.0
"""The current members of server groups: the request's own, and those that hints name.

A hint that names another server group gets the group's members as further values, so
that they count as instances that the hint names. The group's UUID stays among the
values, and counts as the UUID of an unknown instance.

The request spec lists the members of the request's own group, including deleted
instances: nova keeps them in the group until its database is archived. After a claim,
the scheduler asks Placement for the allocations of each member that is on no known
host. If there are many such members, deleted ones are therefore removed from the
request first.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping
from typing import Final

from ...filters.locality import LocalityFilter
from ...objects import RequestSpec
from ...weighers.locality import LocalityWeigher
from ..errors import NoValidHost
from ..locality.hints import SOFT_HINTS, named_uuids
from ..request import Request
from ..request.server_group import ServerGroup
from ..sources.base import GroupsUnavailable
from .parts import Parts

LOG = logging.getLogger(__name__)

_GROUPS_UNREADABLE: Final = (
    "The server groups that {hint} may name cannot be read now; try again later."
)


#: If more members of the request's own group than this are on no known host, the
#: current members are read from the source.
_MAX_UNPLACED: Final = 10


def with_current_groups(parts: Parts, request: Request) -> Request:
    """Return the request with the current members of its own and of named groups.

    The function raises the errors of `with_named_groups`.
    """
    group = request.server_group
    if group is not None and group.uuid and len(group.members) > _MAX_UNPLACED:
        request = _without_deleted(parts, request, group)
    if request.hints and parts.conf.locality.levels:
        request = with_named_groups(parts, request)
    return request


def _without_deleted(parts: Parts, request: Request, group: ServerGroup) -> Request:
    """Return the request without deleted members of its own group.

    The request is returned unchanged if at most `_MAX_UNPLACED` members are on no known
    host, or if the current members cannot be read.
    """
    group_uuid, project_id = group.uuid, request.project_id
    is_placed = parts.table.instances.is_known
    unplaced = {uuid for uuid in group.members if not is_placed(uuid)}
    if len(unplaced) <= _MAX_UNPLACED or not project_id or not group_uuid:
        return request
    try:
        current_members = parts.source.members_of_groups(
            [group_uuid], project_id, is_placed
        )
    except GroupsUnavailable as e:
        LOG.warning("%s; deleted members of the server group count as others", e)
        return request
    if group_uuid not in current_members:
        return request
    deleted = unplaced - current_members[group_uuid] - {request.instance_uuid}
    if not deleted:
        return request
    instance_group = request.spec_obj.instance_group
    assert instance_group is not None  # it has members
    current_group = copy.copy(instance_group)
    current_group.members = sorted(group.members - deleted)
    spec_obj = copy.copy(request.spec_obj)
    spec_obj.instance_group = current_group
    return Request.validated(spec_obj)


def with_named_groups(parts: Parts, request: Request) -> Request:
    """Return the request with the members of the groups that its hints name.

    The request is returned unchanged if its hints name no group with members. UUIDs of
    known instances are not looked up. The UUID of a group of another project counts as
    that of an unknown instance.

    Raises
    ------
    NoValidHost
        The groups cannot be read now, and a hint other than ``near`` and ``far`` may
        name one.
    InvalidRequest
        A hint has too many values once the members are added.
    """
    uuids_by_hint, project_id = _unknown_uuids(parts, request), request.project_id
    if not uuids_by_hint or not project_id:
        return request
    uuids = frozenset[str]().union(*uuids_by_hint.values())
    try:
        is_placed = parts.table.instances.is_known
        members_by_group = parts.source.members_of_groups(uuids, project_id, is_placed)
    except GroupsUnavailable as e:
        hint = next((hint for hint in uuids_by_hint if hint not in SOFT_HINTS), None)
        if hint is not None:
            raise NoValidHost(_GROUPS_UNREADABLE.format(hint=hint)) from e
        LOG.warning("%s; the hints near and far count without the members of groups", e)
        return request
    members_by_hint = {
        hint: _members_of(uuids, members_by_group)
        for hint, uuids in uuids_by_hint.items()
    }
    if not any(members_by_hint.values()):
        return request
    return Request.validated(_with_values(request.spec_obj, members_by_hint))


def _unknown_uuids(parts: Parts, request: Request) -> Mapping[str, frozenset[str]]:
    """Return the UUIDs, by hint, that are no known instances and may be groups."""
    plugins = (*parts.filters, *parts.weighers)
    if not any(
        isinstance(plugin, (LocalityFilter, LocalityWeigher)) for plugin in plugins
    ):
        return {}
    is_placed = parts.table.instances.is_known
    named_by_hint = named_uuids(request, parts.conf.locality.levels)
    unknown = {
        hint: frozenset(uuid for uuid in uuids if not is_placed(uuid))
        for hint, uuids in named_by_hint.items()
    }
    return {hint: uuids for hint, uuids in unknown.items() if uuids}


def _members_of(
    uuids: Collection[str], members: Mapping[str, Collection[str]]
) -> list[str]:
    return sorted({member for uuid in uuids for member in members.get(uuid, ())})


def _with_values(
    spec_obj: RequestSpec, added: Mapping[str, Collection[str]]
) -> RequestSpec:
    """Return a copy of a request whose hints have the added values, too."""
    copied = copy.copy(spec_obj)
    hints = dict(spec_obj.scheduler_hints)
    for hint, values in added.items():
        hints[hint] = list(dict.fromkeys([*hints[hint], *values]))
    copied.scheduler_hints = hints
    return copied
