# SPDX-License-Identifier: Apache-2.0
"""Many hosts at once are judged as the reference judges each alone."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import event, given

from moorage.scheduler.hosts.numa import (
    CellArrays,
    CellRows,
    HostTopology,
    Limits,
    can_be_placed,
    chosen_sets,
    declaring_cells,
    fitting_cells,
)
from moorage.scheduler.request.numa import Guest

from .numa_hosts import (
    fits_by_reference,
    guests,
    host,
    host_cell,
    hosts,
    pinned,
    shared,
)


def _rows(*topologies: HostTopology | None) -> CellRows:
    arrays = CellArrays()
    arrays.extend(topologies)
    return arrays.rows()


def _fitting(
    topology: HostTopology | None, guest: Guest, limits: Limits | None
) -> list[int]:
    """Return, for each cell of a guest, which host cells it fits, tried one by one."""
    return [
        sum(
            fits_by_reference(
                host(cell), Guest((wanted,), bool(guest.reserved(index))), limits
            )
            << place
            for place, cell in enumerate(topology.cells if topology else ())
        )
        for index, wanted in enumerate(guest.cells)
    ]


ratio_pairs = st.tuples(st.sampled_from([0.5, 1.0, 4.0]), st.sampled_from([0.5, 1.5]))


@given(st.lists(st.none() | hosts(), min_size=1, max_size=5), guests(), st.data())
def test_many_hosts_are_evaluated_as_each_alone(
    topologies: list[HostTopology | None], guest: Guest, data: st.DataObject
) -> None:
    pairs = data.draw(
        st.none() | st.tuples(*[ratio_pairs for _ in topologies]), label="ratios"
    )
    ratios = None if pairs is None else _columns(pairs)
    limits = [None] * len(topologies) if pairs is None else [Limits(*p) for p in pairs]
    cases = list(zip(topologies, limits, strict=True))
    rows = _rows(*topologies)
    masks = fitting_cells(rows, guest, ratios)
    alone = [_fitting(topology, guest, limit) for topology, limit in cases]
    assert [mask.tolist() for mask in masks] == [list(m) for m in zip(*alone)]  # noqa: B905 - equal lengths
    fits = [
        topology is not None and fits_by_reference(topology, guest, limit)
        for topology, limit in cases
    ]
    event(f"fits: {any(fits)}")
    assert can_be_placed(masks, guest).tolist() == fits


def _columns(
    pairs: tuple[tuple[float, float], ...],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    cpu, ram = np.array(pairs, np.float64).T
    return cpu, ram


@given(hosts(), guests(), st.integers(0, 15))
def test_choice_of_cells_is_kept_to(
    topology: HostTopology, guest: Guest, within: int
) -> None:
    masks = fitting_cells(_rows(topology), guest, None)
    placed = can_be_placed(masks, guest, within=within)
    left = host(*(c for n, c in enumerate(topology.cells) if within >> n & 1))
    assert placed.tolist() == [fits_by_reference(left, guest, None)]


def test_equal_cells_share_one_array() -> None:
    guest = Guest((pinned(1), pinned(1), pinned(2)))
    masks = fitting_cells(_rows(host(host_cell(0))), guest, None)
    assert masks[0] is masks[1]
    assert masks[0] is not masks[2]


def test_cells_that_fit_one_by_one_need_not_fit_together() -> None:
    rows = _rows(host(host_cell(0), host_cell(1, memory_mb=512)))
    guest = Guest((pinned(1), pinned(2)))
    masks = fitting_cells(rows, guest, None)
    assert [mask.tolist() for mask in masks] == [[1], [1]]
    assert can_be_placed(masks, guest).tolist() == [False]


def test_last_of_64_cells_has_a_bit() -> None:
    topology = host(*(host_cell(n, memory_mb=1024 * (n == 63)) for n in range(64)))
    masks = fitting_cells(_rows(topology), Guest((pinned(1),)), None)
    assert masks[0].tolist() == [1 << 63]


def test_no_hosts_are_no_trouble() -> None:
    guest = Guest((shared(1),))
    assert can_be_placed(fitting_cells(_rows(), guest, None), guest).tolist() == []


@pytest.mark.parametrize(
    ("n_host", "n_guest", "sets"),
    [(2, 2, [3]), (3, 1, [1, 2, 4]), (3, 2, [3, 5, 6]), (1, 2, [])],
)
def test_all_choices_of_cells_are_returned(
    n_host: int, n_guest: int, sets: list[int]
) -> None:
    assert chosen_sets(n_host, n_guest) == sets


def test_cells_that_declare_a_network_are_returned() -> None:
    topology = host(
        host_cell(4, physnets=frozenset({"a", "b"})),
        host_cell(2, is_tunneled=True),
        host_cell(0, physnets=frozenset({"b"})),
    )
    found = [declaring_cells(topology, name) for name in ("a", "b", "c", None)]
    assert found == [0b001, 0b101, 0, 0b010]


def test_many_different_cells_are_evaluated_on_hosts_with_few() -> None:
    guest = Guest(tuple(pinned(1, memory_mb=1 + n) for n in range(64)))
    masks = fitting_cells(_rows(host(host_cell(0))), guest, None)
    assert can_be_placed(masks, guest).tolist() == [False]


@given(st.data())
def test_many_different_cells_are_evaluated_as_few(data: st.DataObject) -> None:
    memory = st.integers(1, 8)
    sizes = data.draw(st.lists(memory, min_size=7, max_size=8, unique=True))
    guest = Guest(tuple(pinned(1, memory_mb=size) for size in sizes))
    free = data.draw(st.lists(memory, min_size=7, max_size=9))
    topology = host(*(host_cell(n, memory_mb=mb) for n, mb in enumerate(free)))
    within = data.draw(st.none() | st.integers(0, 2 ** len(free) - 1))
    masks = fitting_cells(_rows(topology, topology), guest, None)
    usable = [mb for n, mb in enumerate(free) if within is None or within >> n & 1]
    largest = sorted(usable)[-len(sizes) :]
    fits = len(usable) >= len(sizes) and all(map(int.__ge__, largest, sorted(sizes)))
    assert can_be_placed(masks, guest, within=within).tolist() == [fits, fits]


def test_cells_of_many_kinds_that_share_too_few_do_not_fit() -> None:
    few = [host_cell(n, memory_mb=100) for n in range(2)]
    many = [host_cell(n, memory_mb=10) for n in range(2, 12)]
    for n_large, is_fit in ((2, True), (3, False)):
        large = [pinned(1, memory_mb=50 + n) for n in range(n_large)]
        small = [pinned(1, memory_mb=1 + n) for n in range(6)]
        guest = Guest((*small, *large))
        masks = fitting_cells(_rows(host(*few, *many)), guest, None)
        assert can_be_placed(masks, guest).tolist() == [is_fit]
