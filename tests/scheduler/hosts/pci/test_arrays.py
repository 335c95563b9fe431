# SPDX-License-Identifier: Apache-2.0
"""States of pools are rows of arrays, which stay as they were when more come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from moorage.objects import InstancePCIRequest, InstancePCIRequests
from moorage.scheduler.hosts.pci import (
    NO_NODE,
    NO_POOLS,
    NO_PROVIDER,
    NOT_THERE,
    HostPools,
    PoolArrays,
    PoolKind,
    PoolRows,
)
from moorage.scheduler.hosts.pci.arrays import NO_KIND, UNKNOWN_PROVIDER, match_request
from moorage.scheduler.request.pci import PciRequest, providers_of, read_requests

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


ID = "dd27b10d-5285-4c80-a900-2d583718f6ca"
OTHER_ID = "9477d46c-6df1-402b-a164-e5d1a21ab489"
PF, VDPA = {"dev_type": "type-PF"}, {"dev_type": "vdpa"}
REMOTE = {"remote_managed": "True"}
MOVES, STAYS = {"live_migratable": "true"}, {"live_migratable": "false"}


def kind(**properties: Any) -> PoolKind:
    return pools(flat(7, **properties)).pools[0].kind


def pci_request(**fields: Any) -> InstancePCIRequest:
    spec = [{"vendor_id": "8086", "product_id": "1520"}]
    return InstancePCIRequest(**{"count": 1, "spec": spec, **fields})


def test_request_is_read() -> None:
    spec = [{"vendor_id": "8086", "rp_uuids": "rp-a,rp-b"}, {"dev_type": None}]
    read = PciRequest.read(
        pci_request(
            count=2, spec=spec, alias_name="a", request_id=ID, numa_policy="socket"
        )
    )
    assert read == PciRequest(
        count=2,
        specs=(
            (("rp_uuids", "rp-a,rp-b"), ("vendor_id", "8086")),
            (("dev_type", None),),
        ),
        numa_policy="socket",
        request_id=ID,
        is_from_port=False,
        rp_uuids=("rp-a", "rp-b"),
    )


def test_equal_requests_are_one_value() -> None:
    one, other = (PciRequest.read(pci_request(request_id=ID)) for _ in range(2))
    assert {one: "known"}[other] == "known"


@pytest.mark.parametrize("fields", [{}, {"numa_policy": None}])
def test_policy_is_legacy_where_none_is_set(fields: dict[str, None]) -> None:
    assert PciRequest.read(pci_request(**fields)).numa_policy == "legacy"


def test_request_without_an_alias_is_a_ports() -> None:
    assert PciRequest.read(pci_request()).is_from_port
    assert PciRequest.read(pci_request(alias_name=None)).is_from_port
    assert not PciRequest.read(pci_request(alias_name="a")).is_from_port


def test_requests_are_read_in_order() -> None:
    both = InstancePCIRequests(requests=[pci_request(count=2), pci_request(count=1)])
    assert [each.count for each in read_requests(both)] == [2, 1]


@pytest.mark.parametrize(
    "nothing", [None, InstancePCIRequests(), InstancePCIRequests(requests=[])]
)
def test_no_requests_are_read(nothing: InstancePCIRequests | None) -> None:
    assert read_requests(nothing) == ()


@pytest.mark.parametrize(
    ("spec", "properties", "matches"),
    [
        pytest.param({}, {}, True, id="nothing is requested"),
        pytest.param({"vendor_id": "8086"}, {}, True, id="equal"),
        pytest.param({"vendor_id": "10de"}, {}, False, id="different"),
        pytest.param(
            {"vendor_id": "8086", "product_id": "1"}, {}, False, id="one of two differs"
        ),
        pytest.param({"tag": "ABC"}, {"tag": "aBc"}, True, id="in any case"),
        pytest.param({"tag": "a"}, {}, False, id="absent"),
        pytest.param({"tag": None}, {}, True, id="None, and absent"),
        pytest.param({"tag": None}, {"tag": None}, True, id="None, and None"),
        pytest.param({"tag": None}, {"tag": "a"}, False, id="None, and a value"),
        pytest.param({"numa_node": "0"}, {"numa_node": 0}, False, id="text, number"),
        pytest.param({"tag": ("a",)}, {"tag": ["b", "a"]}, True, id="list, subset"),
        pytest.param({"tag": ("a", "c")}, {"tag": ["b", "a"]}, False, id="no subset"),
        pytest.param({"tag": "a"}, {"tag": ["a"]}, False, id="text, list"),
        pytest.param({"count": "7"}, {}, False, id="count as text"),
        pytest.param({"count": None}, {}, False, id="count None"),
        pytest.param(
            {"resource_class": "X", "traits": "Y", "rp_uuids": "Z", "rp_uuid": "W"},
            {"rp_uuid": "other"},
            True,
            id="what Placement has matched",
        ),
    ],
)
def test_kind_must_have_all_of_a_spec(
    spec: dict[str, Any], properties: dict[str, Any], matches: bool
) -> None:
    assert match_request(request(1, spec), kind(**properties)).matches == matches


def test_one_spec_of_several_suffices() -> None:
    either = request(1, {"vendor_id": "10de"}, {"product_id": "1520"})
    assert match_request(either, kind()).matches
    assert not match_request(either, kind(product_id="1")).matches


def test_request_without_specs_matches_nothing() -> None:
    assert not match_request(PciRequest(1, ()), kind()).matches


@pytest.mark.parametrize(
    ("specs", "properties", "is_usable"),
    [
        pytest.param([{}], {}, True, id="plain"),
        pytest.param([{}], {"dev_type": "type-VF"}, True, id="a VF"),
        pytest.param([{}], PF, False, id="PF, not requested"),
        pytest.param([{"product_id": "1520"}, PF], PF, True, id="PF, requested by one"),
        pytest.param([{"dev_type": "TYPE-PF"}], PF, False, id="PF, in another case"),
        pytest.param([PF], {}, True, id="PF pci_request, other kinds stay"),
        pytest.param([{}], VDPA, False, id="VDPA, unasked"),
        pytest.param([VDPA], VDPA, True, id="VDPA, requested"),
        pytest.param([PF], VDPA, False, id="VDPA, PF requested"),
        pytest.param([{}], {"remote_managed": "true"}, False, id="remote, unasked"),
        pytest.param([{}], {"remote_managed": "1"}, False, id="remote, a 1"),
        pytest.param([{}], {"remote_managed": "false"}, True, id="not remote"),
        pytest.param(
            [{"remote_managed": "False"}],
            {"remote_managed": "true"},
            False,
            id="remote, refused",
        ),
        pytest.param(
            [REMOTE], {"remote_managed": "true"}, True, id="remote, requested"
        ),
        pytest.param([REMOTE, {}], {"remote_managed": "yes"}, True, id="by one"),
        pytest.param([MOVES], MOVES, True, id="can move, requested"),
        pytest.param([MOVES], STAYS, False, id="cannot move, must"),
        pytest.param([MOVES], {}, False, id="move unknown, must"),
        pytest.param([STAYS], STAYS, True, id="cannot move, requested"),
        pytest.param([STAYS], MOVES, False, id="can move, must not"),
        pytest.param([STAYS], {}, False, id="move unknown, must not"),
        pytest.param([MOVES, STAYS], {}, True, id="specs differ on moving"),
        pytest.param([MOVES, {}], STAYS, True, id="one spec says nothing of moving"),
    ],
)
def test_special_devices_have_to_be_requested(
    specs: list[dict[str, str]], properties: dict[str, str], is_usable: bool
) -> None:
    assert match_request(request(1, *specs), kind(**properties)).is_usable == is_usable


GROUPS = {
    "": ["root"],
    f"{ID}-0": ["rp-b"],
    f"{OTHER_ID}-0": ["x"],
    f"{ID}-1": ["rp-a"],
}


@pytest.mark.parametrize(
    ("fields", "mappings", "providers"),
    [
        pytest.param({}, GROUPS, ("rp-b", "rp-a"), id="groups of the request"),
        pytest.param({}, {"": ["root"]}, (), id="no group of the request"),
        pytest.param({}, {f"{ID}-0": []}, (), id="group without a provider"),
        pytest.param({"rp_uuids": ("rp-c",)}, GROUPS, ("rp-b", "rp-a"), id="both"),
        pytest.param({"rp_uuids": ("rp-c",)}, None, ("rp-c",), id="claimed before"),
        pytest.param({"rp_uuids": ("rp-c",)}, {}, ("rp-c",), id="empty mappings"),
        pytest.param({}, None, (), id="nothing known"),
        pytest.param({"is_from_port": True}, GROUPS, (), id="a port"),
        pytest.param(
            {"is_from_port": True, "rp_uuids": ("a",)}, None, (), id="a port, written"
        ),
        pytest.param({"request_id": None}, GROUPS, (), id="no id"),
    ],
)
def test_providers(
    fields: dict[str, Any],
    mappings: Mapping[str, Sequence[str]] | None,
    providers: tuple[str, ...],
) -> None:
    parsed = request(1, **{"request_id": ID, **fields})
    assert providers_of(parsed, mappings) == providers


def test_groups_are_those_of_the_request() -> None:
    assert request(request_id=ID).groups_among(GROUPS) == (f"{ID}-0", f"{ID}-1")
    assert request(request_id=ID, is_from_port=True).groups_among(GROUPS) == ()


def test_request_describes_itself() -> None:
    two = request(2, {"vendor_id": "8086", "product_id": "1"}, PF, numa_policy="socket")
    assert two.describe() == (
        "2 PCI devices (product_id 1, vendor_id 8086 or dev_type type-PF; "
        "NUMA policy socket)"
    )
    assert request(1).describe() == "1 PCI device (any; NUMA policy legacy)"
