# SPDX-License-Identifier: Apache-2.0
"""A row of the table is what nova's host manager makes of the database's rows."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.hosts import HostState, HostTable

from ....conftest import node_uuid
from .databases import NODES, Nova, cell_uuid, node, us

#: Columns that a host may leave empty.
TEXTS = ("numa_topology", "pci_stats", "metrics", "supported_instances")


@pytest.fixture
def nova(tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path) as nova:
        yield nova


def _read(nova: Nova, conf: cfg.ConfigOpts) -> list[HostState]:
    table = HostTable()
    nova.source(conf).start(table)
    return list(table.batch())


def test_columns_are_nova_s(nova: Nova, conf: cfg.ConfigOpts) -> None:
    nova.host(
        "a",
        host_ip="10.0.0.1",
        cpu_info='{"arch": "x86_64"}',
        supported_instances='[["amd64", "kvm", "hvm"]]',
        stats=json.dumps(
            {"num_instances": 3, "io_workload": "2", "failed_builds": "1", "x": None}
        ),
        pci_stats='[{"vendor_id": "8086", "product_id": "1", "count": 3}]',
        numa_topology='{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 512}}]}',
        metrics=json.dumps(
            [
                {"name": "cpu.percent", "value": 0.25, "source": "s", "timestamp": ""},
                {"name": "cpu.frequency", "value": 1600, "source": "s"},
                {"name": "numa.membw.current", "numa_membw_values": {"0": 1}},
            ]
        ),
    )
    (host,) = _read(nova, conf)
    assert (host.host, host.nodename, host.uuid) == ("a", "a", node_uuid("a"))
    assert host.cell_uuid == cell_uuid("cell1")
    assert (host.total_usable_ram_mb, host.free_ram_mb) == (16384, 8192)
    assert (host.total_usable_disk_gb, host.disk_mb_used) == (100, 51200)
    assert (host.vcpus_total, host.vcpus_used) == (8, 2)
    assert (host.num_instances, host.num_io_ops, host.failed_builds) == (3, 2, 1)
    assert dict(host.stats) == {
        "num_instances": "3", "io_workload": "2", "failed_builds": "1",
    }  # fmt: skip
    assert host.supported_instances == (("x86_64", "kvm", "hvm"),)
    assert dict(host.metrics) == {"cpu.percent": 25, "cpu.frequency": 1600}
    assert (host.host_ip, host.cpu_info) == ("10.0.0.1", '{"arch": "x86_64"}')
    assert (host.hypervisor_type, host.hypervisor_version) == ("QEMU", 6002001)
    assert [pool["count"] for pool in host.pci_stats.pools] == [3]
    assert host.numa_topology is not None
    assert host.numa_topology.cells[0].cpuset == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("least_gb", "free_mb"), [(None, 51200), (10, 10240), (99, 51200), (-1, -1024)]
)
def test_disk_is_the_lesser(
    nova: Nova, conf: cfg.ConfigOpts, least_gb: int | None, free_mb: int
) -> None:
    nova.host("a", disk_available_least=least_gb)
    (host,) = _read(nova, conf)
    assert host.free_disk_mb == free_mb


@pytest.mark.parametrize("ratio", [None, 0.0])
def test_missing_ratio_is_the_option_s(
    nova: Nova, conf: cfg.ConfigOpts, ratio: float | None
) -> None:
    conf.set_override("ram_allocation_ratio", 1.25)
    conf.set_override("disk_allocation_ratio", 0.0)
    conf.set_override("initial_disk_allocation_ratio", 2.0)
    nova.host(
        "a",
        cpu_allocation_ratio=ratio,
        ram_allocation_ratio=ratio,
        disk_allocation_ratio=ratio,
    )
    (host,) = _read(nova, conf)
    assert host.cpu_allocation_ratio == 4.0
    assert host.ram_allocation_ratio == 1.25
    assert host.disk_allocation_ratio == 2.0
    with nova.cells["cell1"].connect() as connection:  # and stays missing
        assert connection.execute(NODES.select()).one().cpu_allocation_ratio == ratio


@pytest.mark.parametrize(
    ("columns", "seen"),
    [
        ({"last_seen_up": us(-3)}, us(-3) / 1e6),
        ({"last_seen_up": None, "created_at": us(-7)}, us(-7) / 1e6),
        ({"last_seen_up": None, "created_at": None}, math.nan),
    ],
)
def test_last_seen_time_of_a_service_is_novas(
    nova: Nova, conf: cfg.ConfigOpts, columns: dict[str, Any], seen: float
) -> None:
    nova.node("a")
    nova.service("a", disabled=True, forced_down=None, version=73, **columns)
    (host,) = _read(nova, conf)
    assert host.last_seen_up == pytest.approx(seen, nan_ok=True)
    batch = (bool(host.disabled), bool(host.forced_down), int(host.service_version))
    assert batch == (True, False, 73)


def test_other_services_are_none_of_ours(nova: Nova, conf: cfg.ConfigOpts) -> None:
    nova.host("a", free_disk_gb=None)
    nova.node("b")
    nova.service("b", binary="nova-conductor")
    nova.node("c", deleted=7)
    nova.service("c")
    nova.host("d", cell="cell0")
    assert _read(nova, conf) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("numa_topology", "{"),
        ("numa_topology", "[]"),
        ("pci_stats", "}{"),
        ("stats", "nonsense"),
        ("stats", '{"num_instances": "many"}'),
        ("stats", '{"num_instances": 1e300}'),
        ("stats", '{"a": {"b": 1}}'),
        ("metrics", '{"a": 1}'),
        ("metrics", '[{"value": 1}]'),
        ("supported_instances", '[["x86_64"]]'),
        ("supported_instances", '[["vax", "kvm", "hvm"]]'),
        ("uuid", None),
        ("host", None),
        ("hypervisor_hostname", None),
    ],
)
def test_invalid_row_is_logged_once_and_affects_no_other(
    nova: Nova,
    conf: cfg.ConfigOpts,
    caplog: pytest.LogCaptureFixture,
    column: str,
    value: str | None,
) -> None:
    broken: dict[str, Any] = {column: value}
    nova.host("good")
    nova.host("bad", **broken)
    table, source = HostTable(), nova.source(conf)
    source.start(table)
    source.refresh_if_stale(table)
    assert [host.nodename for host in table.batch()] == ["good"]
    errors = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    (note,) = source.notes()
    assert node_uuid("bad") in note or "bad" in note
    well = {**dict.fromkeys(TEXTS), **node("bad", updated_at=us(1))}
    nova.update(nova.cells["cell1"], NODES, NODES.c.id == 2, **well)
    source.refresh_if_stale(table)
    assert len(table) == 2
    assert source.notes() == ()


def test_row_that_becomes_invalid_keeps_its_values(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    nova.host("a")
    table, source = HostTable(), nova.source(conf)
    source.start(table)
    nova.change("a", stats="{", free_ram_mb=1, updated_at=us(1))
    source.refresh_if_stale(table)
    (host,) = table.batch()
    assert host.free_ram_mb == 8192
    assert len(source.notes()) == 1


def test_invalid_times_are_ignored(nova: Nova, conf: cfg.ConfigOpts) -> None:
    nova.host("a")
    with nova.cells["cell1"].begin() as connection:
        for table in ("services", "compute_nodes"):
            connection.exec_driver_sql(f"UPDATE {table} SET updated_at = 'yesterday'")
        connection.exec_driver_sql("UPDATE services SET last_seen_up = '0000-00-00'")
    (host,) = _read(nova, conf)
    assert host.last_seen_up == us(-1000) / 1e6


def test_equal_texts_are_kept_once(nova: Nova, conf: cfg.ConfigOpts) -> None:
    for name in ("a", "b"):
        nova.insert(nova.cells["cell1"], NODES, **node(name))
        nova.service(name)
    one, other = _read(nova, conf)
    assert one.stats is other.stats
