# SPDX-License-Identifier: Apache-2.0
"""A decision on providers in memory is as right as on Placement's own answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory

from ...fixtures.clouds import (
    CONTEXT,
    claimed,
    host,
    new_uuids,
    request,
    write_inventory,
)
from ...fixtures.placement_servers import EmbeddedPlacementFixture
from .test_cached_candidates import Counted


class FollowedCloud:
    """Schedulers of hosts with 8 vCPUs, and a Placement whose database they follow."""

    def __init__(self, folder: Path, placement: EmbeddedPlacementFixture) -> None:
        self.folder = folder
        self.database = folder / "placement.sqlite"
        self.placement = placement.client
        self.adapter = Counted(placement.adapter)
        self.schedulers: list[Scheduler] = []

    def seed(self, *hosts: dict[str, Any]) -> None:
        self.path = write_inventory(self.folder, *hosts)
        seed(self.placement, providers(read_inventory(self.path)))

    def scheduler(self, **moorage: Any) -> Scheduler:
        conf = load([], config_files=[])
        options = {"candidates": "memory", "inventory_file": str(self.path), **moorage}
        for name, value in options.items():
            conf.set_override(name, value, group="moorage")
        url = f"sqlite:///{self.database}"
        conf.set_override("connection", url, group="placement_database")
        made = build(conf, placement=self.adapter)
        self.schedulers.append(made)
        made.start()
        return made

    def select(
        self, scheduler: Scheduler, uuids: list[str] | None = None, **changes: Any
    ) -> list[str]:
        """Return the hosts of instances, once it is checked that they are claimed."""
        uuids = uuids or new_uuids()
        answer: Any = scheduler.select_destinations(
            CONTEXT,
            request(**{"vcpus": 8, "num_instances": len(uuids), **changes}),
            uuids,
            return_objects=True,
        )
        for uuid, [chosen] in zip(uuids, answer, strict=True):
            assert self.placement.allocations(uuid).resources == claimed(chosen)
        return [chosen.service_host for [chosen] in answer]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[FollowedCloud]:
    with EmbeddedPlacementFixture(str(tmp_path / "placement.sqlite")) as placement:
        made = FollowedCloud(tmp_path, placement)
        yield made
        for scheduler in made.schedulers:
            scheduler.stop()


def test_no_query_is_sent_while_hosts_fit(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"), host("b"), host("c"))
    scheduler = cloud.scheduler()
    chosen = [cloud.select(scheduler)[0] for _ in range(3)]
    assert sorted(chosen) == ["a", "b", "c"]
    assert cloud.adapter.n_questions == 0
    assert scheduler.candidates.query_counts()["memory"] == 3
