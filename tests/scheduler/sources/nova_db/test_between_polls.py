# SPDX-License-Identifier: Apache-2.0
"""Decisions after changes that the last poll of the databases has missed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.objects import CellMapping, Destination
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.instances import InstanceState
from moorage.scheduler.placement.memory import ProviderCandidatesSource
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.sources.nova_db.engines import Engines
from moorage.testing import PlacementFixture

from ....conftest import node_uuid
from ....fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from .databases import SERVICES, Nova

#: Seconds: no poll happens during a test.
NEVER = 3600.0


class Cloud:
    """A scheduler of the hosts a and b that polls nova's databases, as by default.

    Parameters
    ----------
    is_followed : bool
        Whether candidates come from Placement's providers in memory.
    """

    def __init__(
        self,
        folder: Path,
        conf: cfg.ConfigOpts,
        nova: Nova,
        placement: Any,
        *,
        is_followed: bool = False,
    ) -> None:
        self.folder, self.placement = folder, placement
        self.seed(*"abc")
        self.nova = nova
        # As a service makes them: oslo.db raises errors of its own.
        self.engines = Engines(conf)
        nova.engines = {url: self.engines.cell(url) for url in nova.engines}
        for name in "ab":
            nova.host(name, free_ram_mb={"a": 16384, "b": 8192}[name])
        self.source = nova.source(conf, refresh_interval=NEVER)
        self.scheduler: Scheduler = build(
            conf,
            placement=placement.embedded if is_followed else placement.embedded.adapter,
            source=self.source,
            clock=nova.clock,
        )
        self.scheduler.start()

    def seed(self, *names: str) -> None:
        """Have these providers in Placement."""
        hosts = [
            host(name, uuid=node_uuid(name), traits=["OWNER_NOVA"]) for name in names
        ]
        inventory = read_inventory(write_inventory(self.folder, *hosts))
        seed(self.placement.client, providers(inventory))

    def select(self, n_instances: int = 1, **changes: Any) -> list[str]:
        answer: Any = self.scheduler.select_destinations(
            CONTEXT,
            request(num_instances=n_instances, **changes),
            new_uuids(n_instances),
            return_objects=True,
        )
        return [chosen.service_host for [chosen, *_] in answer]


@pytest.fixture
def cloud(tmp_path: Path, conf: cfg.ConfigOpts) -> Iterator[Cloud]:
    with Nova(tmp_path) as nova, PlacementFixture() as placement:
        cloud = Cloud(tmp_path, conf, nova, placement)
        yield cloud
        cloud.scheduler.stop()


def _forced(name: str) -> dict[str, Any]:
    return {"force_hosts": [name]}


def _requested(name: str) -> dict[str, Any]:
    destination = Destination(host=name, node=name, cell=None, aggregates=None)
    return {"requested_destination": destination}


def _evacuated(name: str) -> dict[str, Any]:
    return {**_requested(name), "ignore_hosts": ["a"]}


@pytest.mark.parametrize("named", [_forced, _requested, _evacuated])
def test_named_host_that_has_just_started_is_found(cloud: Cloud, named: Any) -> None:
    with pytest.raises(NoValidHost, match="No such host"):
        cloud.select(**named("c"))
    cloud.nova.host("c")
    assert cloud.select(**named("c")) == ["c"]


def test_named_host_that_has_just_come_back_is_selected(cloud: Cloud) -> None:
    cloud.nova.clock.now += 300
    with pytest.raises(NoValidHost):
        cloud.select(**_requested("b"))
    cloud.nova.beat("b", 300)
    assert cloud.select(**_requested("b")) == ["b"]


@pytest.mark.parametrize("column", ["forced_down", "disabled"])
@pytest.mark.parametrize("n_instances", [1, 3])
def test_host_that_was_just_disabled_is_not_selected(
    cloud: Cloud, column: str, n_instances: int
) -> None:
    engine = cloud.nova.cells["cell1"]
    cloud.nova.update(engine, SERVICES, SERVICES.c.host == "a", **{column: True})
    for _ in range(2):
        assert set(cloud.select(n_instances)) == {"b"}


@pytest.mark.parametrize("column", ["forced_down", "disabled"])
def test_host_that_was_just_disabled_is_no_alternate(cloud: Cloud, column: str) -> None:
    cloud.nova.host("c")
    assert cloud.select(**_requested("c")) == ["c"]
    engine = cloud.nova.cells["cell1"]
    cloud.nova.update(engine, SERVICES, SERVICES.c.host == "a", **{column: True})
    answers: Any = cloud.scheduler.select_destinations(
        CONTEXT,
        request(),
        new_uuids(),
        return_objects=True,
        return_alternates=True,
    )
    [answer] = answers
    assert {selection.service_host for selection in answer} == {"b", "c"}


def test_no_host_is_valid_once_all_are_disabled(cloud: Cloud) -> None:
    engine = cloud.nova.cells["cell1"]
    cloud.nova.update(engine, SERVICES, SERVICES.c.id > 0, forced_down=True)
    with pytest.raises(NoValidHost):
        cloud.select()


def test_forced_host_is_selected_though_it_was_just_disabled(cloud: Cloud) -> None:
    engine = cloud.nova.cells["cell1"]
    cloud.nova.update(engine, SERVICES, SERVICES.c.host == "b", disabled=True)
    assert cloud.select(**_forced("b")) == ["b"]


def _lose_cell(cloud: Cloud, folder: Path) -> None:
    cloud.engines.dispose()
    (folder / "cell1.sqlite").rename(folder / "lost")


def test_cell_that_does_not_answer_stops_no_decision(
    cloud: Cloud, tmp_path: Path
) -> None:
    _lose_cell(cloud, tmp_path)
    # No poll precedes the claim: Placement offers only hosts that are known.
    assert cloud.select(**_requested("a")) == ["a"]
    # The host c is not known: a poll finds that the cell is away.
    assert cloud.select()[0] in {"a", "b"}


def test_cell_that_does_not_answer_may_have_any_instance(
    cloud: Cloud, tmp_path: Path
) -> None:
    [uuid] = new_uuids()
    assert cloud.source.locate_instance(uuid).state is InstanceState.PENDING
    _lose_cell(cloud, tmp_path)
    assert cloud.source.locate_instance(uuid).state is InstanceState.UNKNOWN


@pytest.mark.parametrize("is_followed", [False, True], ids=["cached", "memory"])
@pytest.mark.parametrize("n_instances", [1, 3])
def test_instance_stays_in_its_cell_on_a_host_that_has_just_started(
    tmp_path: Path, conf: cfg.ConfigOpts, is_followed: bool, n_instances: int
) -> None:
    with Nova(tmp_path, "cell1", "cell2") as nova, PlacementFixture() as placement:
        cloud = Cloud(tmp_path, conf, nova, placement, is_followed=is_followed)
        source = cloud.scheduler.candidates
        if isinstance(source, ProviderCandidatesSource):
            source.follower.stop()
        nova.host("c", "cell2")
        assert cloud.select(**_requested("c")) == ["c"]
        cell_uuid = cloud.scheduler.table.batch([node_uuid("a")]).cell_uuid[0]
        destination = Destination(
            cell=CellMapping(uuid=cell_uuid),
            aggregates=None,
            allow_cross_cell_move=True,
        )
        moved = {"requested_destination": destination, "ignore_hosts": ["a", "b"]}
        assert set(cloud.select(n_instances, **moved)) == {"c"}
        nova.host("d")
        cloud.seed("d")
        assert set(cloud.select(n_instances, **moved)) == {"d"}
        cloud.scheduler.stop()
