# SPDX-License-Identifier: Apache-2.0
"""All cells of a guest on those of a host: the first permutation that nova would take.

The property compares with all permutations, one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moorage.scheduler.hosts.numa import (
    NO_CELL,
    CellRows,
    ChosenCells,
    HostCell,
    HostTopology,
    Limits,
    first_permutation,
)
from moorage.scheduler.request.numa import Guest, GuestCell, Networks

from .numa_hosts import (
    fit,
    fits_by_reference,
    guests,
    host,
    host_cell,
    hosts,
    limits,
    mask,
    pinned,
    shared,
)


def _chosen(
    topology: HostTopology, guest: Guest, limits: Limits | None = None, **changes: Any
) -> list[int] | None:
    found = fit(topology, guest, limits, **changes)
    return None if found is None else list(found.cell_ids)


# -- counts of cells -------------------------------------------------------------------


def test_guest_with_more_cells_than_the_host_does_not_fit() -> None:
    assert _chosen(host(host_cell(0)), Guest((pinned(), pinned()))) is None


def test_guest_without_cells_does_not_fit() -> None:
    assert _chosen(host(host_cell(0)), Guest(())) is None


def test_each_cell_gets_a_cell_of_its_own() -> None:
    topology = host(host_cell(0), host_cell(1))
    assert _chosen(topology, Guest((pinned(8), pinned(8)))) == [0, 1]


def test_cells_change_places_where_they_have_to() -> None:
    topology = host(host_cell(0, memory_mb=1024), host_cell(1))
    assert _chosen(topology, Guest((pinned(memory_mb=2048), pinned()))) == [1, 0]


# -- the order of host cells -----------------------------------------------------------

ONE = Guest((pinned(1),))
FLOATING = Guest((shared(1),))


def test_cell_with_most_free_memory_is_first() -> None:
    topology = host(*(host_cell(n, memory_usage=u) for n, u in enumerate((2, 0, 1))))
    assert _chosen(topology, ONE) == [1]
    assert _chosen(topology, ONE, is_packed=True) == [0]


def test_free_cpus_matter_more_than_memory_to_a_pinned_guest() -> None:
    topology = host(host_cell(0, pinned=mask(0)), host_cell(1, memory_usage=9))
    assert _chosen(topology, ONE) == [1]
    assert _chosen(topology, ONE, is_packed=True) == [0]


def test_used_cpus_matter_more_than_memory_to_a_floating_guest() -> None:
    topology = host(
        host_cell(0, cpus=(8,), cpu_usage=1), host_cell(1, cpus=(9,), memory_usage=9)
    )
    assert _chosen(topology, FLOATING) == [1]
    assert _chosen(topology, FLOATING, is_packed=True) == [0]


@pytest.mark.parametrize("is_packed", [False, True])
def test_cells_with_devices_are_first_only_if_requested(is_packed: bool) -> None:
    topology = host(host_cell(0), host_cell(1), host_cell(2))
    options: dict[str, Any] = {"nodes": {0: 1, 1: 2}, "is_packed": is_packed}
    assert _chosen(topology, ONE, wants_device=True, **options) == [1]
    assert _chosen(topology, ONE, **options) == [2]


def test_order_of_the_report_is_kept_where_all_cells_are_needed() -> None:
    topology = host(host_cell(0, memory_usage=999), host_cell(1))
    guest = Guest((pinned(), pinned()))
    assert _chosen(topology, guest, nodes={1: 5}, wants_device=True) == [0, 1]


def test_equal_cells_are_used_in_the_order_of_the_report() -> None:
    topology = host(*(host_cell(n) for n in (3, 1, 2)))
    for is_packed in (False, True):
        assert _chosen(topology, ONE, is_packed=is_packed) == [3]


# -- the emulator ----------------------------------------------------------------------


def test_emulators_cpu_is_beside_the_first_cell_wherever_that_is() -> None:
    topology = host(host_cell(0, pinned=mask(0, 1)), host_cell(1))
    guest = Guest((pinned(6), pinned(6)), is_isolated_emulator=True)
    found = fit(topology, guest)
    assert found is not None
    assert [cell.host_cell_id for cell in found.cells] == [1, 0]
    assert [len(cell.reserved) for cell in found.cells] == [1, 0]


# -- networks and devices --------------------------------------------------------------


def _near(*physnets: str, is_tunneled: bool = False) -> Limits:
    return Limits(1.0, 1.0, Networks(frozenset(physnets), is_tunneled))


NETWORKED = host(
    host_cell(0, physnets=frozenset({"a"})),
    host_cell(1, physnets=frozenset({"b"}), memory_usage=1),
    host_cell(2, is_tunneled=True, memory_usage=2),
)


@pytest.mark.parametrize(
    ("limits", "n_cells", "chosen"),
    [
        pytest.param(None, 1, [0], id="no-limits"),
        pytest.param(_near("a"), 1, [0], id="near"),
        pytest.param(_near("b"), 1, [1], id="near-to-another"),
        pytest.param(_near("nowhere"), 1, [0], id="not-declared"),
        pytest.param(_near("a", "b"), 1, None, id="two-networks-one-cell"),
        pytest.param(_near("a", "b"), 2, [0, 1], id="two-networks-two-cells"),
        pytest.param(_near(is_tunneled=True), 1, [2], id="tunneled"),
        pytest.param(_near("b", is_tunneled=True), 2, [1, 2], id="tunneled-too"),
        pytest.param(_near("a", "b", is_tunneled=True), 3, [0, 1, 2], id="all"),
    ],
)
def test_guest_is_near_to_its_networks(
    limits: Limits | None, n_cells: int, chosen: list[int] | None
) -> None:
    assert _chosen(NETWORKED, Guest((pinned(1),) * n_cells), limits) == chosen


def test_tunnels_that_no_cell_declares_are_near_to_all() -> None:
    assert _chosen(host(host_cell(0)), ONE, _near(is_tunneled=True)) == [0]


def test_guest_goes_where_its_devices_suffice() -> None:
    topology = host(*(host_cell(n) for n in range(3)))
    assert _chosen(topology, ONE, nodes={2: 1}, wants_device=True) == [2]
    assert _chosen(topology, ONE, wants_device=True) is None


def test_devices_that_are_not_requested_reject_no_host() -> None:
    assert _chosen(host(host_cell(0)), ONE, nodes={1: 1}) == [0]


# -- against all permutations ----------------------------------------------------------


@given(hosts(), guests(), st.none() | limits, st.sets(st.integers(0, 3)), st.booleans())
def test_guest_fits_if_and_only_if_some_permutation_does(
    topology: HostTopology,
    guest: Guest,
    limits: Limits | None,
    near: set[int],
    is_packed: bool,
) -> None:
    nodes = dict.fromkeys(near, 1)
    options: dict[str, Any] = {"nodes": nodes, "wants_device": True}
    found = fit(topology, guest, limits, is_packed=is_packed, **options)
    every = [
        cells
        for cells in itertools.permutations(topology.cells, len(guest.cells))
        if _fits_in_order(cells, topology, guest, limits, near)
    ]
    assert (found is not None) == bool(every)
    assert fits_by_reference(topology, guest, limits, **options) == bool(every)
    if found is not None:
        assert found.cell_ids in [tuple(c.id for c in cells) for cells in every]
        if len(topology.cells) == len(guest.cells):  # then cells are not reordered
            assert found.cell_ids == tuple(c.id for c in every[0])


def _fits_in_order(
    cells: Sequence[HostCell],
    topology: HostTopology,
    guest: Guest,
    limits: Limits | None,
    near: set[int],
) -> bool:
    """Return whether each guest cell fits the host cell at its place, one by one."""
    alone = None if limits is None else replace(limits, networks=Networks())
    pairs = enumerate(zip(cells, guest.cells, strict=True))
    ids = {cell.id for cell in cells}
    return (
        all(
            fits_by_reference(
                host(cell), Guest((guest_cell,), bool(guest.reserved(index))), alone
            )
            for index, (cell, guest_cell) in pairs
        )
        and bool(ids & near)
        and _is_near(topology, ids, limits)
    )


def _is_near(topology: HostTopology, ids: set[int], limits: Limits | None) -> bool:
    if limits is None:
        return True
    for name in limits.networks.physnets:
        near = {c.id for c in topology.cells if name in c.hardware.physnets}
        if near and not near & ids:
            return False
    tunnels = {c.id for c in topology.cells if c.hardware.is_tunneled}
    return not (limits.networks.is_tunneled and tunnels and not tunnels & ids)


# -- the worst cases -------------------------------------------------------------------


def test_devices_are_checked_once_per_choice_of_cells() -> None:
    checked: list[int] = []

    def never(cells: int) -> bool:
        checked.append(cells)
        return False

    assert first_permutation([(1 << 12) - 1] * 6, range(12), never) is None
    assert len(checked) == len(set(checked)) == 924  # 6 of 12, not 665,280 permutations


def test_last_cell_that_fits_nowhere_is_found_without_trying_all() -> None:
    topology = host(*(host_cell(n) for n in range(16)))
    cells: list[GuestCell] = [pinned(1)] * 7
    assert _chosen(topology, Guest((*cells, pinned(9)))) is None


@pytest.mark.parametrize(
    ("sockets", "chosen", "near"),
    [
        pytest.param((0, 0, 1, 1), 0b0001, [0, 1], id="one"),
        pytest.param((0, 0, 1, 1), 0b1001, [0, 1, 2, 3], id="two"),
        pytest.param((-1, -1, 1, 0), 0b0001, [0, 1], id="number-minus-one"),
        pytest.param((0, 0, 1, None), 0b0001, [], id="one-is-unknown"),
    ],
)
def test_cells_of_the_same_sockets_are_found(
    sockets: tuple[int | None, ...], chosen: int, near: list[int]
) -> None:
    topology = host(*(host_cell(n, socket=s) for n, s in enumerate(sockets)))
    found = ChosenCells.of(CellRows.of_host(topology), chosen)
    assert [n for n in found.socket_ids[0].tolist() if n != NO_CELL] == near
    assert found.ids.tolist() == [[n for n in range(4) if chosen >> n & 1]]


def test_eight_guest_cells_do_not_fit_seven_host_cells() -> None:
    few = [host_cell(n) for n in range(7)]
    full = [host_cell(n, pinned=mask(*range(8))) for n in range(7, 16)]
    assert _chosen(host(*few, *full), Guest((pinned(1),) * 8)) is None
