# SPDX-License-Identifier: Apache-2.0
"""Server groups are read from a database that nova 34 made."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.sources.nova_db import NovaDBSource
from moorage.testing.builders import instance_uuid

from ..fixtures.nova_databases import Kind, NovaDatabases

pytestmark = [
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.xdist_group("nova_db"),
]


def test_members_are_read_from_novas_own_tables(conf: cfg.ConfigOpts) -> None:
    group, other, member, gone = map(
        instance_uuid, ("group", "other", "member", "gone")
    )
    with NovaDatabases(Kind.SQLITE, n_cells=0) as nova:
        rows = [
            {"id": 3, "uuid": group, "project_id": "mine", "name": "g"},
            {"id": 4, "uuid": other, "project_id": "theirs", "name": "o"},
        ]
        nova.insert(nova.api_url, "instance_groups", rows)
        members = [{"group_id": n, "instance_uuid": member} for n in (3, 4)]
        members.append({"group_id": 3, "instance_uuid": gone})
        nova.insert(nova.api_url, "instance_group_member", members)
        mappings: list[dict[str, Any]] = [
            {"instance_uuid": member, "project_id": "mine", "queued_for_delete": None},
            {"instance_uuid": gone, "project_id": "mine", "queued_for_delete": True},
        ]
        nova.insert(nova.api_url, "instance_mappings", mappings)
        source = NovaDBSource(nova.api, nova.engine, conf=conf)
        found = source.members_of_groups([group, other], "mine", lambda _: False)
        assert found == {group: {member}}
