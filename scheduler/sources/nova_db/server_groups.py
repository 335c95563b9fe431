# SPDX-License-Identifier: Apache-2.0
"""Reading the members of server groups from nova's API database."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final

import sqlalchemy as sa
from cachetools import TTLCache

from .schema import instance_group_member, instance_groups, instance_mappings

#: Rows that are read for one request: more members than its hints may name.
_MAX_ROWS: Final = 1000
#: UUIDs that are no group of a project, and seconds for which they are remembered:
#: most are those of instances, which never become groups.
_MAX_OTHERS: Final = 10_000
_OTHERS_S: Final = 300.0

_GROUPS, _MEMBERS = instance_groups.c, instance_group_member.c
_MAPPINGS: Final = instance_mappings.c
_IS_LEAVING: Final = sa.case((_MAPPINGS.queued_for_delete.is_(sa.true()), 1), else_=0)
_QUERY: Final = (
    sa.select(_GROUPS.uuid, _MEMBERS.instance_uuid, _IS_LEAVING.label("is_leaving"))
    .select_from(
        instance_groups.outerjoin(
            instance_group_member, _MEMBERS.group_id == _GROUPS.id
        ).outerjoin(
            instance_mappings, _MAPPINGS.instance_uuid == _MEMBERS.instance_uuid
        )
    )
    .where(_GROUPS.uuid.in_(sa.bindparam("uuids", expanding=True)))
    .where(_GROUPS.project_id == sa.bindparam("project_id"))
    .order_by(_IS_LEAVING, _MEMBERS.id)
    .limit(_MAX_ROWS)
)


class GroupReader:
    """Reads the members of server groups, and remembers which UUIDs are no group's.

    Members are read for each request: an instance that was added just before counts.
    nova keeps deleted instances as members until its database is archived, so those
    that are queued for deletion count only while they are on a host.

    Parameters
    ----------
    clock : callable
        Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._others: TTLCache[tuple[str, str], None]
        self._others = TTLCache(_MAX_OTHERS, _OTHERS_S, clock)

    def unread(self, uuids: Collection[str], project_id: str) -> list[str]:
        """Return those UUIDs that may be a group's of the project, sorted."""
        with self._lock:
            return sorted(u for u in uuids if (project_id, u) not in self._others)

    def read(
        self,
        connection: sa.Connection,
        uuids: Collection[str],
        project_id: str,
        is_placed: Callable[[str], bool],
    ) -> Mapping[str, frozenset[str]]:
        """Return the members of the project's groups, by the group's UUID."""
        values = {"uuids": list(uuids), "project_id": project_id}
        rows = connection.execute(_QUERY, values).all()
        members: defaultdict[str, set[str]] = defaultdict(set)
        for uuid, instance, is_leaving in rows:
            is_member = instance and (not is_leaving or is_placed(instance))
            members[uuid].update([instance] if is_member else ())
        if len(rows) < _MAX_ROWS:  # else a group may be among what was not read
            others = [(project_id, uuid) for uuid in uuids if uuid not in members]
            with self._lock:
                self._others.update(dict.fromkeys(others))
        return {uuid: frozenset(some) for uuid, some in members.items()}
