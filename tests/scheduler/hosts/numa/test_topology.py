# SPDX-License-Identifier: Apache-2.0
"""What guests take of a host's cells is kept count of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from moorage.scheduler.hosts.numa import (
    FittedCell,
    FittedGuest,
    Guest,
    GuestCell,
    HostCell,
    HostTopology,
    Pages,
    fit,
)

from .made import cpus, guests, host, host_cell, hosts, mask, pinned, shared


def test_cells_of_the_same_sockets_are_found() -> None:
    topology = host(*(host_cell(n, socket=n // 2) for n in range(6)))
    assert topology.in_sockets_of(frozenset({0, 5})) == {0, 1, 4, 5}


def test_one_cell_without_socket_leaves_nothing_known() -> None:
    topology = host(host_cell(0, socket=0), host_cell(1, socket=None))
    assert topology.in_sockets_of(frozenset({0})) == frozenset()


@pytest.mark.parametrize(
    ("siblings", "has_threads"),
    [([], False), ([()], False), ([(0,), (1,)], False), ([(0,), (1, 2)], True)],
)
def test_threads_are_told_by_siblings(
    siblings: list[tuple[int, ...]], has_threads: bool
) -> None:
    assert host(host_cell(siblings=siblings)).has_threads is has_threads


def _after(cell: HostCell, guest: GuestCell, **fitted: Any) -> HostCell:
    taken = FittedGuest((FittedCell(cell.id, guest, **fitted),))
    return host(cell).with_guest(taken).cells[0]


def test_pinned_guest_takes_memory_and_cpus() -> None:
    after = _after(
        host_cell(), pinned(2), pins=((0, 0), (1, 4)), reserved=frozenset({1})
    )
    assert cpus(after.pinned) == {0, 4, 1}
    assert (after.memory_usage, after.cpu_usage) == (1024, 0)


def test_shared_guest_takes_cpus_by_number() -> None:
    after = _after(host_cell(cpus=(8, 9)), shared(3))
    assert (after.cpu_usage, after.pinned) == (3, 0)


def test_mixed_guest_takes_both() -> None:
    guest = pinned(1, n_shared=2, cpu_policy="mixed")
    after = _after(host_cell(cpus=(8, 9)), guest, pins=((0, 0),))
    assert (after.cpu_usage, cpus(after.pinned)) == (2, {0})


def test_isolated_guest_takes_whole_cores() -> None:
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


PAGES = (Pages(4, 10**6, used=5), Pages(2048, 1000, reserved=3))


def test_pages_of_the_chosen_size_are_taken() -> None:
    after = _after(host_cell(pages=PAGES), pinned(page_size=2048), page_size=2048)
    assert after.pages == (PAGES[0], Pages(2048, 1000, used=512, reserved=3))


def test_pages_of_the_smallest_size_are_taken_where_none_was_asked_for() -> None:
    after = _after(host_cell(pages=PAGES[::-1]), pinned())
    assert after.pages == (PAGES[1], Pages(4, 10**6, used=5 + 262144))


def test_guest_without_page_size_is_counted_on_a_host_without_pages() -> None:
    assert _after(host_cell(), shared()).memory_usage == 1024


def test_what_was_never_counted_is_given_back_to_nothing() -> None:
    cell = host_cell(pages=PAGES, cpu_usage=1)
    fitted = FittedGuest((FittedCell(0, shared(3)),))
    (after,) = host(cell).without_guest(fitted).cells
    assert (after.cpu_usage, after.memory_usage, after.pages[0].used) == (0, 0, 0)


@given(hosts(), guests())
def test_guest_that_leaves_gives_back_what_it_took(
    topology: HostTopology, guest: Guest
) -> None:
    fitted = fit(topology, guest)
    if fitted is None:
        return
    with_it = topology.with_guest(fitted)
    used = sum(cell.memory_usage for cell in topology.cells)
    asked = sum(cell.memory_mb for cell in guest.cells)
    assert sum(cell.memory_usage for cell in with_it.cells) == used + asked
    if all(cell.memory_mb >= 1024 for cell in guest.cells):  # no broken huge page
        assert with_it.without_guest(fitted) == topology


def test_description_tells_what_is_free() -> None:
    said = host(host_cell(pinned=mask(0, 1), memory_usage=96, pages=PAGES)).describe()
    for amount in ("6 of 8", "4000 of 4096 MiB", "997 of 1000 pages of 2048 KiB"):
        assert amount in said
