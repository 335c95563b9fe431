# SPDX-License-Identifier: Apache-2.0
"""States of pools are rows of arrays, which stay as they were when more come."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from moorage.scheduler.hosts.pci import (
    NO_NODE,
    NO_POOLS,
    NO_PROVIDER,
    NOT_THERE,
    HostPools,
    PoolArrays,
    PoolRows,
)
from moorage.scheduler.hosts.pci.arrays import NO_KIND, UNKNOWN_PROVIDER
from moorage.scheduler.hosts.pci.requests import match_request

from ....fixtures.property_tests import examples
from .conftest import POOLS, flat, pools, request

HOST = pools(flat(3), flat(2, numa_node=1, tag="x", rp_uuid="rp-a"))


def arrays(*values: HostPools) -> PoolArrays:
    made = PoolArrays()
    made.extend(values)
    return made


def as_dicts(rows: PoolRows) -> list[list[tuple[object, ...]]]:
    """Each row's (kind, count, provider's code, NUMA node), of the pools it has."""
    columns = rows.kind, rows.count, rows.provider, rows.numa_node
    lists = zip(*(column.tolist() for column in columns), strict=True)
    return [
        [
            (rows.kinds.values[kind], count, provider, node)
            for kind, count, provider, node in zip(*row, strict=True)
            if kind != NO_KIND
        ]
        for row in lists
    ]


def expected(made: PoolArrays, value: HostPools) -> list[tuple[object, ...]]:
    return [
        (
            pool.kind,
            pool.count,
            made.provider_codes([pool.rp_uuid])[0],
            NO_NODE if pool.kind.numa_node is None else pool.kind.numa_node,
        )
        for pool in value.pools
    ]


def test_row_has_what_the_pools_have() -> None:
    rows = arrays(HOST).rows()
    assert rows.count.tolist() == [[3, 2]]
    assert rows.provider.tolist() == [[NO_PROVIDER, 0]]
    assert rows.numa_node.tolist() == [[NO_NODE, 1]]
    assert [rows.kinds.values[k] for k in rows.kind[0]] == [p.kind for p in HOST.pools]


def test_hosts_with_fewer_pools_are_padded() -> None:
    rows = arrays(HOST, NO_POOLS).rows()
    assert rows.kind[1].tolist() == [NO_KIND] * 2
    assert rows.count[1].tolist() == [0, 0]
    assert rows.numa_node[1].tolist() == [NOT_THERE] * 2


def test_columns_have_their_dtypes() -> None:
    rows = arrays(HOST).rows()
    assert rows.count.dtype == np.int64
    assert {c.dtype for c in (rows.kind, rows.provider, rows.numa_node)} == {
        np.dtype(np.int32)
    }


def test_no_hosts_are_no_rows() -> None:
    rows = arrays().rows()
    assert (len(rows), rows.kind.shape) == (0, (0, 0))
    assert len(arrays(NO_POOLS).rows()) == 1


def test_no_pool_has_an_unknown_provider() -> None:
    made = arrays(HOST)
    codes = made.provider_codes(["rp-x", "rp-a", None]).tolist()
    assert codes == [UNKNOWN_PROVIDER, made.rows().provider[0, 1], NO_PROVIDER]
    assert UNKNOWN_PROVIDER not in made.rows().provider


def test_provider_of_several_pools_is_marked() -> None:
    split = pools(flat(rp_uuid="rp-a"), flat(tag="x", rp_uuid="rp-a"))
    rows = arrays(HOST, split, pools(flat(), flat(tag="x"))).rows()
    assert rows.has_split.tolist() == [False, True, False]


def test_rows_read_earlier_do_not_change_when_pools_and_hosts_are_added() -> None:
    made = arrays(NO_POOLS, HOST)
    early = made.rows()
    before = as_dicts(early)
    wide = pools(*(flat(i, tag=str(i)) for i in range(5)))
    for _ in range(20):
        made.extend([wide, HOST])
    assert as_dicts(early) == before
    assert early.kind.shape == (2, 2)
    assert made.rows().kind.shape == (42, 5)


@examples(1)
@given(parts=st.lists(st.lists(POOLS, max_size=4), max_size=4))
def test_rows_are_the_values_in_order(parts: list[list[HostPools]]) -> None:
    made = PoolArrays()
    for part in parts:
        made.extend(part)
    values = [value for part in parts for value in part]
    assert len(made) == len(made.rows()) == len(values)
    pools_by_row = [expected(made, value) for value in values]
    assert as_dicts(made.rows()) == pools_by_row
    half = len(values) // 2
    assert as_dicts(made.rows(half)) == pools_by_row[half:]
    picked = [*range(half), *range(len(values))]
    assert as_dicts(made.rows().take(picked)) == [pools_by_row[i] for i in picked]


@examples(1)
@given(
    values=st.lists(POOLS, min_size=1, max_size=4), later=st.lists(POOLS, max_size=2)
)
def test_rows_are_evaluated_as_each_pool(
    values: list[HostPools], later: list[HostPools]
) -> None:
    made = arrays(*values)
    device_request = request(1, {"vendor_id": "8086"})
    made.rows().match(device_request)
    made.extend(later)
    matches, usable = made.rows().match(device_request)
    for value, row, usable_row in zip([*values, *later], matches, usable, strict=True):
        kinds = [pool.kind for pool in value.pools]
        n = len(kinds)
        found = [match_request(device_request, kind) for kind in kinds]
        expected_row = [match.matches for match in found]
        assert row.tolist() == expected_row + [False] * (len(row) - n)
        both = [match.matches and match.is_usable for match in found]
        assert usable_row.tolist() == both + [False] * (len(row) - n)
