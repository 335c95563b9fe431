# SPDX-License-Identifier: Apache-2.0
"""New compute nodes get host mappings, once, even if others create them too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.nova_db import schema
from moorage.scheduler.sources.nova_db.directory import CellMappingRow
from moorage.scheduler.sources.nova_db.discovery import discover_hosts

from ....conftest import NOW
from .databases import NODES, Nova, cell_uuid

MAPPINGS = schema.host_mappings


@pytest.fixture
def nova(tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path, "cell1", "cell2") as nova:
        nova.host("a", mapped=0)
        nova.host("b", "cell2", mapped=1)
        yield nova


def _mapped(nova: Nova) -> dict[str, int]:
    with nova.api.connect() as connection:
        query = sa.select(MAPPINGS.c.host, MAPPINGS.c.cell_id)
        return dict(connection.execute(query).all())


def _unmapped(nova: Nova, cell: str = "cell1") -> list[str]:
    with nova.cells[cell].connect() as connection:
        query = sa.select(NODES.c.hypervisor_hostname).where(NODES.c.mapped == 0)
        return list(connection.execute(query).scalars())


def _cell(nova: Nova, name: str = "cell1") -> CellMappingRow:
    number = 2 + ["cell1", "cell2"].index(name)  # cell0 was first
    return CellMappingRow(number, cell_uuid(name), name, nova.connections[name])


def test_new_node_is_mapped_once(nova: Nova) -> None:
    nova.node("a2", host="a", mapped=0)
    assert discover_hosts(nova.api, nova.cells["cell1"], _cell(nova), NOW) == 2
    assert (_mapped(nova), _unmapped(nova)) == ({"a": 2}, [])
    assert discover_hosts(nova.api, nova.cells["cell1"], _cell(nova), NOW) == 0


def test_host_of_another_cell_is_left_alone(
    nova: Nova, caplog: pytest.LogCaptureFixture
) -> None:
    nova.insert(nova.api, MAPPINGS, host="a", cell_id=3)
    assert discover_hosts(nova.api, nova.cells["cell1"], _cell(nova), NOW) == 0
    assert (_mapped(nova), _unmapped(nova)) == ({"a": 3}, ["a"])
    assert "another cell" in caplog.text


def test_several_schedulers_discover_at_the_same_time(nova: Nova) -> None:
    for i in range(20):
        nova.host(f"new{i}", mapped=0)
    failures: list[Exception] = []
    barrier = threading.Barrier(3)

    def discover() -> None:
        barrier.wait()
        try:
            discover_hosts(nova.api, nova.cells["cell1"], _cell(nova), NOW)
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=discover) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(_mapped(nova)) == 21
    assert _unmapped(nova) == []


@pytest.mark.parametrize(
    ("interval", "is_mapped"), [(-1, False), (0, True), (60, True)]
)
def test_discovery_is_made_every_so_often(
    nova: Nova, conf: cfg.ConfigOpts, interval: int, is_mapped: bool
) -> None:
    conf.set_override("discover_hosts_in_cells_interval", interval, group="scheduler")
    table, source = HostTable(), nova.source(conf)
    source.start(table)
    source.refresh_if_stale(table)
    assert _mapped(nova) == ({"a": 2} if is_mapped else {})
    nova.host("later", "cell2", mapped=0)
    source.refresh_if_stale(table)
    assert "later" not in _mapped(nova)
    nova.clock.now += 61
    source.refresh_if_stale(table)
    assert ("later" in _mapped(nova)) is is_mapped
