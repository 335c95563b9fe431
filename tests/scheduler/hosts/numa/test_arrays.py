# SPDX-License-Identifier: Apache-2.0
"""Rows of cells can be added and padded; arrays read earlier do not change."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.hosts.numa import (
    NO_CELL,
    NO_SOCKET,
    CellArrays,
    CellRows,
    HostTopology,
    Pages,
)

from .numa_hosts import host, host_cell, hosts, mask


def _arrays(*topologies: HostTopology | None) -> CellArrays:
    arrays = CellArrays()
    arrays.extend(topologies)
    return arrays


def _values(rows: CellRows) -> dict[str, list[Any]]:
    names = ("id", "n_free_pcpus", "whole_cores", "socket", "size_kb", "free_kb")
    return {name: rows[name].tolist() for name in names}


def test_no_row_is_there_at_first() -> None:
    assert len(CellArrays()) == len(CellArrays().rows()) == 0


def test_host_without_cells_has_none() -> None:
    rows = _arrays(None, host(host_cell())).rows()
    assert rows.n_cells.tolist() == [0, 1]
    assert rows["id"].tolist() == [[NO_CELL], [0]]


def test_cell_is_counted() -> None:
    # Cores with 2, 1, 0 and 2 free threads; another CPU is in no core.
    cell = host_cell(
        3,
        pcpus=(*range(8), 9),
        cpus=(8,),
        pinned=mask(1, 2, 6),
        memory_usage=96,
        cpu_usage=5,
        socket=1,
        pages=(Pages(2048, 10, used=1), Pages(4, 100, reserved=3)),
    )
    rows = _arrays(host(cell)).rows()
    expected = {
        "id": 3,
        "socket": 1,
        "memory_mb": 4096,
        "memory_usage": 96,
        "free_memory_mb": 4000,
        "cpu_usage": 5,
        "n_cpus": 1,
        "n_pcpus": 9,
        "n_free_pcpus": 6,
        "n_threads": 2,
        "free_threads": 5,
        "open_cores": 3,
        "whole_cores": 2,
        "paired_threads": 4,
        "are_one_set": False,
    }
    assert {name: rows[name].item() for name in expected} == expected
    assert rows["size_kb"][0, 0].tolist() == [4, 2048]
    assert rows["free_kb"][0, 0].tolist() == [97 * 4, 9 * 2048]
    assert rows["total_kb"][0, 0].tolist() == [400, 20480]


def test_cell_without_socket_is_distinguished() -> None:
    rows = _arrays(host(host_cell(0, socket=0), host_cell(1))).rows()
    assert rows["socket"].tolist() == [[0, NO_SOCKET]]


def test_rows_read_earlier_do_not_change_when_wider_ones_are_added() -> None:
    arrays = _arrays(host(host_cell(5)))
    before = arrays.rows()
    wide = host(*(host_cell(n, pages=(Pages(4, 1), Pages(8, 1))) for n in range(3)))
    arrays.extend([wide])
    assert before["id"].tolist() == [[5]]
    assert arrays.rows()["id"].tolist() == [[5, NO_CELL, NO_CELL], [0, 1, 2]]
    assert arrays.rows()["size_kb"][0, 0].tolist() == [0, 0]


@given(st.lists(st.lists(st.none() | hosts(3), max_size=4), max_size=4), st.data())
def test_rows_are_the_same_however_they_were_added(
    parts: list[list[HostTopology | None]], data: st.DataObject
) -> None:
    every = [topology for part in parts for topology in part]
    incremental = CellArrays()
    reads = []
    for part in parts:
        incremental.extend(part)
        reads.append(incremental.rows())
    all_at_once = _arrays(*every).rows()
    assert len(incremental) == len(every)
    assert np.array_equal(incremental.rows().n_cells, all_at_once.n_cells)
    assert _values(incremental.rows()) == _values(all_at_once)
    for rows in reads:
        width = rows.shape[1]
        assert rows["id"].tolist() == (all_at_once["id"][: len(rows), :width].tolist())
    start = data.draw(st.integers(0, len(every)))
    assert _values(incremental.rows(start)) == {
        name: values[start:] for name, values in _values(all_at_once).items()
    }


def test_rows_are_read_in_any_order_and_repeatedly() -> None:
    rows = _arrays(host(host_cell(0)), None, host(host_cell(2), host_cell(3))).rows()
    selected = rows.take(np.array([2, 0, 2]))
    assert selected.n_cells.tolist() == [2, 1, 2]
    assert selected["id"].tolist() == [[2, 3], [0, NO_CELL], [2, 3]]
    assert selected.take(np.array([1]))["id"].tolist() == [[0, NO_CELL]]
    assert len(selected) == 3


@pytest.fixture
def _frequent_thread_switches() -> Iterator[None]:
    """Let threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_frequent_thread_switches")
def test_rows_read_while_wider_ones_are_added_are_of_one_width() -> None:
    widest, torn = 40, list[set[tuple[int, ...]]]()
    cells = [host_cell(number) for number in range(widest)]
    reports = [host(*cells[:width]) for width in range(1, widest)]
    is_over = threading.Event()

    def read(arrays: CellArrays) -> None:
        while not is_over.is_set():
            rows = arrays.rows()
            shapes = {rows[name].shape for name in ("id", "socket", "are_one_set")}
            if shapes != {rows.shape}:
                torn.append(shapes)

    for _ in range(20):
        arrays = _arrays(host(cells[0]))
        is_over.clear()
        reader = threading.Thread(target=read, args=(arrays,))
        reader.start()
        for report in reports:
            arrays.extend([report])
        is_over.set()
        reader.join()
    assert not torn
