# SPDX-License-Identifier: Apache-2.0
"""Hints about places may name any server group of the request's project."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.objects import InstanceGroup, RequestSpec, Selection
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.service import Scheduler
from moorage.scheduler.sources.base import GroupsUnavailable
from moorage.scheduler.sources.file import FileSource
from moorage.scheduler.sources.nova_db import NovaDBSource, schema

from ....conftest import instance_uuid
from ....fixtures.clouds import CONTEXT, host, new_uuids, request, started_scheduler
from ....fixtures.database_servers import Database
from .databases import Nova

ONE, TWO, THREE = map(instance_uuid, ("one", "two", "three"))
MINE, EMPTY, FOREIGN, NONE = map(instance_uuid, ("mine", "empty", "foreign", "none"))
GROUPS = {
    MINE: ("project", (ONE, TWO)),
    EMPTY: ("project", ()),
    FOREIGN: ("other", (THREE,)),
}


def _add(nova: Nova, uuid: str, project: str, members: Collection[str]) -> None:
    group = nova.insert(nova.api, schema.instance_groups, uuid=uuid, project_id=project)
    for each in members:
        _join(nova, group, each)


def _join(nova: Nova, group: int, instance: str) -> None:
    nova.insert(
        nova.api,
        schema.instance_group_member,
        group_id=group,
        instance_uuid=instance,
    )


@pytest.fixture(
    params=[
        pytest.param(None, id="sqlite"),
        pytest.param(Database.MARIADB, id="mariadb", marks=pytest.mark.database),
        pytest.param(Database.POSTGRESQL, id="postgresql", marks=pytest.mark.database),
    ]
)
def any_nova(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path, kind=request.param) as nova:
        for uuid, (project, members) in GROUPS.items():
            _add(nova, uuid, project, members)
        yield nova


@pytest.fixture
def nova(tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path) as nova:
        for uuid, (project, members) in GROUPS.items():
            _add(nova, uuid, project, members)
        yield nova


def _members(
    source: NovaDBSource, *uuids: str, project_id: str = "project"
) -> Mapping[str, frozenset[str]]:
    return source.members_of_groups(uuids, project_id, lambda _: False)


def test_members_are_those_of_the_projects_groups(
    any_nova: Nova, conf: cfg.ConfigOpts
) -> None:
    source = any_nova.source(conf)
    every = [MINE, EMPTY, FOREIGN, NONE]
    found = _members(source, *every)
    assert found == {MINE: {ONE, TWO}, EMPTY: set()}
    assert _members(source, *every, project_id="other") == {FOREIGN: {THREE}}


def _delete(nova: Nova, instance: str) -> None:
    """Queue an instance for deletion, as nova-api does; it stays in its groups."""
    nova.insert(
        nova.api,
        schema.instance_mappings,
        instance_uuid=instance,
        project_id="project",
        queued_for_delete=True,
    )


def test_deleted_members_count_while_they_are_on_a_host(
    any_nova: Nova, conf: cfg.ConfigOpts
) -> None:
    source = any_nova.source(conf)
    _delete(any_nova, ONE)
    assert _members(source, MINE) == {MINE: {TWO}}
    found = source.members_of_groups([MINE], "project", {ONE}.__contains__)
    assert found == {MINE: {ONE, TWO}}


def test_groups_beyond_the_rows_that_are_read_are_not_taken_for_others(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    source, large, late = nova.source(conf), *new_uuids(2)
    _add(nova, large, "project", new_uuids(1000))
    _add(nova, late, "project", [THREE])
    assert late not in _members(source, large, late)
    assert _members(source, late) == {late: {THREE}}


def _n_queries(nova: Nova) -> list[str]:
    """The statements that reach the API database from now on."""
    seen: list[str] = []
    sa.event.listen(
        nova.api,
        "before_cursor_execute",
        lambda *args: seen.append(args[2]),
    )
    return seen


def test_new_members_count_and_other_uuids_are_queried_once(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    source = nova.source(conf)
    assert _members(source, EMPTY, NONE) == {EMPTY: set()}
    [row] = nova.api.connect().execute(
        sa.select(schema.instance_groups.c.id).where(
            schema.instance_groups.c.uuid == EMPTY
        )
    )
    _join(nova, row.id, THREE)
    seen = _n_queries(nova)
    assert _members(source, EMPTY, NONE) == {EMPTY: {THREE}}
    assert len(seen) == 1
    assert _members(source, NONE) == {}
    assert len(seen) == 1
    nova.clock.now += 301
    assert _members(source, NONE) == {}
    assert len(seen) == 2


# -- decisions -------------------------------------------------------------------------

RACKS = {"a": "r1", "b": "r2", "c": "r3"}
ON = {"a": [ONE], "b": [THREE]}


class _FileWithGroups(FileSource):
    """Hosts of a file, beside the server groups of nova's database."""

    def __init__(self, nova: NovaDBSource) -> None:
        super().__init__()
        self.nova = nova

    def members_of_groups(
        self,
        uuids: Collection[str],
        project_id: str,
        is_placed: Callable[[str], bool],
    ) -> Mapping[str, frozenset[str]]:
        return self.nova.members_of_groups(uuids, project_id, is_placed)


