# SPDX-License-Identifier: Apache-2.0
"""Requests consume from a host's pools as nova's do, and release what they consumed."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moorage.scheduler.hosts.numa import ChosenCells
from moorage.scheduler.hosts.pci import NO_POOLS, HostPools
from moorage.scheduler.request.pci import PciRequest

from ....fixtures.property_tests import examples
from .conftest import (
    NODES,
    POOLS,
    PROVIDERS,
    REQUESTS,
    chosen,
    consume,
    counts,
    flat,
    pools,
    request,
)

IN_0 = chosen(0, sockets=[0, 1])
WITHOUT_SOCKETS = chosen(0)
PF, VDPA = {"dev_type": "type-PF"}, {"dev_type": "vdpa"}


def left_by(
    host: HostPools, requested: PciRequest, *uuids: str, at: ChosenCells | None = None
) -> list[int] | None:
    return counts(consume(host, [requested], [uuids], at))


def at_nodes(*counts: int) -> HostPools:
    """Pools at no node, node 0, node 1 and node 2; none where 0 is given."""
    named = zip(NODES, counts, strict=True)
    return pools(*(flat(n, numa_node=node) for node, n in named if n))


@pytest.mark.parametrize(
    ("policy", "count", "host", "left"),
    [
        ("required", 1, at_nodes(1, 1, 1, 1), [1, 1, 1]),
        ("required", 2, at_nodes(1, 1, 1, 1), None),
        ("required", 1, at_nodes(1, 0, 1, 1), None),
        ("legacy", 1, at_nodes(1, 1, 1, 1), [1, 1, 1]),
        ("legacy", 2, at_nodes(1, 1, 1, 1), [1, 1]),
        ("legacy", 3, at_nodes(1, 1, 1, 1), None),
        ("legacy", 1, at_nodes(0, 0, 1, 1), None),
        ("preferred", 1, at_nodes(1, 1, 1, 1), [1, 1, 1]),
        ("preferred", 2, at_nodes(1, 1, 1, 1), [1, 1]),
        ("preferred", 3, at_nodes(1, 1, 2, 1), [1, 1]),
        ("preferred", 4, at_nodes(1, 1, 1, 1), []),
        ("preferred", 5, at_nodes(1, 1, 1, 1), None),
        ("socket", 1, at_nodes(1, 1, 1, 1), [1, 1, 1]),
        ("socket", 2, at_nodes(1, 1, 1, 1), [1, 1]),
        ("socket", 3, at_nodes(1, 1, 1, 1), None),
        ("socket", 1, at_nodes(1, 0, 0, 1), None),
    ],
)
def test_policy_sets_the_allowed_distance(
    policy: str, count: int, host: HostPools, left: list[int] | None
) -> None:
    assert left_by(host, request(count, numa_policy=policy), at=IN_0) == left


def test_preferred_policy_uses_near_or_unbound_devices_first() -> None:
    host = pools(
        flat(2, numa_node=1), flat(1, numa_node=None), flat(1, numa_node=0, tag="x")
    )
    left = consume(host, [request(3, numa_policy="preferred")], [()], IN_0)
    assert left is not None
    assert left.to_dicts() == [flat(1, numa_node=1)]


def test_legacy_policy_uses_unbound_devices_in_the_order_of_pools() -> None:
    host = pools(flat(2, numa_node=None), flat(1, numa_node=0, tag="x"))
    assert left_by(host, request(2), at=IN_0) == [1]


def test_socket_needs_to_know_all_sockets() -> None:
    requested = request(2, numa_policy="socket")
    assert left_by(at_nodes(0, 1, 1, 0), requested, at=IN_0) == []
    assert left_by(at_nodes(0, 1, 1, 0), requested, at=WITHOUT_SOCKETS) is None


def test_guest_without_numa_may_have_any_device() -> None:
    host = at_nodes(0, 0, 0, 1)
    assert left_by(host, request(1, numa_policy="required"), at=None) == []


@pytest.mark.parametrize("special", [PF, VDPA, {"remote_managed": "true"}])
def test_near_devices_decide_even_where_they_cannot_be_used(special: Any) -> None:
    host = pools(flat(1, numa_node=0, **special), flat(1, numa_node=None))
    assert left_by(host, request(1, numa_policy="legacy"), at=IN_0) is None
    assert left_by(host, request(2, numa_policy="legacy"), at=IN_0) is None
    assert left_by(host, request(1), at=None) == [1]


@pytest.mark.parametrize("special", [PF, VDPA])
def test_special_devices_are_left_to_requests_for_them(special: dict[str, str]) -> None:
    host = pools(flat(1, **special))
    assert left_by(host, request(1)) is None
    assert left_by(host, request(1, special)) == []
    assert left_by(host, request(1, {"vendor_id": "10de"}, special)) == []


def test_pools_are_consumed_first_to_last() -> None:
    host = pools(flat(1), flat(2, tag="a"), flat(3, tag="b"))
    assert left_by(host, request(2)) == [1, 3]
    assert left_by(host, request(3)) == [3]
    assert left_by(host, request(7)) is None


def test_used_up_pools_that_are_passed_are_gone() -> None:
    host = pools(flat(0), flat(2, tag="a"), flat(0, tag="b"))
    assert left_by(host, request(1)) == [1, 0]


def test_requests_consume_what_earlier_ones_left() -> None:
    host = pools(flat(1), flat(1, tag="a"))
    any_, tagged = request(1), request(1, {"tag": "a"})
    assert counts(consume(host, [any_, tagged], [(), ()])) == []
    assert consume(host, [tagged, request(2)], [(), ()]) is None
    # Greedy as nova is: no request looks ahead.
    assert consume(pools(flat(1, tag="a")), [any_, tagged], [(), ()]) is None


A, B = flat(2, address="a", rp_uuid="rp-a"), flat(2, address="b", rp_uuid="rp-b")
UNTRACKED = flat(5)


@pytest.mark.parametrize(
    ("count", "uuids", "left"),
    [
        pytest.param(1, ["rp-b"], [5, 2, 1], id="from its provider"),
        pytest.param(2, ["rp-b", "rp-b"], [5, 2], id="all that it has"),
        pytest.param(2, ["rp-b", "rp-a"], [5, 1, 1], id="from both"),
        pytest.param(3, ["rp-a"] * 3, None, id="more than it has"),
        pytest.param(1, ["rp-x"], None, id="unknown provider"),
        pytest.param(2, ["rp-x", "rp-b"], [5, 2, 1], id="partly covered"),
        pytest.param(3, ["rp-x", "rp-b", "rp-b"], None, id="too partly covered"),
        pytest.param(1, ["rp-a", "rp-b"], [5, 1, 1], id="more providers than devices"),
        pytest.param(1, [], [4, 2, 2], id="none assigned"),
    ],
)
def test_providers_give_what_placement_assigned(
    count: int, uuids: list[str], left: list[int] | None
) -> None:
    assert left_by(pools(UNTRACKED, A, B), request(count), *uuids) == left


def test_provider_must_match_too() -> None:
    requested = request(1, {"address": "b"})
    assert left_by(pools(A, B), requested, "rp-b") == [2, 1]
    assert left_by(pools(A, B), requested, "rp-a") is None


def test_provider_of_several_pools_fails_requests_with_providers() -> None:
    host = pools(A, flat(1, address="c", rp_uuid="rp-a", more="x"), B)
    assert left_by(host, request(1), "rp-b") is None
    assert left_by(host, request(1)) == [1, 2, 1]


def test_provider_is_whole_again_once_its_other_pool_is_used_up() -> None:
    host = pools(flat(1, rp_uuid="rp-b"), B)
    both = [request(1), request(1)]
    assert counts(consume(host, both, [(), ("rp-b",)])) == [1]
    assert consume(host, both[1:], [("rp-b",)]) is None


def test_no_requests_consume_nothing() -> None:
    host = pools(A)
    assert consume(host, [], []) == host
    assert consume(NO_POOLS, [], []) == NO_POOLS


def test_host_without_pools_has_no_devices() -> None:
    assert consume(NO_POOLS, [request(1)], [()]) is None
    assert consume(NO_POOLS, [request(0)], [()]) is None


def test_each_request_needs_its_providers_assigned() -> None:
    with pytest.raises(ValueError, match="shorter"):
        consume(pools(A), [request(1)], [])


CHOSEN = st.none() | st.builds(
    lambda cells, sockets: chosen(*cells, sockets=sockets),
    st.lists(st.integers(0, 2), min_size=1, max_size=2),
    st.lists(st.integers(0, 2)),
)
RequestAndProviders = tuple[PciRequest, tuple[str, ...]]
REQUESTS_AND_PROVIDERS: st.SearchStrategy[RequestAndProviders] = st.tuples(
    REQUESTS, st.lists(st.sampled_from(PROVIDERS), max_size=2).map(tuple)
)


@examples(4)
@given(host=POOLS, requested=st.lists(REQUESTS_AND_PROVIDERS, max_size=3), at=CHOSEN)
def test_consuming_and_releasing_restores_the_host(
    host: HostPools, requested: list[RequestAndProviders], at: ChosenCells | None
) -> None:
    before = host.to_dicts()
    left = consume(
        host, [r for r, _ in requested], [uuids for _, uuids in requested], at
    )
    assert host.to_dicts() == before
    if left is not None:
        given = host.minus(left)
        assert hash(given) == hash(host.minus(left))
        assert sum(pool.count for pool in given) == host.n_free - left.n_free
        assert left.plus(given) == host


@examples(3)
@given(
    host=POOLS,
    requested=st.lists(st.integers(1, 2), min_size=1, max_size=4),
    data=st.data(),
)
def test_guests_give_back_in_any_order(
    host: HostPools, requested: list[int], data: st.DataObject
) -> None:
    now, claims = host, []
    for count in requested:
        left = consume(now, [request(count)], [()])
        if left is not None:
            claims.append(now.minus(left))
            now = left
    for claim in data.draw(st.permutations(claims)):
        now = now.plus(claim)
    assert now == host
