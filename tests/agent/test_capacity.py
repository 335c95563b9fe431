# SPDX-License-Identifier: Apache-2.0
"""The state of a machine, as the operating system and Placement have it."""

from __future__ import annotations

import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.agent import capacity
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.sources.inventory import read_inventory

from ..fixtures.clouds import host, write_inventory

NODE = str(uuid.uuid4())


def with_options(conf: cfg.ConfigOpts, **options: Any) -> cfg.ConfigOpts:
    for name, value in options.items():
        conf.set_override(name, value, group="agent")
    return conf


def test_machine_is_as_its_kernel_reports(conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    conf.set_override("host", "machine")
    with_options(conf, disk_path=str(tmp_path), reserved_memory_mb=100)
    record = capacity.record(conf, NODE)
    stat = os.statvfs(tmp_path)
    assert (record.host, record.nodename, record.uuid) == ("machine", "machine", NODE)
    assert record.vcpus_total == len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    assert record.total_usable_ram_mb == pytest.approx(pages, abs=1)
    assert 0 < record.free_ram_mb <= record.total_usable_ram_mb - 100
    assert record.total_usable_disk_gb == stat.f_blocks * stat.f_frsize // 2**30
    assert record.free_disk_mb <= record.total_usable_disk_gb * 1024 + 1024
    assert record.supported_instances[0][0] == os.uname().machine


def test_cell_is_that_of_an_inventory_file_or_a_uuid(tmp_path: Path) -> None:
    inventory = read_inventory(write_inventory(tmp_path, host("h1")))
    assert capacity.cell_uuid("cell1") == inventory.cells["cell1"]
    assert capacity.cell_uuid(NODE.upper()) == NODE


def test_uuid_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "node_uuid")
    first = capacity.read_node_uuid(path)
    assert str(uuid.UUID(first)) == first
    assert capacity.read_node_uuid(path) == first


def test_processes_that_start_together_keep_one_uuid(tmp_path: Path) -> None:
    path = tmp_path / "node_uuid"
    n_processes = 8
    together = threading.Barrier(n_processes)

    def start(_: int) -> str:
        together.wait()
        return capacity.read_node_uuid(str(path))

    with ThreadPoolExecutor(n_processes) as pool:
        for _ in range(20):
            assert len(set(pool.map(start, range(n_processes)))) == 1
            path.unlink()
    assert list(tmp_path.iterdir()) == [], "nothing is left beside it"


@pytest.mark.parametrize("text", [b"", b"not a UUID", b"\xff\xfe"])
def test_file_without_a_uuid_is_reported(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "node_uuid"
    path.write_bytes(text)
    with pytest.raises(ConfigurationError, match="node_uuid_file"):
        capacity.read_node_uuid(str(path))


def test_instances_are_folders_named_by_uuid(
    conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    one, two, three = (str(uuid.uuid4()) for _ in range(3))
    for name in (one, two.upper(), "_base", "locks"):
        (tmp_path / name).mkdir()
    (tmp_path / three).write_text("a file")
    assert capacity.instances(str(tmp_path)) == {one, two}
    assert capacity.instances(None) == frozenset()
    with_options(conf, instances_path=str(tmp_path))
    assert capacity.record(conf, NODE).num_instances == 2


def test_kernel_without_the_value_is_an_error(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 2048 kB\n")
    with pytest.raises(OSError, match="MemAvailable"):
        capacity.memory_mb(meminfo)
    meminfo.write_text("MemTotal: 2048 kB\nMemFree: 9 kB\nMemAvailable: 1024 kB\n")
    assert capacity.memory_mb(meminfo) == {"MemTotal": 2, "MemAvailable": 1}