@pytest.fixture
def scheduler(nova: Nova, conf: cfg.ConfigOpts, tmp_path: Path) -> Iterator[Scheduler]:
    hosts = [
        host(name, places={"rack": rack}, instances=ON.get(name, []))
        for name, rack in RACKS.items()
    ]
    source = nova.source(conf)
    source.start(HostTable())
    options = {"locality": {"levels": ["rack"]}}
    with started_scheduler(
        tmp_path, *hosts, options=options, source=_FileWithGroups(source)
    ) as scheduler:
        yield scheduler


def _spec(**hints: str) -> RequestSpec:
    given = {hint: [value] for hint, value in hints.items()}
    return request(instance_uuid=new_uuids(1)[0], scheduler_hints=given)


def _hosts(scheduler: Scheduler, spec: RequestSpec) -> set[str]:
    """Where a request could go: its host and its alternates."""
    [[*found]] = scheduler.select_destinations(
        CONTEXT, spec, [spec.instance_uuid], return_objects=True, return_alternates=True
    )
    return {each.service_host for each in found if isinstance(each, Selection)}


def test_rules_about_another_group_are_about_its_members(scheduler: Scheduler) -> None:
    spec = _spec(different_rack=MINE)
    before = spec.obj_to_primitive()
    assert _hosts(scheduler, spec) == {"b", "c"}
    assert spec.obj_to_primitive() == before
    assert _hosts(scheduler, _spec(same_rack=MINE)) == {"a"}


def test_deleted_members_do_not_count_as_values_of_a_hint(
    scheduler: Scheduler, nova: Nova
) -> None:
    gone = new_uuids(150)
    _add(nova, group := new_uuids(1)[0], "project", [*gone, ONE])
    for uuid in gone:
        _delete(nova, uuid)
    assert _hosts(scheduler, _spec(different_rack=group)) == {"b", "c"}


def test_placement_is_not_asked_for_deleted_members_of_the_own_group(
    scheduler: Scheduler, nova: Nova, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, (uuid, building) = new_uuids(150), new_uuids(2)
    _add(nova, uuid, "project", [*gone, ONE, building])
    for each in gone:
        _delete(nova, each)
    spec = _spec(max_server_per_rack="1")
    spec.instance_group = InstanceGroup(
        uuid=uuid,
        policy="soft-anti-affinity",
        policies=["soft-anti-affinity"],
        members=[*gone, ONE, building, spec.instance_uuid],
    )
    before = spec.obj_to_primitive()
    asked: list[str] = []
    read = scheduler.placement.allocations

    def allocations(consumer: str, **options: Any) -> Any:
        asked.append(consumer)
        return read(consumer, **options)

    monkeypatch.setattr(scheduler.placement, "allocations", allocations)
    assert _hosts(scheduler, spec) == {"b", "c"}
    assert building in asked
    assert not set(asked) & set(gone)
    assert spec.obj_to_primitive() == before


def test_group_of_another_project_is_an_unknown_instance(scheduler: Scheduler) -> None:
    assert _hosts(scheduler, _spec(different_rack=FOREIGN)) == {"a", "b", "c"}
    for uuid in (FOREIGN, NONE, EMPTY):
        with pytest.raises(NoValidHost) as caught:
            _hosts(scheduler, _spec(same_rack=uuid))
        assert "same_rack: no named instance is known" in str(caught.value)


def test_explanations_read_the_group_too(scheduler: Scheduler) -> None:
    explainer = scheduler.explainer
    spec = _spec(different_rack=MINE)
    [verdict] = explainer.why_not(CONTEXT, spec, "a")
    [reason] = verdict.reasons
    assert reason.available == "rack r1 has 1 of these instances"
    assert explainer.dry_run(CONTEXT, spec, 1).instances[0].host in {"b", "c"}


def test_nothing_is_queried_for_known_instances_or_without_hints(
    scheduler: Scheduler, nova: Nova
) -> None:
    seen = _n_queries(nova)
    assert _hosts(scheduler, _spec(different_rack=ONE, near=THREE)) == {"b", "c"}
    assert _hosts(scheduler, _spec(in_rack="r2")) == {"b"}
    assert seen == []


def test_lost_database_refuses_rules_and_leaves_out_wishes(
    scheduler: Scheduler, nova: Nova, tmp_path: Path
) -> None:
    nova.api.dispose()
    (tmp_path / "api.sqlite").unlink()
    with pytest.raises(NoValidHost, match="different_rack may name cannot be read now"):
        _hosts(scheduler, _spec(different_rack=MINE))
    assert _hosts(scheduler, _spec(near=MINE)) == {"a", "b", "c"}
    source = scheduler.parts.source
    assert isinstance(source, _FileWithGroups)
    with pytest.raises(GroupsUnavailable, match="no such table"):
        _members(source.nova, MINE)
