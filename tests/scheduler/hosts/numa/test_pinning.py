# SPDX-License-Identifier: Apache-2.0
"""One cell of a guest on one of a host: memory, pages, CPUs and threads, as in nova."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from moorage.scheduler.hosts.numa import FittedCell, HostCell, Limits, Pages
from moorage.scheduler.request.numa import GuestCell

from .numa_hosts import (
    ANY,
    HUGE_KB,
    LARGE,
    LARGE_KB,
    SMALL,
    SMALL_KB,
    cpus,
    fit_cell,
    guest_cells,
    host_cell,
    host_cells,
    mask,
    pinned,
    shared,
)

SINGLE = ((0,), (1,), (2,), (3,))
QUAD = ((0, 1, 2, 3), (4, 5, 6, 7))


def _fit(cell: HostCell, guest: GuestCell, n_reserved: int = 0) -> FittedCell | None:
    return fit_cell(cell, guest, n_reserved, None)


def _pinned_cpus(
    guest: GuestCell, n_reserved: int = 0, **changes: Any
) -> tuple[list[int], set[int]] | None:
    """Return the host CPUs of a guest's, in its order, and the emulator's."""
    fitted = _fit(host_cell(**changes), guest, n_reserved)
    if fitted is None:
        return None
    assert [vcpu for vcpu, _ in fitted.pins] == list(guest.pcpus)
    return [pcpu for _, pcpu in fitted.pins], set(fitted.reserved)


# -- pages ---------------------------------------------------------------------------

GIB_KB = 1048576
PAGES = {
    size: Pages(size, 2 * GIB_KB // size) for size in (SMALL_KB, LARGE_KB, HUGE_KB)
}


def _full(size: int) -> Pages:
    return Pages(size, 2 * GIB_KB // size, used=2 * GIB_KB // size)


@pytest.mark.parametrize(
    ("requested", "pages", "chosen"),
    [
        pytest.param(SMALL, list(PAGES.values()), SMALL_KB, id="smallest"),
        pytest.param(SMALL, [_full(4), PAGES[2048]], None, id="smallest-is-full"),
        pytest.param(SMALL, [PAGES[2048]], LARGE_KB, id="smallest-is-the-only-one"),
        pytest.param(LARGE, list(PAGES.values()), HUGE_KB, id="largest-first"),
        pytest.param(LARGE, [PAGES[4], PAGES[2048], _full(HUGE_KB)], 2048, id="next"),
        pytest.param(LARGE, [PAGES[2048]], None, id="the-only-size-is-not-large"),
        pytest.param(LARGE, [PAGES[4], _full(2048)], None, id="large-ones-are-full"),
        pytest.param(ANY, [PAGES[4], _full(2048)], SMALL_KB, id="any-goes-down"),
        pytest.param(ANY, [PAGES[2048], PAGES[4]], LARGE_KB, id="any-in-any-order"),
        pytest.param(2048, [PAGES[4], PAGES[2048]], LARGE_KB, id="exact"),
        pytest.param(2048, [PAGES[4], PAGES[HUGE_KB]], None, id="exact-is-missing"),
        pytest.param(SMALL, [], None, id="small-without-pages"),
        pytest.param(LARGE, [], None, id="large-without-pages"),
        pytest.param(ANY, [], None, id="any-without-pages"),
        pytest.param(4, [], None, id="exact-without-pages"),
    ],
)
def test_page_size_is_chosen(requested: int, pages: list[Pages], chosen: int | None):
    fitted = _fit(host_cell(pages=tuple(pages)), pinned(page_size=requested))
    assert (fitted and fitted.page_size) == chosen


def test_memory_has_to_be_whole_pages() -> None:
    cell = host_cell(pages=(PAGES[2048],))
    assert _fit(cell, pinned(memory_mb=1023, page_size=2048)) is None
    assert _fit(cell, pinned(memory_mb=1023)) is None
    assert _fit(cell, pinned(memory_mb=1022)) is not None


def test_reserved_pages_are_not_free() -> None:
    guest = pinned(memory_mb=2048, page_size=2048)
    assert _fit(host_cell(pages=(Pages(2048, 1024),)), guest) is not None
    assert _fit(host_cell(pages=(Pages(2048, 1024, reserved=1),)), guest) is None


@pytest.mark.parametrize(
    ("guest", "is_fit"), [(pinned(), False), (shared(), True), (shared(2**2), True)]
)
def test_only_a_floating_guest_overcommits_smallest_pages(
    guest: GuestCell, is_fit: bool
) -> None:
    cell = host_cell(cpus=(8, 9, 10, 11), pages=(_full(4), PAGES[2048]))
    assert (_fit(cell, guest) is not None) is is_fit


def test_mixed_guest_overcommits_no_memory() -> None:
    cell = host_cell(cpus=(8,), memory_usage=4000)
    guest = pinned(1, n_shared=1, cpu_policy="mixed")
    assert _fit(cell, guest) is None


@pytest.mark.parametrize(
    ("guest", "memory_usage", "is_fit"),
    [
        (pinned(memory_mb=4096), 0, True),
        (pinned(memory_mb=4096), 1, False),
        (shared(memory_mb=4096), 9999, True),
        (shared(memory_mb=4097), 0, False),
    ],
)
def test_memory_of_a_host_without_pages(
    guest: GuestCell, memory_usage: int, is_fit: bool
) -> None:
    cell = host_cell(cpus=(8, 9), memory_usage=memory_usage)
    assert (_fit(cell, guest) is not None) is is_fit


# -- counts and limits -----------------------------------------------------------------


def test_guest_does_not_share_a_cpu_with_itself() -> None:
    cell = host_cell(cpus=(8, 9))
    assert _fit(cell, shared(2)) is not None
    assert _fit(cell, shared(3)) is None


@pytest.mark.parametrize(
    ("cpu_ratio", "ram_ratio", "is_fit"),
    [(2.0, 1.5, True), (1.99, 1.5, False), (2.0, 1.49, False)],
)
def test_floating_guest_stays_within_the_ratios(
    cpu_ratio: float, ram_ratio: float, is_fit: bool
) -> None:
    cell = host_cell(cpus=(8, 9), cpu_usage=2, memory_usage=5 * 1024)
    found = fit_cell(cell, shared(2), 0, Limits(cpu_ratio, ram_ratio))
    assert (found is not None) is is_fit


def test_ratios_do_not_matter_to_a_pinned_guest() -> None:
    cell = host_cell(memory_usage=1024)
    assert fit_cell(cell, pinned(), 0, Limits(0.1, 0.1)) is not None


# -- threads ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, "prefer", "require"])
def test_threads_of_a_core_are_used_together(policy: str | None) -> None:
    assert _pinned_cpus(pinned(4, thread_policy=policy)) == ([0, 4, 1, 5], set())


@pytest.mark.parametrize("policy", [None, "prefer", "require"])
def test_most_threads_of_a_core_are_used_first(policy: str | None) -> None:
    guest = pinned(4, thread_policy=policy)
    assert _pinned_cpus(guest, siblings=QUAD, pinned=mask(1)) == ([4, 5, 6, 7], set())


def test_uneven_cores_are_used_by_as_many_threads_as_suffice() -> None:
    guest = pinned(5)
    # Three threads a core are too few, for one core has but two.
    assert _pinned_cpus(guest, siblings=QUAD, pinned=mask(0, 1)) == (
        [2, 3, 4, 5, 6],
        set(),
    )


def test_any_thread_will_do_where_no_even_choice_suffices() -> None:
    held = mask(4, 5)
    assert _pinned_cpus(pinned(6), pinned=held) == ([0, 1, 2, 6, 3, 7], set())


def test_required_threads_are_not_had_from_halves_of_cores() -> None:
    held = mask(4, 5, 6)
    assert _pinned_cpus(pinned(2, thread_policy="require"), pinned=held) == (
        [3, 7],
        set(),
    )
    assert _pinned_cpus(pinned(3, thread_policy="require"), pinned=held) is None
    assert _pinned_cpus(pinned(3, thread_policy="prefer"), pinned=held) is not None


def test_required_threads_are_not_had_without_threads() -> None:
    assert _pinned_cpus(pinned(1, thread_policy="require"), siblings=SINGLE) is None


def test_odd_count_leaves_a_thread_of_the_last_core() -> None:
    assert _pinned_cpus(pinned(3, thread_policy="require")) == ([0, 4, 1], set())


def _shared_pool_host(**changes: Any) -> dict[str, Any]:
    """A host whose CPUs are one set for floating and pinned guests."""
    return {"cpus": tuple(range(8)), **changes}


def test_isolated_cpus_are_the_first_of_free_cores() -> None:
    guest = pinned(2, thread_policy="isolate")
    assert _pinned_cpus(guest, **_shared_pool_host(pinned=mask(0))) == ([1, 2], set())


def test_isolated_cpus_are_not_had_where_placement_does_not_count_the_idle_ones():
    assert _pinned_cpus(pinned(1, thread_policy="isolate")) is None


def test_isolated_cpus_are_had_without_threads() -> None:
    guest = pinned(2, thread_policy="isolate")
    assert _pinned_cpus(guest, siblings=SINGLE, pinned=mask(0)) == ([1, 2], set())


def test_isolated_cpus_need_as_many_free_cores() -> None:
    guest = pinned(3, thread_policy="isolate")
    assert _pinned_cpus(guest, **_shared_pool_host(pinned=mask(0))) is not None
    assert _pinned_cpus(guest, **_shared_pool_host(pinned=mask(0, 5))) is None


# -- the emulator's CPU ----------------------------------------------------------------


def test_emulator_gets_a_thread_that_is_left() -> None:
    assert _pinned_cpus(pinned(3), 1) == ([0, 4, 1], {5})


def test_emulator_needs_one_cpu_more() -> None:
    assert _pinned_cpus(pinned(7), 1) is not None
    assert _pinned_cpus(pinned(8), 1) is None


def test_emulator_gets_a_core_of_its_own_beside_isolated_cpus() -> None:
    guest = pinned(2, thread_policy="isolate")
    assert _pinned_cpus(guest, 1, **_shared_pool_host()) == ([0, 1], {2})


def test_emulator_accepts_a_half_free_core_beside_isolated_cpus() -> None:
    guest = pinned(3, thread_policy="isolate")
    assert _pinned_cpus(guest, 1, **_shared_pool_host(pinned=mask(0))) == (
        [1, 2, 3],
        {4},
    )


def test_emulator_gets_no_thread_of_an_isolated_core() -> None:
    guest = pinned(4, thread_policy="isolate")
    assert _pinned_cpus(guest, 0, **_shared_pool_host()) is not None
    assert _pinned_cpus(guest, 1, **_shared_pool_host()) is None


def test_emulator_gets_nothing_beside_a_cell_that_pins_nothing() -> None:
    guest = pinned(0, n_shared=1, cpu_policy="mixed")
    assert _pinned_cpus(guest, 0, cpus=(8,)) == ([], set())
    assert _pinned_cpus(guest, 1, cpus=(8,)) is None


def test_emulator_of_a_floating_guest_pins_nothing() -> None:
    assert _pinned_cpus(shared(0, pcpus=()), 1, pinned=mask(*range(8))) == ([], set())


# -- hosts that are odd ----------------------------------------------------------------


def test_every_cpu_is_a_core_if_none_are_reported() -> None:
    changes: dict[str, Any] = {"siblings": (), "pcpus": (2, 5, 7), "pinned": mask(5)}
    assert _pinned_cpus(pinned(2), **changes) == ([2, 7], set())
    assert _pinned_cpus(pinned(2, thread_policy="isolate"), **changes) == (
        [2, 7],
        set(),
    )
    assert _pinned_cpus(pinned(2, thread_policy="require"), **changes) is None
    assert _pinned_cpus(pinned(3), **changes) is None


def test_cpu_that_is_in_no_core_is_not_used() -> None:
    changes: dict[str, Any] = {"siblings": ((0,),), "pcpus": (0, 1)}
    assert _pinned_cpus(pinned(1), **changes) == ([0], set())
    assert _pinned_cpus(pinned(2), **changes) is None


def test_threads_that_are_not_for_pinning_are_not_used() -> None:
    changes: dict[str, Any] = {"pcpus": (0, 4, 1), "cpus": (5, 2, 6, 3, 7)}
    assert _pinned_cpus(pinned(3), **changes) == ([0, 4, 1], set())
    assert _pinned_cpus(pinned(4), **changes) is None


@pytest.mark.parametrize(
    ("policy", "is_fit"),
    [(None, True), ("prefer", True), ("require", True), ("isolate", False)],
)
def test_mixed_cell_that_pins_nothing(policy: str | None, is_fit: bool) -> None:
    guest = pinned(0, n_shared=1, cpu_policy="mixed", thread_policy=policy)
    assert (_pinned_cpus(guest, cpus=(8,)) is not None) is is_fit


def test_mixed_cell_that_pins_nothing_still_requires_threads() -> None:
    guest = pinned(0, n_shared=1, cpu_policy="mixed", thread_policy="require")
    assert _pinned_cpus(guest, cpus=(8,), pinned=mask(4, 5, 6, 7)) is None


@pytest.mark.parametrize("core", [(8, 16), (16, 8)])
def test_first_thread_is_the_one_that_a_set_made_of_the_report_yields(
    core: tuple[int, int],
) -> None:
    # Both numbers hash to one slot of a small set in CPython: the first one stays.
    guest = pinned(1, thread_policy="isolate")
    every = (0, 1, 8, 16)
    cpus = _pinned_cpus(guest, siblings=(core, (0, 1)), pcpus=every, cpus=every)
    assert cpus == ([core[0]], set())


@given(host_cells(0), guest_cells())
def test_pinned_cpus_were_free_and_as_many_as_requested(
    cell: HostCell, guest: GuestCell
) -> None:
    for n_reserved in (0, 1):
        fitted = _fit(cell, guest, n_reserved)
        if fitted is None:
            continue
        used = [pcpu for _, pcpu in fitted.pins] + sorted(fitted.reserved)
        assert len(used) == len(set(used))
        assert set(used) <= cpus(cell.free_pcpus)
        if guest.cpu_policy in ("dedicated", "mixed"):
            assert len(used) == len(guest.pcpus) + n_reserved
        else:
            assert not used
