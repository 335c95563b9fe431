# SPDX-License-Identifier: Apache-2.0
"""A disk or a system that fails the claims' journal fails no request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.errors import PlacementError
from moorage.scheduler.instances import InstanceLocation, InstanceState
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.base import BaseHostSource
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.telemetry.serving import Telemetry
from moorage.scheduler.waiting import Task, ThreadSpawner

from ...fixtures.broken_disk import Disk
from ...fixtures.clouds import (
    CONTEXT,
    claimed,
    host,
    new_uuids,
    request,
    write_inventory,
)
from ...fixtures.faulty_placement import FaultKind, FaultyAdapter, writes
from ...fixtures.placement_servers import EmbeddedPlacementFixture
from ...fixtures.waiting import wait_until
from .conftest import Reader


def _gone(instance_uuid: str) -> InstanceLocation:  # noqa: ARG001 - as the source has it
    """Return that an instance was deleted."""
    return InstanceLocation(InstanceState.GONE)


class LimitedThreads(ThreadSpawner):
    """Threads of a system that may have none left."""

    has_some = True

    def spawn(self, run: Callable[[], object], *, name: str) -> Task:
        """Start a thread."""
        if not self.has_some:
            raise RuntimeError("can't start new thread")
        return super().spawn(run, name=name)


class Cloud:
    """A scheduler of one host, with what may fail around it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        path = write_inventory(folder, host("a", vcpus=64, local_gb=1000))
        embedded = stack.enter_context(EmbeddedPlacementFixture())
        seed(embedded.client, providers(read_inventory(path)))
        self.placement = embedded.client
        self.faulty = FaultyAdapter(embedded.adapter)
        self.threads = LimitedThreads()
        self.claims = folder / "claims"
        self.disk = stack.enter_context(Disk())
        conf = load([], config_files=[])
        conf.set_override("inventory_file", str(path), group="moorage")
        conf.set_override("claims_directory", str(self.claims), group="moorage")
        conf.set_override("http_port", 0, group="telemetry")
        conf.set_override("workers", 1, group="scheduler")
        self.scheduler: Scheduler = build(
            conf, placement=self.faulty, spawner=self.threads
        )
        stack.callback(self.scheduler.stop)
        self.scheduler.start()
        telemetry = stack.enter_context(Telemetry(conf))
        served = stack.enter_context(telemetry.serve(self.scheduler.status))
        assert telemetry.port is not None
        self.reader = Reader(telemetry.port, served)

    def select(self, n_instances: int = 1) -> list[str]:
        """Place instances; check that each holds what was answered."""
        uuids = new_uuids(n_instances)
        answer: Any = self.scheduler.select_destinations(
            CONTEXT, request(num_instances=n_instances), uuids, return_objects=True
        )
        for uuid, [chosen] in zip(uuids, answer, strict=True):
            assert self.placement.allocations(uuid).resources == claimed(chosen)
        return uuids

    def leave_orphan(self) -> str:
        """Fail a request of which Placement may hold the claim."""
        [uuid] = new_uuids()
        self.faulty.fault(FaultKind.LOST, writes(uuid))
        self.faulty.fault(
            FaultKind.AWAY, lambda call: uuid in call.url, times=20
        )  # until it gives up
        with pytest.raises(PlacementError):
            self.scheduler.select_destinations(CONTEXT, request(), [uuid])
        self.faulty.heal()
        self.scheduler.placement.health.end_pause()
        return uuid

    def faults(self, part: str) -> float:
        return self.reader.metrics()["moorage_claim_faults_total", part]

    def ready(self) -> str:
        """Return the page of a scheduler that is ready."""
        page = self.reader.get("/readyz")
        assert page.status == 200
        return str(page.text)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with ExitStack() as stack:
        yield Cloud(tmp_path, stack)


@pytest.mark.parametrize("n_instances", [1, 3])
def test_read_only_folder_fails_no_request(
    cloud: Cloud, caplog: pytest.LogCaptureFixture, n_instances: int
) -> None:
    cloud.select(n_instances)
    cloud.disk.read_only.add(cloud.claims)
    for _ in range(2):
        cloud.select(n_instances)
    [error] = [r for r in caplog.records if "cannot be written" in r.getMessage()]
    assert "Read-only file system" in error.getMessage()
    assert "remove the file" in error.getMessage()
    assert cloud.faults("journal") > 1
    assert f"cannot be recorded in {cloud.claims}: Read-only" in cloud.ready()

    cloud.disk.read_only.clear()
    cloud.select(n_instances)
    assert cloud.ready() == "Ready.\n"
    cloud.scheduler.stop()
    assert not list(cloud.claims.iterdir())


def test_orphan_of_a_read_only_folder_is_settled(cloud: Cloud) -> None:
    cloud.disk.read_only.add(cloud.claims)
    uuid = cloud.leave_orphan()
    cloud.scheduler.parts.source.locate_instance = _gone
    wait_until(lambda: not cloud.placement.allocations(uuid).resources)
    cloud.scheduler.stop()
    assert cloud.scheduler.status.n_orphans == 0


def test_scheduler_without_threads_serves_and_settles_orphans_once_it_has_some(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.threads.has_some = False
    first, second = cloud.leave_orphan(), cloud.leave_orphan()
    cloud.select()
    errors = [r for r in caplog.records if "cannot be started" in r.getMessage()]
    assert len(errors) == 1
    assert "can't start new thread" in cloud.ready()
    assert cloud.faults("thread") >= 2

    cloud.threads.has_some = True
    cloud.scheduler.parts.source.locate_instance = _gone
    cloud.select()
    assert cloud.ready() == "Ready.\n"
    wait_until(lambda: not cloud.placement.allocations(first).resources)
    wait_until(lambda: not cloud.placement.allocations(second).resources)


@pytest.mark.deep
def test_orphan_whose_check_fails_is_survived_and_checked_again(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    source: BaseHostSource = cloud.scheduler.parts.source
    broken, other = cloud.leave_orphan(), ""
    is_broken = True

    def locate(instance_uuid: str) -> Any:
        if is_broken and instance_uuid == broken:
            raise ZeroDivisionError
        return _gone(instance_uuid)

    source.locate_instance = locate
    other = cloud.leave_orphan()
    wait_until(lambda: not cloud.placement.allocations(other).resources)
    wait_until(lambda: cloud.faults("check") >= 2)
    errors = [
        record
        for record in caplog.records
        if record.levelno >= logging.ERROR and "Checking consumer" in record.msg
    ]
    assert len(errors) == 1
    is_broken = False
    wait_until(lambda: not cloud.placement.allocations(broken).resources)
