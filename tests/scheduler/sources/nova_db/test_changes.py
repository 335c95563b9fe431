# SPDX-License-Identifier: Apache-2.0
"""After a poll the table has what nova would read, however the rows changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.hosts import HostTable

from ....conftest import instance_uuid, node_uuid
from ....fixtures.database_servers import Database
from .databases import (
    INSTANCES,
    NODES,
    SERVICES,
    Nova,
    contents,
    node,
    read_afresh,
    us,
)

N_HOSTS = 100  # too many to be read whole in each poll
N_INSTANCES = 300
_ON_A_SERVER = [pytest.mark.database, pytest.mark.deep]
DATABASES = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(None, id="sqlite"),
        pytest.param(Database.MARIADB, id="mariadb", marks=_ON_A_SERVER),
        pytest.param(Database.POSTGRESQL, id="postgresql", marks=_ON_A_SERVER),
    ],
)
pytestmark = DATABASES


class Cloud:
    """Two cells, a source that started a while ago, and its table."""

    def __init__(self, nova: Nova, conf: cfg.ConfigOpts) -> None:
        self.nova, self.conf = nova, conf
        for cell in ("cell1", "cell2"):
            nova.hosts(N_HOSTS, cell)
        with nova.cells["cell1"].begin() as connection:
            rows = [
                {
                    "uuid": instance_uuid(i),
                    "host": f"cell1-{i % N_HOSTS}",
                    "updated_at": us(-1000 + i),
                    "deleted": 0,
                }
                for i in range(N_INSTANCES)
            ]
            connection.execute(INSTANCES.insert(), rows)
        self.table, self.source = HostTable(), nova.source(conf)
        self.source.start(self.table)
        self.later(30)

    def later(self, seconds: float) -> None:
        """Look, and again after so long: what was read at the start has settled."""
        self.poll()
        self.nova.clock.now += seconds
        self.poll()

    def poll(self) -> None:
        self.source.refresh_if_stale(self.table)

    def check(self) -> dict[str, Any]:
        """Poll, and compare with the table of a source that polls the first time."""
        self.poll()
        seen = contents(self.table)
        assert seen == read_afresh(self.nova, self.conf)
        return seen


@pytest.fixture
def cloud(
    tmp_path: Path, conf: cfg.ConfigOpts, kind: Database | None
) -> Iterator[Cloud]:
    with Nova(tmp_path, "cell1", "cell2", kind=kind) as nova:
        yield Cloud(nova, conf)


def _free_ram(cloud: Cloud, name: str) -> int:
    host = next(iter(cloud.table.batch([node_uuid(name)])))
    return int(host.free_ram_mb)


def test_changed_row_is_read(cloud: Cloud) -> None:
    cloud.nova.change("cell1-7", free_ram_mb=1, updated_at=us(20))
    cloud.check()
    assert _free_ram(cloud, "cell1-7") == 1


def test_row_whose_time_went_back_is_read(cloud: Cloud) -> None:
    cloud.nova.change("cell1-7", free_ram_mb=1, updated_at=us(-5000))
    cloud.check()
    assert _free_ram(cloud, "cell1-7") == 1


def test_rows_that_change_twice_in_a_second_are_read_twice(cloud: Cloud) -> None:
    for ram in (1, 2, 3):
        for name in ("cell1-7", "cell1-8"):
            cloud.nova.change(name, free_ram_mb=ram, updated_at=us(20))
        cloud.check()
        cloud.nova.clock.now += 0.3
    assert _free_ram(cloud, "cell1-8") == 3


def test_host_whose_clock_is_behind_is_read_twice_a_second_too(cloud: Cloud) -> None:
    for ram in (1, 2, 3):
        cloud.nova.change("cell1-7", free_ram_mb=ram, updated_at=us(-3600))
        cloud.check()
        cloud.nova.clock.now += 0.3
    assert _free_ram(cloud, "cell1-7") == 3


def test_host_whose_clock_is_ahead_hides_no_other(cloud: Cloud) -> None:
    cloud.nova.change("cell1-7", free_ram_mb=1, updated_at=us(3600))
    cloud.later(10)
    cloud.nova.change("cell1-8", free_ram_mb=2, updated_at=us(41))
    cloud.check()
    assert (_free_ram(cloud, "cell1-7"), _free_ram(cloud, "cell1-8")) == (1, 2)


def test_row_without_time_is_read(cloud: Cloud) -> None:
    cloud.nova.change("cell1-7", free_ram_mb=1, updated_at=None)
    cloud.check()
    cloud.later(30)
    cloud.nova.change("cell1-7", free_ram_mb=2, updated_at=None)
    cloud.check()
    assert _free_ram(cloud, "cell1-7") == 2


@pytest.mark.parametrize("is_soft", [True, False], ids=["soft", "hard"])
def test_deleted_row_is_dropped(cloud: Cloud, is_soft: bool) -> None:
    engine, where = cloud.nova.cells["cell1"], NODES.c.host == "cell1-7"
    if is_soft:  # leaves updated_at alone
        cloud.nova.update(engine, NODES, where, deleted=NODES.c.id)
    else:
        cloud.nova.delete(engine, NODES, where)
    assert node_uuid("cell1-7") not in cloud.check()
    cloud.nova.node("new", host="cell1-7", uuid=node_uuid("cell1-7x"))
    assert node_uuid("cell1-7x") in cloud.check()


def test_node_comes_with_its_first_usage(cloud: Cloud) -> None:
    cloud.nova.host("new", free_disk_gb=None, updated_at=None)
    assert node_uuid("new") not in cloud.check()
    cloud.nova.change("new", free_disk_gb=10, updated_at=us(31))
    assert node_uuid("new") in cloud.check()


def test_heartbeat_is_read(cloud: Cloud) -> None:
    cloud.nova.beat("cell2-3", 29, cell="cell2")
    host = cloud.check()[node_uuid("cell2-3")]
    assert (us(29) / 1e6) in host


@pytest.mark.parametrize(
    "change", [{"disabled": True}, {"forced_down": True}, {"version": 75}]
)
def test_service_that_changes_twice_in_a_second_is_read_twice(
    cloud: Cloud, change: dict[str, Any]
) -> None:
    cloud.nova.beat("cell1-3", 29)
    cloud.check()
    cloud.nova.beat("cell1-3", 29, **change)
    (value,) = change.values()
    assert value in cloud.check()[node_uuid("cell1-3")]


def test_reason_is_read_with_the_disabling(cloud: Cloud) -> None:
    cloud.nova.beat("cell1-3", 29, disabled=True, disabled_reason="broken fan")
    assert "broken fan" in cloud.check()[node_uuid("cell1-3")]


def test_node_without_service_is_left_out_until_it_has_one(cloud: Cloud) -> None:
    engine, where = cloud.nova.cells["cell1"], SERVICES.c.host == "cell1-3"
    cloud.nova.update(engine, SERVICES, where, deleted=SERVICES.c.id)
    assert node_uuid("cell1-3") not in cloud.check()
    cloud.nova.service("cell1-3", updated_at=us(-500))
    assert node_uuid("cell1-3") in cloud.check()


def test_service_of_another_cell_serves_a_node(cloud: Cloud) -> None:
    engine, where = cloud.nova.cells["cell1"], SERVICES.c.host == "cell1-3"
    cloud.nova.delete(engine, SERVICES, where)
    cloud.nova.service("cell1-3", "cell2", last_seen_up=us(5))
    assert us(5) / 1e6 in cloud.check()[node_uuid("cell1-3")]
    cloud.nova.beat("cell1-3", 15, "cell2")
    assert us(15) / 1e6 in cloud.check()[node_uuid("cell1-3")]


@pytest.mark.parametrize("keeps_uuid", [True, False], ids=["same-uuid", "new-uuid"])
def test_host_that_moves_between_cells_is_there_once(
    cloud: Cloud, keeps_uuid: bool
) -> None:
    uuid = node_uuid("cell1-3" if keeps_uuid else "moved")
    cloud.nova.insert(
        cloud.nova.cells["cell2"], NODES, **node("cell1-3", uuid=uuid, updated_at=us(9))
    )
    cloud.nova.service("cell1-3", "cell2")
    seen = cloud.check()
    assert [row[2] for row in seen.values() if row[0] == "cell1-3"] == [
        cloud.source.cells[1].uuid
    ]
    cloud.nova.delete(cloud.nova.cells["cell1"], NODES, NODES.c.host == "cell1-3")
    assert cloud.check() == seen
    cloud.nova.delete(cloud.nova.cells["cell2"], NODES, NODES.c.host == "cell1-3")
    assert uuid not in cloud.check()


def test_instances_come_move_and_go(cloud: Cloud) -> None:
    cloud.nova.instance(instance_uuid("new"), "cell1-3", updated_at=us(20))
    assert instance_uuid("new") in cloud.check()[node_uuid("cell1-3")][-1]
    cloud.nova.change_instance(instance_uuid("new"), host="cell1-4", updated_at=us(21))
    seen = cloud.check()
    assert instance_uuid("new") not in seen[node_uuid("cell1-3")][-1]
    assert instance_uuid("new") in seen[node_uuid("cell1-4")][-1]
    # nova saves it, which sets its time, and then deletes it, which does not
    cloud.nova.change_instance(instance_uuid("new"), deleted=INSTANCES.c.id)
    assert instance_uuid("new") not in cloud.check()[node_uuid("cell1-4")][-1]


def test_comparison_finds_changes_without_a_new_time(cloud: Cloud) -> None:
    cloud.nova.change("cell1-7", free_ram_mb=1)
    cloud.nova.change_instance(instance_uuid(1), host="cell1-9")
    cloud.nova.delete(
        cloud.nova.cells["cell1"], INSTANCES, INSTANCES.c.uuid == instance_uuid(2)
    )
    cloud.table.instances.remove("cell1-5", instance_uuid(5))
    cloud.poll()
    assert _free_ram(cloud, "cell1-7") != 1
    cloud.nova.clock.now += cloud.conf.moorage.full_comparison_interval
    cloud.check()
    assert _free_ram(cloud, "cell1-7") == 1


#: Seconds within which instances are compared host by host; see `Instances`.
SOON_S = 12


def _check_soon(cloud: Cloud) -> None:
    """Poll once a second for a while, far less than to the next full comparison."""
    for _ in range(SOON_S):
        cloud.nova.clock.now += 1
        cloud.poll()
    assert contents(cloud.table) == read_afresh(cloud.nova, cloud.conf)


def test_instance_that_is_deleted_without_a_new_time_is_gone_soon(cloud: Cloud) -> None:
    cell = cloud.nova.cells["cell1"]
    cloud.nova.delete(cell, INSTANCES, INSTANCES.c.uuid == instance_uuid(2))
    cloud.nova.change_instance(instance_uuid(3), deleted=INSTANCES.c.id)
    _check_soon(cloud)
    assert not cloud.table.instances.hosts_of(instance_uuid(2))
    assert not cloud.table.instances.hosts_of(instance_uuid(3))


def test_instance_that_moves_without_a_new_time_is_followed_soon(cloud: Cloud) -> None:
    cloud.nova.host("empty")
    cloud.nova.change_instance(instance_uuid(1), host="cell1-9")
    cloud.nova.change_instance(instance_uuid(2), host="empty")
    _check_soon(cloud)
    assert cloud.table.instances.hosts_of(instance_uuid(1)) == ("cell1-9",)
    assert cloud.table.instances.hosts_of(instance_uuid(2)) == ("empty",)


def test_instance_that_is_committed_minutes_late_is_found_soon(cloud: Cloud) -> None:
    cloud.nova.host("empty")
    for host in ("cell1-5", "empty"):
        cloud.nova.instance(instance_uuid(host), host, updated_at=us(-5000))
    _check_soon(cloud)
    assert cloud.table.instances.hosts_of(instance_uuid("empty")) == ("empty",)


def test_instance_that_was_written_and_then_deleted_for_good_is_gone_at_once(
    cloud: Cloud,
) -> None:
    """As nova's confirm of a resize to another cell does."""
    cloud.nova.change_instance(instance_uuid(2), updated_at=us(29))
    cloud.check()
    cell = cloud.nova.cells["cell1"]
    cloud.nova.delete(cell, INSTANCES, INSTANCES.c.uuid == instance_uuid(2))
    cloud.check()
    assert not cloud.table.instances.hosts_of(instance_uuid(2))


