# SPDX-License-Identifier: Apache-2.0
"""The resources of a cell that guests use are counted."""

from __future__ import annotations

from typing import Any

from moorage.scheduler.hosts.numa import FittedCell, FittedGuest, HostCell, Pages
from moorage.scheduler.request.numa import GuestCell

from .numa_hosts import cpus, host, host_cell, pinned, shared


def _after(cell: HostCell, guest: GuestCell, **fitted: Any) -> HostCell:
    fit = FittedGuest((FittedCell(cell.id, guest, **fitted),))
    return host(cell).with_guest(fit).cells[0]


def test_pinned_guest_uses_memory_and_cpus() -> None:
    after = _after(
        host_cell(), pinned(2), pins=((0, 0), (1, 4)), reserved=frozenset({1})
    )
    assert cpus(after.pinned) == {0, 4, 1}
    assert (after.memory_usage, after.cpu_usage) == (1024, 0)


def test_shared_guest_uses_cpus_by_number() -> None:
    after = _after(host_cell(cpus=(8, 9)), shared(3))
    assert (after.cpu_usage, after.pinned) == (3, 0)


def test_mixed_guest_uses_both() -> None:
    guest = pinned(1, n_shared=2, cpu_policy="mixed")
    after = _after(host_cell(cpus=(8, 9)), guest, pins=((0, 0),))
    assert (after.cpu_usage, cpus(after.pinned)) == (2, {0})


PAGES = (Pages(4, 10**6, used=5), Pages(2048, 1000, reserved=3))


def test_pages_of_the_chosen_size_are_used() -> None:
    after = _after(host_cell(pages=PAGES), pinned(page_size=2048), page_size=2048)
    assert after.pages == (PAGES[0], Pages(2048, 1000, used=512, reserved=3))


def test_pages_of_the_smallest_size_are_used_by_default() -> None:
    after = _after(host_cell(pages=PAGES[::-1]), pinned())
    assert after.pages == (PAGES[1], Pages(4, 10**6, used=5 + 262144))


def test_guest_without_page_size_is_counted_on_a_host_without_pages() -> None:
    assert _after(host_cell(), shared()).memory_usage == 1024


def test_what_was_never_counted_is_given_back_to_nothing() -> None:
    cell = host_cell(pages=PAGES, cpu_usage=1)
    fitted = FittedGuest((FittedCell(0, shared(3)),))
    (after,) = host(cell).without_guest(fitted).cells
    assert (after.cpu_usage, after.memory_usage, after.pages[0].used) == (0, 0, 0)
