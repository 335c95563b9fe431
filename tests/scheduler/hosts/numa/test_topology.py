# SPDX-License-Identifier: Apache-2.0
"""A host's cells together: their sockets and threads, and guests that come and go."""

from __future__ import annotations

import pytest
from hypothesis import given

from moorage.scheduler.hosts.numa import HostTopology, Pages
from moorage.scheduler.request.numa import Guest

from .numa_hosts import cpus, fit, guests, host, host_cell, hosts, mask, pinned


def test_cells_are_found_by_id() -> None:
    topology = host(host_cell(3), host_cell(1), host_cell(0))
    assert topology.bits_of([0, 3, 7]) == 0b101


@pytest.mark.parametrize(
    ("siblings", "has_threads"),
    [([], False), ([()], False), ([(0,), (1,)], False), ([(0,), (1, 2)], True)],
)
def test_threads_are_derived_from_siblings(
    siblings: list[tuple[int, ...]], has_threads: bool
) -> None:
    assert host(host_cell(siblings=siblings)).has_threads is has_threads


def test_isolated_guest_uses_whole_cores() -> None:
    guest = Guest((pinned(1, thread_policy="isolate"),), is_isolated_emulator=True)
    topology = host(host_cell(cpus=tuple(range(8))))
    fitted = fit(topology, guest)
    assert fitted is not None
    assert cpus(topology.with_guest(fitted).cells[0].pinned) == {0, 4, 1, 5}


def test_isolated_guest_gives_back_no_thread_that_another_holds() -> None:
    guest = Guest((pinned(3, thread_policy="isolate"),), is_isolated_emulator=True)
    topology = host(host_cell(cpus=tuple(range(8)), pinned=mask(0)))
    fitted = fit(topology, guest)
    assert fitted is not None
    with_it = topology.with_guest(fitted)
    assert cpus(with_it.cells[0].pinned) == set(range(8))
    assert with_it.without_guest(fitted) == topology


@given(hosts(), guests())
def test_guest_that_leaves_frees_what_it_used(
    topology: HostTopology, guest: Guest
) -> None:
    fitted = fit(topology, guest)
    if fitted is None:
        return
    with_it = topology.with_guest(fitted)
    used = sum(cell.memory_usage for cell in topology.cells)
    required_mb = sum(cell.memory_mb for cell in guest.cells)
    assert sum(cell.memory_usage for cell in with_it.cells) == used + required_mb
    if all(cell.memory_mb >= 1024 for cell in guest.cells):  # no broken huge page
        assert with_it.without_guest(fitted) == topology


def test_description_has_the_free_amounts() -> None:
    description = host(
        host_cell(
            pinned=mask(0, 1), memory_usage=96, pages=(Pages(2048, 1000, reserved=3),)
        )
    ).describe()
    for amount in ("6 of 8", "4000 of 4096 MiB", "997 of 1000 pages of 2048 KiB"):
        assert amount in description
