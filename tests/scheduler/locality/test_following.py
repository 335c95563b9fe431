# SPDX-License-Identifier: Apache-2.0
"""Members of Placement's aggregates are in places, also when Placement is away."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters.locality import LocalityFilter
from moorage.scheduler.errors import ConfigurationError, NoValidHost
from moorage.scheduler.explain import summarize
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.locality import conflicts_of_table
from moorage.scheduler.locality.following import PlaceFollower
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.members import change_aggregates
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.waiting import SystemWaiter, ThreadSpawner

from ...conftest import NOW, aggregate, host, instance_uuid, node_uuid, spec, table
from ...fixtures.clouds import CONTEXT, new_uuids, request, write_inventory
from ...fixtures.clouds import host as host_of_file
from ...fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
)
from ...fixtures.waiting import wait_until

R1, R2, ROW = (instance_uuid(name) for name in ("r1", "r2", "row"))
LINES = (f"{R1},rack,r1", f"{R2},rack,r2", f"{ROW},row,a")
IN = {"n1": {R1, ROW}, "n2": {R1, ROW}, "n3": {R2}, "n4": set[str]()}
RACKS = {"n1": ["r1"], "n2": ["r1"], "n3": ["r2"], "n4": []}


class Places:
    """A file of places, and the options that name it."""

    def __init__(self, folder: Path, conf: cfg.ConfigOpts) -> None:
        self.path = folder / "places.csv"
        self.conf = conf
        conf.set_override("levels", ["rack", "row"], group="locality")
        conf.set_override("places", str(self.path), group="locality")
        self.write(*LINES)

    def write(self, *lines: str) -> None:
        self.path.write_text("\n".join(("aggregate,level,place", *lines)))


@pytest.fixture
def places(tmp_path: Path, conf: cfg.ConfigOpts) -> Places:
    return Places(tmp_path, conf)


@pytest.fixture
def placement(embedded: EmbeddedPlacementFixture) -> EmbeddedPlacementFixture:
    """A Placement that has the hosts, and a child of one of them."""
    vcpus = {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192}}
    vcpus["DISK_GB"] = {"total": 100}
    seed(
        embedded.client,
        [
            *(
                Provider(node_uuid(name), name, vcpus, aggregates=frozenset(its))
                for name, its in IN.items()
            ),
            Provider(
                instance_uuid("child"), "child", {"VGPU": {"total": 1}},
                parent_uuid=node_uuid("n4"), aggregates=frozenset({R1}),
            ),
        ],
    )  # fmt: skip
    return embedded


@pytest.fixture
def server(placement: EmbeddedPlacementFixture) -> Iterator[MisbehavingServer]:
    with MisbehavingServer(placement.placement.wsgi_app) as server:
        yield server


def _hosts() -> HostTable:
    return table(*(host(host=name) for name in IN))


def _follower(
    places: Places, hosts: HostTable, server: MisbehavingServer
) -> PlaceFollower:
    return PlaceFollower(
        places.conf,
        hosts,
        server.client(),
        lambda: None,
        waiter=SystemWaiter(),
        spawner=ThreadSpawner(),
    )


def _racks(hosts: HostTable, conf: cfg.ConfigOpts) -> dict[str, Any]:
    found = summarize(hosts, conf, NOW).hosts
    return {each.host: each.places["rack"] for each in found}


def test_members_are_in_the_places_of_the_file(
    places: Places, server: MisbehavingServer
) -> None:
    hosts = _hosts()
    follower = _follower(places, hosts, server)
    assert follower.is_waiting
    follower.refresh()
    assert not follower.is_waiting
    assert _racks(hosts, places.conf) == RACKS
    assert conflicts_of_table(hosts, ["rack", "row"]) == []
    revision = hosts.revision
    follower.refresh()
    assert hosts.revision == revision
    hosts.drop(node_uuid("n3"))
    hosts.put(host(host="n3"))
    assert _racks(hosts, places.conf) == RACKS


def test_other_places_of_a_host_conflict(
    places: Places, server: MisbehavingServer
) -> None:
    hosts = table(
        host(host="n1", places=(("rack", "r2"),)),
        host(host="n2", places=(("rack", "r1"),)),
        host(host="n3"),
        aggregates=[aggregate(1, "n3", **{"moorage:level": "rack"})],
    )
    _follower(places, hosts, server).refresh()
    assert _racks(hosts, places.conf) == {
        "n1": ["r1", "r2"], "n2": ["r1"], "n3": ["aggregate1", "r2"]
    }  # fmt: skip
    assert len(conflicts_of_table(hosts, ["rack", "row"])) == 2


def test_nodes_of_one_service_host_are_in_different_racks(
    places: Places, server: MisbehavingServer
) -> None:
    nodes = {name: node_uuid(name) for name in ("n1", "n3")}
    hosts = table(
        *(host(host="ironic", nodename=n, uuid=uuid) for n, uuid in nodes.items())
    )
    _follower(places, hosts, server).refresh()
    spec_obj = spec(scheduler_hints={"in_rack": ["r2"]})
    rule, batch = LocalityFilter(places.conf).prepare(spec_obj), hosts.batch()
    assert list(batch.nodename[rule.passing(batch, spec_obj)]) == ["n3"]


def test_known_places_stay_while_placement_is_away(
    places: Places, server: MisbehavingServer, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = _hosts()
    follower = _follower(places, hosts, server)
    follower.refresh()
    with caplog.at_level(logging.INFO):
        server.misbehave(Misbehaviour.ERROR, verb="GET", times=2)
        follower.refresh()
        follower.refresh()
        assert _racks(hosts, places.conf) == RACKS
        [warning] = [x for x in caplog.messages if "[locality] places" in x]
        assert "the known ones are kept, and reading is retried every 60 s" in warning
        follower.refresh()
        follower.refresh()
    assert sum("answers again" in message for message in caplog.messages) == 1


def test_reload_applies_the_file_at_once(
    places: Places, server: MisbehavingServer
) -> None:
    hosts = _hosts()
    follower = _follower(places, hosts, server)
    follower.refresh()
    server.misbehave(Misbehaviour.ERROR, verb="GET", times=3)
    places.write(f"{R1},rack,one")
    follower.reload()
    racks = {"n1": ["one"], "n2": ["one"], "n3": [], "n4": []}
    assert _racks(hosts, places.conf) == racks
    places.write(f"{R1},shelf,one")
    with pytest.raises(ConfigurationError, match=r"\[locality\] places: .*line 2"):
        follower.reload()
    assert _racks(hosts, places.conf) == racks
    follower.stop()


def test_file_that_is_missing_stops_the_start(places: Places) -> None:
    places.path.unlink()
    with pytest.raises(ConfigurationError, match=r"\[locality\] places: .*No such"):
        build(places.conf, placement=object())  # type: ignore[arg-type]  # not used


# -- in a scheduler --------------------------------------------------------------------


def _built(places: Places, placement: Any, folder: Path) -> Scheduler:
    hosts = [host_of_file(name, uuid=node_uuid(name)) for name in IN]
    inventory = write_inventory(folder, *hosts)
    places.conf.set_override("inventory_file", str(inventory), group="moorage")
    made = build(places.conf, placement=placement)
    made.start()
    return made


@pytest.fixture(params=["http", "memory"])
def scheduler(
    request: pytest.FixtureRequest,
    places: Places,
    placement: EmbeddedPlacementFixture,
    tmp_path: Path,
) -> Iterator[Scheduler]:
    """One that asks Placement, or has its providers in memory."""
    in_memory = request.param == "memory"
    asked: EmbeddedPlacement | Any = placement.placement
    made = _built(places, asked if in_memory else placement.adapter, tmp_path)
    yield made
    made.stop()


def _selected(scheduler: Scheduler, **hints: list[str]) -> str:
    answer: Any = scheduler.select_destinations(
        CONTEXT, request(scheduler_hints=hints), new_uuids(), return_objects=True
    )
    return str(answer[0][0].service_host)


def test_rules_hold_from_the_first_decision(scheduler: Scheduler) -> None:
    assert _selected(scheduler, in_rack=["r2"]) == "n3"
    [record] = scheduler.decisions.newest()
    # Placement would apply it to a pool that shares with the hosts, too.
    assert "member_of" not in record.queries[0]
    assert _selected(scheduler, in_row=["a"]) in ("n1", "n2")
    with pytest.raises(NoValidHost):
        _selected(scheduler, in_rack=["r9"])


def test_reload_follows_placement_and_the_file(
    scheduler: Scheduler, places: Places
) -> None:
    node = node_uuid("n4")
    change_aggregates(scheduler.placement, node, leave=[], enter=[R2])
    places.write(f"{R2},rack,two")
    scheduler.reset()
    expected = {"n1": [], "n2": [], "n3": ["two"], "n4": ["two"]}
    wait_until(lambda: _racks(scheduler.table, places.conf) == expected)
    places.write("nonsense")
    with pytest.raises(ConfigurationError, match="line 2: nonsense; it must be"):
        scheduler.reset()
    assert _racks(scheduler.table, places.conf) == expected
