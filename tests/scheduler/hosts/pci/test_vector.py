# SPDX-License-Identifier: Apache-2.0
"""Many hosts are judged at once as each would be alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from moorage.scheduler.hosts.pci import (
    NO_PROVIDER,
    Affinity,
    HostPools,
    NearPools,
    PciRequest,
    PoolArrays,
    PoolRows,
    supported,
    supported_alone,
    take,
)

from ....fixtures.property_tests import examples
from .conftest import POOLS, PROVIDERS, REQUESTS, flat, pools, request

Uuids = tuple[str, ...]

AFFINITIES = st.builds(
    Affinity,
    st.frozensets(st.integers(0, 2), min_size=1, max_size=2),
    st.frozensets(st.integers(0, 2)),
)
#: Of each host; or None: of no host.
UUIDS = st.lists(st.sampled_from([*PROVIDERS, "rp-unknown"]), max_size=3).map(tuple)


def arrays(hosts: Sequence[HostPools]) -> PoolArrays:
    made = PoolArrays()
    made.extend(hosts)
    return made


def codes_of(made: PoolArrays, uuids: Sequence[Uuids]) -> npt.NDArray[np.int32]:
    codes = np.full((len(uuids), max(map(len, uuids))), NO_PROVIDER, np.int32)
    for row, its in zip(codes, uuids, strict=True):
        row[: len(its)] = [made.provider_code(uuid) for uuid in its]
    return codes


def near_of(rows: PoolRows, affinities: Sequence[Affinity]) -> NearPools:
    def at(cells: list[frozenset[int]]) -> npt.NDArray[np.bool_]:
        found = [np.isin(n, [*c]) for n, c in zip(rows.numa_node, cells, strict=True)]
        return np.array(found, bool).reshape(rows.numa_node.shape)

    return NearPools(
        at([each.cells for each in affinities]),
        at([each.socket_cells for each in affinities]),
    )


@st.composite
def judged(draw: st.DrawFn) -> tuple[list[bool], list[bool]]:
    """Whether each of some hosts meets some requests: alone, and among all."""
    hosts = draw(st.lists(POOLS, min_size=1, max_size=5))
    each: Any = {"min_size": len(hosts), "max_size": len(hosts)}
    asked = draw(st.lists(REQUESTS, min_size=1, max_size=3))
    told = [draw(st.none() | st.lists(UUIDS, **each)) for _ in asked]
    at = draw(st.none() | st.lists(AFFINITIES, **each))

    made = arrays(hosts)
    rows = made.rows()
    together = supported(
        rows,
        asked,
        [None if uuids is None else codes_of(made, uuids) for uuids in told],
        None if at is None else near_of(rows, at),
    )
    assert (together.dtype, together.shape) == (np.bool_, (len(hosts),))
    alone = [
        take(host, asked, [u[i] if u else () for u in told], at[i] if at else None)
        for i, host in enumerate(hosts)
    ]
    return [left is not None for left in alone], together.tolist()


@examples(6)
@given(answers=judged())
def test_many_hosts_are_judged_as_each_alone(
    answers: tuple[list[bool], list[bool]],
) -> None:
    alone, together = answers
    assert together == alone


def answers(
    hosts: Sequence[HostPools],
    asked: Sequence[PciRequest],
    near: NearPools | None = None,
) -> list[bool]:
    return supported(arrays(hosts).rows(), asked, [None] * len(asked), near).tolist()


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
    asked = [request(1), request(1, {"tag": "x"})]
    alone = supported_alone(arrays(hosts).rows(), asked)
    assert alone.tolist() == [False, False, True, True]
    assert answers(hosts, asked) == [False, False, False, True]


def test_preferred_leaves_far_devices_to_later_requests() -> None:
    host = pools(flat(1, numa_node=1), flat(1, numa_node=0, tag="x"), flat(1, tag="y"))
    rows = arrays([host]).rows()
    near = near_of(rows, [Affinity(frozenset({0}))])
    asked = request(2, numa_policy="preferred")
    rest = request(1, {"numa_node": None})
    assert answers([host], [asked, rest]) == [True]
    assert answers([host], [asked, rest], near) == [False]


def test_hosts_without_providers_are_judged_beside_hosts_with() -> None:
    hosts = [pools(flat(1, rp_uuid=uuid)) for uuid in ("rp-a", "rp-a", "rp-b")]
    made = arrays(hosts)
    told = codes_of(made, [("rp-a",), (), ("rp-a",)])
    assert supported(made.rows(), [request(1)], [told]).tolist() == [True, True, False]


def test_answers_follow_kinds_that_come_later() -> None:
    made = arrays([pools(flat(1, tag="x"))])
    asked = [request(1, {"tag": "y"})]
    assert supported(made.rows(), asked, [None]).tolist() == [False]
    made.extend([pools(flat(1, tag="y"))])
    assert supported(made.rows(), asked, [None]).tolist() == [False, True]


def test_no_requests_pass_every_host() -> None:
    assert answers([pools(), pools(flat(1))], []) == [True, True]


def test_no_hosts_have_no_answers() -> None:
    assert answers([], [request(1)]) == []
    assert answers([], [request(1), request(2)]) == []


def test_each_request_needs_to_have_its_providers_told() -> None:
    rows = arrays([pools(flat(1))]).rows()
    with pytest.raises(ValueError, match="shorter"):
        supported(rows, [request(1)], [])


def test_rows_are_not_written_to() -> None:
    rows = arrays([pools(flat(2), flat(1, tag="x"))]).rows()
    supported(rows, [request(1), request(2)], [None, None])
    assert rows.count.tolist() == [[2, 1]]


def test_strategies_reach_both_answers_often() -> None:
    told: Counter[bool] = Counter()

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(answers=judged())
    def count(answers: tuple[list[bool], list[bool]]) -> None:
        told.update(answers[0])

    count()
    assert min(told[True], told[False]) > 0.1 * told.total()
