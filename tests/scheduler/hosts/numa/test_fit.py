# SPDX-License-Identifier: Apache-2.0
"""All cells of a guest on those of a host: the first permutation that nova would take.

The property is told against all permutations, one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moorage.scheduler.hosts.numa import (
    Devices,
    FittedCell,
    Guest,
    GuestCell,
    HostTopology,
    Limits,
    fit,
    fit_cell,
)

from .made import guests, host, host_cell, hosts, limits, mask, pinned, shared


def _chosen(
    topology: HostTopology,
    guest: Guest,
    limits: Limits | None = None,
    *,
    is_packed: bool = False,
    devices: Devices | None = None,
) -> list[int] | None:
    found = fit(topology, guest, limits, is_packed=is_packed, devices=devices)
    return None if found is None else [cell.host_cell_id for cell in found.cells]


def _devices(per_cell: dict[int, int], enough: set[int] | None = None) -> Devices:
    """Devices that suffice near to some of the cells; None asks for none."""
    return Devices(
        per_cell=per_cell,
        are_requested=enough is not None,
        suffice=lambda cells: enough is not None and not enough.isdisjoint(cells),
    )


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
def test_cells_with_devices_are_first_only_if_asked_for(is_packed: bool) -> None:
    topology = host(host_cell(0), host_cell(1), host_cell(2))
    free = {0: 1, 1: 2}
    for devices, cell in ((_devices(free, {0, 1, 2}), 1), (_devices(free), 2)):
        assert _chosen(topology, ONE, is_packed=is_packed, devices=devices) == [cell]


def test_order_of_the_report_is_kept_where_all_cells_are_needed() -> None:
    topology = host(host_cell(0, memory_usage=999), host_cell(1))
    devices = _devices({1: 5}, {0, 1})
    assert _chosen(topology, Guest((pinned(), pinned())), devices=devices) == [0, 1]


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
    return Limits(1.0, 1.0, frozenset(physnets), is_tunneled)


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
    assert _chosen(topology, ONE, devices=_devices({}, {2})) == [2]
    assert _chosen(topology, ONE, devices=_devices({}, set())) is None


def test_devices_that_are_not_asked_for_reject_nobody() -> None:
    assert _chosen(host(host_cell(0)), ONE, devices=_devices({})) == [0]


# -- against all permutations ----------------------------------------------------------


def _permutations(
    topology: HostTopology, guest: Guest, limits: Limits | None, enough: set[int]
) -> Iterator[tuple[FittedCell, ...]]:
    """Yield all ways in which a guest fits, told one by one."""
    for cells in itertools.permutations(topology.cells, len(guest.cells)):
        pairs = zip(cells, guest.cells, strict=True)
        fitted = [
            fit_cell(cell, guest_cell, guest.reserved(index), limits)
            for index, (cell, guest_cell) in enumerate(pairs)
        ]
        ids = {cell.id for cell in cells}
        if all(fitted) and ids & enough and _is_near(topology, ids, limits):
            yield tuple(cell for cell in fitted if cell is not None)


def _is_near(topology: HostTopology, ids: set[int], limits: Limits | None) -> bool:
    if limits is None:
        return True
    for name in limits.physnets:
        near = {c.id for c in topology.cells if name in c.hardware.physnets}
        if near and not near & ids:
            return False
    tunnels = {c.id for c in topology.cells if c.hardware.is_tunneled}
    return not (limits.is_tunneled and tunnels and not tunnels & ids)


@given(hosts(), guests(), st.none() | limits, st.sets(st.integers(0, 3)), st.booleans())
def test_guest_fits_if_and_only_if_some_permutation_does(
    topology: HostTopology,
    guest: Guest,
    limits: Limits | None,
    enough: set[int],
    is_packed: bool,
) -> None:
    devices = _devices({0: 1}, enough)
    found = fit(topology, guest, limits, is_packed=is_packed, devices=devices)
    every = list(_permutations(topology, guest, limits, enough))
    assert (found is not None) == bool(every)
    if found is not None:
        assert found.cells in every
        if len(topology.cells) == len(guest.cells):  # then cells are not reordered
            assert found.cells == every[0]


# -- the worst that can be asked -------------------------------------------------------


def test_devices_are_asked_for_once_a_choice_of_cells() -> None:
    asked: list[frozenset[int]] = []

    def never(cells: frozenset[int]) -> bool:
        asked.append(cells)
        return False

    topology = host(*(host_cell(n) for n in range(12)))
    guest = Guest(tuple(pinned(1 + n % 2) for n in range(6)))
    devices = Devices(per_cell={}, are_requested=True, suffice=never)
    assert fit(topology, guest, devices=devices) is None
    assert len(asked) == len(set(asked)) == 924  # 6 of 12, not 665,280 permutations


def test_last_cell_that_fits_nowhere_is_found_without_trying_all() -> None:
    topology = host(*(host_cell(n) for n in range(16)))
    cells: list[GuestCell] = [pinned(1)] * 7
    assert _chosen(topology, Guest((*cells, pinned(9)))) is None


def test_eight_cells_that_share_seven_are_told_not_to_fit() -> None:
    few = [host_cell(n) for n in range(7)]
    full = [host_cell(n, pinned=mask(*range(8))) for n in range(7, 16)]
    assert _chosen(host(*few, *full), Guest((pinned(1),) * 8)) is None
