# SPDX-License-Identifier: Apache-2.0
"""Pools are read in every form that computes ever reported, in nova's order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.objects import PciDevicePool, PciDevicePoolList
from moorage.scheduler.hosts.pci import NO_POOLS, HostPools, Pool

from .conftest import flat, pools

VFS = flat(3, numa_node=1, dev_type="type-VF", physical_network="net")
TRACKED = flat(2, dev_type="type-PF", rp_uuid="rp-a")
OBJECT = PciDevicePoolList(objects=[PciDevicePool.from_dict(p) for p in (VFS, TRACKED)])
PRIMITIVE = OBJECT.obj_to_primitive()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(OBJECT, id="object"),
        pytest.param(PRIMITIVE, id="primitive"),
        pytest.param(json.dumps(PRIMITIVE), id="text"),
        pytest.param([VFS, TRACKED], id="flat pools"),
        pytest.param(json.dumps([VFS, TRACKED]), id="text of flat pools"),
    ],
)
def test_every_form_is_read_alike(value: object) -> None:
    assert HostPools.read(value).to_dicts() == [VFS, TRACKED]


def test_single_flat_pool_is_read() -> None:
    assert HostPools.read(VFS).to_dicts() == [VFS]


def test_flat_pool_without_numa_node_is_at_none() -> None:
    old = {"count": 5, "vendor_id": "8086", "product_id": "1520", "extra_info": "{}"}
    assert HostPools.read([old]).to_dicts() == [{**old, "numa_node": None}]


def test_object_from_before_numa_nodes_has_none() -> None:
    data = {"vendor_id": "8086", "product_id": "1520", "count": 1, "tags": {}}
    pool = {"nova_object.version": "1.0", "nova_object.data": data}
    read = HostPools.read({"nova_object.data": {"objects": [pool]}})
    assert read.to_dicts() == [{k: v for k, v in data.items() if k != "tags"}]
    assert read.free_by_node == {None: 1}


def test_numbers_are_read_as_versioned_objects_read_them() -> None:
    odd = flat(numa_node="1", slots=2) | {"count": "4", "vendor_id": 8086}
    read = {**odd, "count": 4, "numa_node": 1, "slots": "2", "vendor_id": "8086"}
    assert HostPools.read([odd]).to_dicts() == [read]


@pytest.mark.parametrize("value", [None, "", "null", "[]", [], {}])
def test_nothing_reported_is_no_pools(value: object) -> None:
    assert HostPools.read(value) is NO_POOLS


def test_empty_object_is_no_pools() -> None:
    assert HostPools.read(PciDevicePoolList(objects=[])) is NO_POOLS


_WRAPPED_LIST: dict[str, Any] = {"nova_object.data": []}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "are not JSON"),
        ("5", "are int"),
        ([1], "is int, not a mapping"),
        ({"nova_object.data": {}}, "not a PciDevicePoolList: .*objects"),
        ([{"vendor_id": "8086"}], "pool 0 has no 'count'"),
        ([flat(), flat(count="x")], "pool 1: invalid literal"),
        ([flat(-1)], "pool 0: -1 is not between 0"),
        ([flat(numa_node=-2)], "pool 0: -2 is not between -1"),
        ([flat(tag={})], "pool 0: {} is not a property"),
        ([flat(rp_uuid=5)], "pool 0: 5 is not a text"),
        ([flat(float("inf"))], "pool 0: .*infinity"),
        ({"nova_object.data": {"objects": [_WRAPPED_LIST]}}, "not a PciDevicePoolList"),
    ],
)
def test_invalid_pools_are_reported(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HostPools.read(value)


def test_pools_with_fewer_properties_come_first_others_as_reported() -> None:
    a, b = flat(1, tag="a"), flat(2, tag="b")
    few, tracked = flat(3), flat(4, tag="c", rp_uuid="rp-a")
    read = pools(tracked, a, few, b)
    assert read.to_dicts() == [few, a, b, tracked]


def test_free_devices_are_counted() -> None:
    read = pools(flat(3), flat(2, numa_node=0), flat(4, numa_node=0, tag="x"))
    assert read.n_free == 9
    assert read.free_by_node == {None: 3, 0: 6}
    assert NO_POOLS.n_free == 0


def test_equal_reports_are_one_value() -> None:
    one, other = pools(VFS, TRACKED), HostPools.read(json.dumps([VFS, TRACKED]))
    assert {one: "known"}[other] == "known"
    assert one != pools(VFS, {**TRACKED, "count": 1})
    assert one != pools(VFS, {**TRACKED, "rp_uuid": "rp-b"})


def test_pools_of_different_kinds_are_distinguished_in_one_batch() -> None:
    read = [HostPools.read([flat(3, own_tag=str(i))]) for i in range(50)]
    assert len(set(map(hash, read))) == len(set(read)) == 50


def test_pools_describe_themselves() -> None:
    assert pools(TRACKED).describe() == (
        "2 of dev_type type-PF, product_id 1520, vendor_id 8086, provider rp-a"
    )
    assert NO_POOLS.describe() == "no PCI devices"


def given_back(pool: Pool, count: int) -> Pool:
    return Pool(pool.kind, count, pool.rp_uuid, pool.index)


def test_devices_return_to_their_pool() -> None:
    read = pools(flat(1, tag="a"), flat(2, tag="b"))
    back = given_back(read.pools[1], 3)
    assert read.plus((back,)).to_dicts() == [flat(1, tag="a"), flat(5, tag="b")]


def test_pools_that_were_used_up_return_to_their_places_in_any_order() -> None:
    read = pools(*(flat(1, tag=tag) for tag in "abcd"))
    first, second, third, fourth = read.pools
    rest = HostPools((fourth,))
    assert rest.plus((third,)).plus((first,)).plus((second,)) == read
    assert rest.plus((second, first)).plus((third,)) == read


def test_devices_return_to_their_pool_at_its_place_in_a_newer_report() -> None:
    old, newer = pools(flat(2, tag="a")), pools(flat(1, tag="b"), flat(1, tag="a"))
    back = given_back(old.pools[0], 1)
    assert newer.plus((back,)) == pools(flat(1, tag="b"), flat(2, tag="a"))


ODD: list[Any] = [..., None, 0, -1, "3", "a", 2.5, True, [], {}, ["a"], 10**12]
TAGS = ("rp_uuid", "count", "numa_node", "vendor_id", "dev_type", "new")


@pytest.mark.parametrize("value", [pytest.param(v, id=repr(v)) for v in ODD])
@pytest.mark.parametrize(
    "names", [("vendor_id", "product_id", "numa_node", "count", "tags"), TAGS]
)
def test_text_is_parsed_like_its_object(names: tuple[str, ...], value: object) -> None:
    for name in names:
        primitive = json.loads(json.dumps(PRIMITIVE))
        data = primitive["nova_object.data"]["objects"][0]["nova_object.data"]
        if names is TAGS:
            data = data["tags"]
        data[name] = value
        if value is ...:
            del data[name]
        assert _outcome(json.dumps(primitive)) == _outcome(primitive), name


def _outcome(value: object) -> object:
    try:
        return HostPools.read(value)
    except ValueError:
        return None
