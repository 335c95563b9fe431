# SPDX-License-Identifier: Apache-2.0
"""examples/conductor with a real scheduler and a real Placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.conductor import BuildFailed, Computes, Conductor
from examples.demo.cloud import DemoCloud, running
from examples.demo.commands import DATA
from moorage.objects import Flavor
from moorage.scheduler.errors import NoValidHost

from ..fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory

#: Hosts with more memory are selected first.
MEMORY_MB = {"best": 65536, "second": 32768, "third": 16384}


class Stage:
    """A conductor, and a cloud of three hosts in one cell and one in another."""

    def __init__(self, cloud: DemoCloud) -> None:
        self.cloud = cloud
        self.failing: set[str] = set()
        self.computes = Computes(lambda _, name: name not in self.failing)
        self.conductor = Conductor(cloud.api, cloud.placement, self.computes)
        records = [each.record for each in cloud.inventory.hosts]
        self._names = {record.uuid: record.host for record in records}

    def create(self, count: int = 1, **changes: Any) -> list[str]:
        """Create instances of 2 vCPUs, and return their UUIDs."""
        uuids = new_uuids(count)
        spec = request(**{"vcpus": 2, "num_instances": count, **changes})
        self.conductor.create(CONTEXT, spec, uuids)
        return uuids

    def held(self, consumer: str) -> dict[str, int]:
        """Return the VCPUs that a consumer holds, by host."""
        held = self.cloud.placement.allocations(consumer).resources
        return {self._names[node]: what["VCPU"] for node, what in held.items()}

    def used(self) -> dict[str, int]:
        """Return all allocated VCPUs, by host."""
        counted: Counter[str] = Counter()
        for node, name in self._names.items():
            url = f"/resource_providers/{node}/usages"
            body: Any = self.cloud.placement.read(url)
            counted[name] = body["usages"]["VCPU"]
        return dict(+counted)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    hosts = [host(name, memory_mb=size) for name, size in MEMORY_MB.items()]
    inventory = write_inventory(tmp_path, *hosts, host("far", cell="cell2"))
    with running(inventory, DATA / "rows.csv", "fake://") as cloud:
        yield Stage(cloud)


def test_instance_is_built_on_the_selected_host(stage: Stage) -> None:
    [uuid] = stage.create()
    server = stage.conductor.servers[uuid]
    assert server.host == "best"
    assert [a.service_host for a in server.alternates] == ["second", "third"]
    assert stage.computes.guests("best") == {uuid}
    assert stage.held(uuid) == {"best": 2} == stage.used()


def test_failed_build_is_tried_on_the_alternate(stage: Stage) -> None:
    stage.failing = {"best"}
    [uuid] = stage.create()
    server = stage.conductor.servers[uuid]
    assert [(a.host, a.outcome) for a in server.attempts] == [
        ("best", "build failed, claim released"),
        ("second", "built"),
    ]
    assert stage.held(uuid) == {"second": 2} == stage.used()


def test_alternate_that_is_full_by_then_is_skipped(stage: Stage) -> None:
    rival_request = request(vcpus=8, force_hosts=["second"])
    [rival] = new_uuids()

    def builds(_: str, name: str) -> bool:
        if name == "best" and not stage.held(rival):  # another request is faster
            stage.cloud.api.select_destinations(CONTEXT, rival_request, [rival])
        return name != "best"

    conductor = Conductor(stage.cloud.api, stage.cloud.placement, Computes(builds))
    [uuid] = new_uuids()
    [server] = conductor.create(CONTEXT, request(vcpus=2), [uuid])
    assert [(a.host, a.outcome) for a in server.attempts] == [
        ("best", "build failed, claim released"),
        ("second", "claim refused"),
        ("third", "built"),
    ]
    assert stage.used() == {"second": 8, "third": 2}


def test_instance_that_cannot_be_built_holds_nothing(stage: Stage) -> None:
    stage.failing = {*MEMORY_MB}
    with pytest.raises(BuildFailed, match="runs on none of best, second, third"):
        stage.create()
    assert stage.used() == {}
    assert not stage.conductor.servers
    [uuid] = stage.conductor.failed
    stage.conductor.delete(CONTEXT, uuid)
    assert not stage.conductor.failed


def test_of_several_instances_those_that_can_be_built_run(stage: Stage) -> None:
    one, two = new_uuids(2)
    computes = Computes(lambda uuid, _: uuid != one)
    conductor = Conductor(stage.cloud.api, stage.cloud.placement, computes)
    with pytest.raises(BuildFailed, match=one):
        conductor.create(CONTEXT, request(vcpus=2, num_instances=2), [one, two])
    assert {*conductor.servers} == {two}
    assert stage.held(one) == {}
    assert stage.held(two) == stage.used()


def test_request_that_fits_no_host_leaves_nothing(stage: Stage) -> None:
    with pytest.raises(NoValidHost):
        stage.create(vcpus=99)
    assert stage.used() == {}


def test_migration_holds_the_source_until_it_is_confirmed(stage: Stage) -> None:
    [uuid] = stage.create()
    move = stage.conductor.migrate(CONTEXT, uuid)
    assert stage.held(uuid) == {"second": 2}
    assert stage.held(move.uuid) == {"best": 2}
    assert stage.conductor.confirm(CONTEXT, uuid).host == "second"
    assert stage.held(uuid) == {"second": 2} == stage.used()
    assert stage.held(move.uuid) == {}
    assert stage.computes.guests("best") == frozenset()


def test_reverted_migration_restores_everything(stage: Stage) -> None:
    [uuid] = stage.create()
    move = stage.conductor.migrate(CONTEXT, uuid)
    assert stage.conductor.revert(CONTEXT, uuid).host == "best"
    assert stage.held(uuid) == {"best": 2} == stage.used()
    assert stage.held(move.uuid) == {}
    assert stage.computes.guests("second") == frozenset()
    assert not stage.conductor.moves


def test_resize_allocates_the_new_size_on_the_other_host_only(stage: Stage) -> None:
    [uuid] = stage.create()
    sizes = {"memory_mb": 2048, "root_gb": 10, "ephemeral_gb": 0, "swap": 0}
    large = Flavor(name="large", flavorid="2", vcpus=4, extra_specs={}, **sizes)
    move = stage.conductor.migrate(CONTEXT, uuid, large)
    assert (stage.held(uuid), stage.held(move.uuid)) == ({"second": 4}, {"best": 2})
    stage.conductor.confirm(CONTEXT, uuid)
    assert stage.used() == {"second": 4}
    assert stage.conductor.servers[uuid].spec.flavor.vcpus == 4


def test_failed_destination_is_followed_by_its_alternate(stage: Stage) -> None:
    [uuid] = stage.create()
    stage.failing = {"second"}
    move = stage.conductor.migrate(CONTEXT, uuid)
    assert move.destination.host == "third"
    assert (stage.held(uuid), stage.held(move.uuid)) == ({"third": 2}, {"best": 2})


def test_migration_that_no_host_accepts_is_reverted(stage: Stage) -> None:
    [uuid] = stage.create()
    stage.failing = {*MEMORY_MB}
    with pytest.raises(BuildFailed):
        stage.conductor.migrate(CONTEXT, uuid)
    assert stage.held(uuid) == {"best": 2} == stage.used()
    assert stage.conductor.servers[uuid].host == "best"
    assert not stage.conductor.moves


def test_migration_does_not_leave_the_cell(stage: Stage) -> None:
    [uuid] = stage.create(vcpus=6)
    for name in ("second", "third"):
        stage.create(vcpus=6, force_hosts=[name])
    with pytest.raises(NoValidHost):
        stage.conductor.migrate(CONTEXT, uuid)
    assert stage.held(uuid) == {"best": 6}
    assert stage.used() == {"best": 6, "second": 6, "third": 6}


def test_forced_instance_can_be_moved(stage: Stage) -> None:
    [uuid] = stage.create(force_hosts=["third"])
    assert stage.conductor.migrate(CONTEXT, uuid).destination.host == "best"


@pytest.mark.parametrize("is_moving", [False, True], ids=["at-rest", "moving"])
def test_deleted_instance_holds_nothing(stage: Stage, is_moving: bool) -> None:
    [uuid] = stage.create()
    if is_moving:
        stage.conductor.migrate(CONTEXT, uuid)
    stage.conductor.delete(CONTEXT, uuid)
    assert stage.used() == {}
    assert not stage.conductor.servers
    assert not any(stage.computes.guests(name) for name in MEMORY_MB)
