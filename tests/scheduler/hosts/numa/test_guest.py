# SPDX-License-Identifier: Apache-2.0
"""A request's guest is parsed without the traces of earlier attempts."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import (
    InstanceNUMATopology,
    NetworkMetadata,
    NUMATopologyLimits,
)
from moorage.scheduler.hosts.numa import Limits
from moorage.scheduler.request.numa import Guest, GuestCell, Networks
from moorage.testing import builders

from .numa_hosts import pinned, shared


def _read(**changes: Any) -> GuestCell:
    cell = builders.guest_cell(**changes)
    return Guest.read(builders.guest_topology(cell)).cells[0]


def test_cell_is_read() -> None:
    cell = _read(
        pcpuset={9, 2}, cpuset={0}, cpu_policy="mixed", cpu_thread_policy="prefer"
    )
    assert cell == GuestCell(1024, 1, (2, 9), "mixed", "prefer", None)


@pytest.mark.parametrize(
    ("page_size", "read"), [(None, None), (0, None), (-1, -1), (2048, 2048)]
)
def test_page_size_is_read(page_size: int | None, read: int | None) -> None:
    assert _read(pagesize=page_size).page_size == read


def test_what_an_earlier_try_left_behind_is_ignored() -> None:
    left = _read(id=7, cpu_pinning_raw={"0": 3}, cpuset_reserved={4})
    assert left == _read()


def test_cell_of_an_old_version_is_read() -> None:
    primitive = builders.guest_topology(builders.guest_cell()).obj_to_primitive()
    del primitive["nova_object.data"]["emulator_threads_policy"]
    cell = primitive["nova_object.data"]["cells"][0]["nova_object.data"]
    for name in ("pagesize", "cpu_policy", "cpu_thread_policy", "pcpuset"):
        del cell[name]
    old = Guest.read(InstanceNUMATopology.obj_from_primitive(primitive))
    assert old == Guest((GuestCell(1024),))


@pytest.mark.parametrize(
    ("policy", "reserved"), [(None, (0, 0)), ("share", (0, 0)), ("isolate", (1, 0))]
)
def test_only_the_first_cell_holds_a_cpu_for_an_isolated_emulator(
    policy: str | None, reserved: tuple[int, int]
) -> None:
    topology = builders.guest_topology(
        builders.guest_cell(0), builders.guest_cell(1), emulator_threads_policy=policy
    )
    guest = Guest.read(topology)
    assert (guest.reserved(0), guest.reserved(1)) == reserved


def test_equal_cells_are_grouped() -> None:
    assert Guest((pinned(2), pinned(3), pinned(2))).groups == ((0, 2), (1,))


def test_guest_cells_with_other_cpu_numbers_are_equal() -> None:
    assert Guest((pinned(2), pinned(pcpus=(2, 3)))).groups == ((0, 1),)


def test_first_cell_is_separate_if_it_holds_the_emulators_cpu() -> None:
    guest = Guest((pinned(2),) * 3, is_isolated_emulator=True)
    assert guest.groups == ((0,), (1, 2))


@pytest.mark.parametrize(
    ("cells", "is_dedicated"),
    [
        ((pinned(),), True),
        ((pinned(), shared()), False),
        ((shared(cpu_policy="shared"),), False),
        ((pinned(cpu_policy="mixed"),), False),
    ],
)
def test_guest_is_dedicated_if_no_cell_shares(
    cells: tuple[GuestCell, ...], is_dedicated: bool
) -> None:
    assert Guest(cells).is_dedicated is is_dedicated


def test_equal_requests_are_equal_keys() -> None:
    topology = builders.guest_topology(builders.guest_cell())
    assert {Guest.read(topology): 1}[Guest.read(topology)] == 1


def test_limits_are_read_with_their_networks() -> None:
    sent = NUMATopologyLimits(cpu_allocation_ratio=2.0, ram_allocation_ratio=1.5)
    assert Limits.read(sent) == Limits(2.0, 1.5)
    sent.network_metadata = NetworkMetadata(physnets={"a"}, tunneled=True)
    assert Limits.read(sent) == Limits(2.0, 1.5, Networks(frozenset({"a"}), True))


def test_description_has_counts_and_pages() -> None:
    description = Guest((pinned(4, page_size=2048),) * 2).describe()
    for part in ("2 cells", "4 pinned", "1024 MiB", "2048 KiB"):
        assert part in description