def test_row_that_changes_again_is_read_although_polls_are_rare(cloud: Cloud) -> None:
    """Whole seconds: the second change has the time of the first."""
    cloud.nova.change("cell1-7", free_ram_mb=1, updated_at=us(30))
    cloud.check()
    cloud.nova.change("cell1-7", free_ram_mb=2, updated_at=us(30))
    cloud.nova.clock.now += 5
    cloud.poll()
    assert _free_ram(cloud, "cell1-7") == 2


def test_comparison_distinguishes_minus_one_from_minus_two(cloud: Cloud) -> None:
    """Python's hashes of the two are equal."""
    for free_ram_mb in (-1, -2):
        cloud.nova.change("cell1-7", free_ram_mb=free_ram_mb, updated_at=us(0))
        cloud.nova.clock.now += cloud.conf.moorage.full_comparison_interval
        cloud.check()
        assert _free_ram(cloud, "cell1-7") == free_ram_mb


def test_poll_does_not_read_old_deleted_instances(cloud: Cloud) -> None:
    """They are the newest rows of a cell that was drained."""
    cell = cloud.nova.cells["cell1"]
    read: list[int] = []
    with cell.begin() as connection:
        connection.execute(INSTANCES.update().values(deleted=INSTANCES.c.id))
        gone = [
            {
                "uuid": instance_uuid(1000 + i),
                "host": "cell1-1",
                "updated_at": us(-500_000 + 100 * i),
                "deleted": i + 1,
            }
            for i in range(2000)
        ]
        connection.execute(INSTANCES.insert(), gone)
    table, source = HostTable(), cloud.nova.source(cloud.conf)
    source.start(table)
    sa.event.listen(
        cell,
        "before_cursor_execute",
        lambda _c, _cursor, _text, parameters, *_: read.append(len(parameters)),
    )
    cloud.nova.clock.now += 2
    source.refresh_if_stale(table)
    assert read
    assert sum(read) < 500, "ids of rows that are read one by one"
