# SPDX-License-Identifier: Apache-2.0
"""Many hosts are judged at once as the reference judges each alone."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from moorage.objects import NUMATopology
from moorage.scheduler.hosts.numa import CellRows, ChosenCells, HostTopology
from moorage.scheduler.hosts.pci import (
    NO_PROVIDER,
    HostPools,
    PoolArrays,
    supported,
    supported_alone,
)
from moorage.scheduler.request.pci import PciRequest
from moorage.testing import builders as b

from ....fixtures.property_tests import examples
from ....interop.reference_fit import devices_fit
from .conftest import POOLS, PROVIDERS, REQUESTS, chosen, flat, pools, request

Uuids = tuple[str, ...]
Sockets = tuple[int | None, ...]

#: Sockets of three cells.
SOCKETS = st.sampled_from(
    [(0, 1, 2), (0, 0, 1), (1, 0, 0), (0, 0, 0), (None, 0, 0), (0, None, 0)]
)
#: Providers that a candidate assigns to a request.
UUIDS = st.lists(st.sampled_from([*PROVIDERS, "rp-unknown"]), max_size=3).map(tuple)


def arrays(hosts: Sequence[HostPools]) -> PoolArrays:
    made = PoolArrays()
    made.extend(hosts)
    return made


def codes_of(made: PoolArrays, uuids: Sequence[Uuids]) -> npt.NDArray[np.int32]:
    codes = np.full((len(uuids), max(map(len, uuids))), NO_PROVIDER, np.int32)
    for row, its in zip(codes, uuids, strict=True):
        row[: len(its)] = made.provider_codes(its)
    return codes


def cells_of(hosts: Sequence[Sockets], cells: int) -> ChosenCells:
    """Return a choice of cells on hosts of these sockets."""
    each = [ChosenCells.of(cell_rows(sockets), cells) for sockets in hosts]
    return ChosenCells(
        np.concatenate([one.ids for one in each]),
        np.concatenate([one.socket_ids for one in each]),
    )


@functools.cache
def cell_rows(sockets: Sockets) -> CellRows:
    return CellRows.of_host(HostTopology.read(topology(sockets)))


@functools.cache
def topology(sockets: Sockets) -> NUMATopology:
    return b.numa_topology(*(b.numa_cell(n, socket=s) for n, s in enumerate(sockets)))


def by_reference(
    host: HostPools,
    requested: Sequence[PciRequest],
    uuids: Sequence[Uuids],
    sockets: Sockets,
    cells: int | None,
) -> bool:
    """Return the reference's result for a host, from nova's objects."""
    requests = [
        SimpleNamespace(
            count=one.count,
            spec=[dict(spec) for spec in one.specs],
            numa_policy=one.numa_policy,
            alias_name="alias" if its else None,
            request_id=f"request {number}",
        )
        for number, (one, its) in enumerate(zip(requested, uuids, strict=True))
    ]
    mappings = {
        f"request {number}-{i}": [uuid]
        for number, its in enumerate(uuids)
        for i, uuid in enumerate(its)
    }
    report: Any = SimpleNamespace(
        pci_pools=[SimpleNamespace(to_dict=pool.to_dict) for pool in host.pools],
        numa_topology=topology(sockets),
    )
    spec: Any = SimpleNamespace(pci_requests=SimpleNamespace(requests=requests))
    cells_there = report.numa_topology.cells
    at = None if cells is None else [c for c in cells_there if cells >> c.id & 1]
    return devices_fit(report, spec, mappings, at)


@st.composite
def judged(draw: st.DrawFn) -> tuple[list[bool], list[bool]]:
    """Draw hosts and requests; return which hosts meet them: alone, and together."""
    hosts = draw(st.lists(POOLS, min_size=1, max_size=5))
    each: Any = {"min_size": len(hosts), "max_size": len(hosts)}
    requested = draw(
        st.lists(REQUESTS.filter(lambda r: r.count), min_size=1, max_size=3)
    )
    providers = [draw(st.none() | st.lists(UUIDS, **each)) for _ in requested]
    sockets = draw(st.lists(SOCKETS, **each))
    cells = draw(st.none() | st.integers(1, 7))

    made = arrays(hosts)
    together = supported(
        made.rows(),
        requested,
        [None if uuids is None else codes_of(made, uuids) for uuids in providers],
        None if cells is None else cells_of(sockets, cells),
    )
    assert (together.dtype, together.shape) == (np.bool_, (len(hosts),))
    alone = [
        by_reference(
            host, requested, [u[i] if u else () for u in providers], sockets[i], cells
        )
        for i, host in enumerate(hosts)
    ]
    return alone, together.tolist()


@pytest.mark.deep
@examples(6)
@given(answers=judged())
def test_many_hosts_are_evaluated_as_each_alone(
    answers: tuple[list[bool], list[bool]],
) -> None:
    alone, together = answers
    assert together == alone


def answers(
    hosts: Sequence[HostPools],
    requested: Sequence[PciRequest],
    near: ChosenCells | None = None,
) -> list[bool]:
    return supported(
        arrays(hosts).rows(), requested, [None] * len(requested), near
    ).tolist()


def test_hosts_with_enough_devices_pass() -> None:
    hosts = [pools(), pools(flat(1)), pools(flat(1), flat(1, tag="x"))]
    assert answers(hosts, [request(1)]) == [False, True, True]
    assert answers(hosts, [request(2)]) == [False, False, True]
    assert answers(hosts, [request(1), request(1)]) == [False, False, True]


def test_later_requests_see_what_earlier_ones_left() -> None:
    tagged = request(1, {"tag": "x"})
    hosts = [pools(flat(n), flat(1, tag="x")) for n in (0, 1)]
    assert answers(hosts, [request(1), tagged]) == [False, True]
    assert answers(hosts, [tagged, request(1)]) == [False, True]


def test_requests_alone_do_not_see_each_other() -> None:
    plain, tagged = flat(1), flat(1, tag="x")
    hosts = [pools(), pools(plain), pools(tagged), pools(plain, tagged)]
    requested = [request(1), request(1, {"tag": "x"})]
    alone = supported_alone(arrays(hosts).rows(), requested)
    assert alone.tolist() == [False, False, True, True]
    assert answers(hosts, requested) == [False, False, False, True]


def test_preferred_leaves_far_devices_to_later_requests() -> None:
    host = pools(flat(1, numa_node=1), flat(1, numa_node=0, tag="x"), flat(1, tag="y"))
    near = chosen(0)
    requested = request(2, numa_policy="preferred")
    rest = request(1, {"numa_node": None})
    assert answers([host], [requested, rest]) == [True]
    assert answers([host], [requested, rest], near) == [False]


def test_hosts_with_and_without_providers_are_evaluated_together() -> None:
    hosts = [pools(flat(1, rp_uuid=uuid)) for uuid in ("rp-a", "rp-a", "rp-b")]
    made = arrays(hosts)
    codes = codes_of(made, [("rp-a",), (), ("rp-a",)])
    assert supported(made.rows(), [request(1)], [codes]).tolist() == [True, True, False]


def test_answers_follow_kinds_that_come_later() -> None:
    made = arrays([pools(flat(1, tag="x"))])
    requested = [request(1, {"tag": "y"})]
    assert supported(made.rows(), requested, [None]).tolist() == [False]
    made.extend([pools(flat(1, tag="y"))])
    assert supported(made.rows(), requested, [None]).tolist() == [False, True]


def test_no_requests_pass_every_host() -> None:
    assert answers([pools(), pools(flat(1))], []) == [True, True]


def test_no_hosts_have_no_answers() -> None:
    assert answers([], [request(1)]) == []
    assert answers([], [request(1), request(2)]) == []


def test_each_request_needs_its_providers_assigned() -> None:
    rows = arrays([pools(flat(1))]).rows()
    with pytest.raises(ValueError, match="shorter"):
        supported(rows, [request(1)], [])


def test_rows_are_not_written_to() -> None:
    rows = arrays([pools(flat(2), flat(1, tag="x"))]).rows()
    supported(rows, [request(1), request(2)], [None, None])
    assert rows.count.tolist() == [[2, 1]]


@pytest.mark.deep
def test_strategies_reach_both_answers_often() -> None:
    outcomes: Counter[bool] = Counter()

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(answers=judged())
    def count(answers: tuple[list[bool], list[bool]]) -> None:
        outcomes.update(answers[0])

    count()
    assert min(outcomes[True], outcomes[False]) > 0.1 * outcomes.total()
