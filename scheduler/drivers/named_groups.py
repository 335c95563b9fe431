# SPDX-License-Identifier: Apache-2.0
"""Server groups, other than the request's own, that hints about places name.

The members of such a group are added to the values of the hint, so that they count as
instances that it names. The group's own UUID stays, as that of an unknown instance.
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
from ..request import Request
from ..request.locality import SOFT_HINTS, named_uuids
from ..sources.base import GroupsUnavailable
from .parts import Parts

LOG = logging.getLogger(__name__)

_UNREAD: Final = (
    "The server groups that {hint} may name cannot be read now; try again later."
)


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
    named, project_id = _unknown(parts, request), request.field("project_id")
    if not named or not project_id:
        return request
    uuids = frozenset[str]().union(*named.values())
    try:
        members = parts.source.members_of_groups(
            uuids, project_id, lambda uuid: bool(parts.table.instances.hosts_of(uuid))
        )
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
    if not any(isinstance(each, (LocalityFilter, LocalityWeigher)) for each in plugins):
        return {}
    hosts_of = parts.table.instances.hosts_of
    named = named_uuids(request, parts.conf.locality.levels)
    unknown = {
        hint: frozenset(uuid for uuid in uuids if not hosts_of(uuid))
        for hint, uuids in named.items()
    }
    return {hint: uuids for hint, uuids in unknown.items() if uuids}


def _members_of(
    uuids: Collection[str], members: Mapping[str, Collection[str]]
) -> list[str]:
    return sorted({each for uuid in uuids for each in members.get(uuid, ())})


def _with_values(
    spec_obj: RequestSpec, added: Mapping[str, Collection[str]]
) -> RequestSpec:
    """Return a copy of a request with more values of its hints."""
    mine = copy.copy(spec_obj)
    # A copy shares its set of changes, which has no public name.
    mine._changed_fields = set(spec_obj._changed_fields)  # noqa: SLF001
    hints = dict(spec_obj.scheduler_hints)
    for hint, values in added.items():
        hints[hint] = list(dict.fromkeys([*hints[hint], *values]))
    mine.scheduler_hints = hints
    return mine
