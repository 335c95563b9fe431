# SPDX-License-Identifier: Apache-2.0
"""Candidates follow their hosts through a decision, and can be left out one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from moorage.scheduler.candidates import Offer
from moorage.scheduler.hosts import HostBatch

from ...conftest import host, node_uuid, table
from ...fixtures.clouds import offer


def _request(root: str, number: int) -> dict[str, Any]:
    child = node_uuid(f"{root} child {number}")
    return {
        "allocations": {node_uuid(root): {"resources": {"VCPU": 1}}},
        "mappings": {"": [node_uuid(root)], "_child": [child]},
    }


def _offer(*roots: str) -> Offer:
    """Candidates of these hosts, in this order."""
    requests = [_request(root, number) for number, root in enumerate(roots)]
    summaries = {
        node_uuid(root): {"resources": {}, "root_provider_uuid": node_uuid(root)}
        for root in roots
    }
    body = {"allocation_requests": requests, "provider_summaries": summaries}
    return offer(body)


@pytest.fixture
def hosts() -> HostBatch:
    """Hosts a, b and c; the second and fifth candidate are of a host without row."""
    offered = _offer("b", "unknown", "a", "b", "unknown", "c", "b")
    return table(host(host="a"), host(host="b"), host(host="c")).batch_of_offer(offered)


def _numbers(hosts: HostBatch) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {name: [] for name in hosts.host}
    for row, number in zip(
        hosts.candidates.rows, hosts.candidates.numbers, strict=True
    ):
        found[hosts.host[row]].append(int(number))
    return found


def test_each_host_has_its_candidates_in_placements_order(hosts: HostBatch) -> None:
    assert _numbers(hosts) == {"a": [2], "b": [0, 3, 6], "c": [5]}
    assert [hosts.candidates_of(index) for index in range(3)] == [None] * 3


def test_candidates_go_with_their_hosts(hosts: HostBatch) -> None:
    assert _numbers(hosts.take([2, 1])) == {"c": [5], "b": [0, 3, 6]}


def test_host_that_keeps_no_candidate_is_left_out(hosts: HostBatch) -> None:
    kept = np.isin(hosts.candidates.numbers, [3, 5, 6])
    left = hosts.take_candidates(kept)
    assert _numbers(left) == {"b": [3, 6], "c": [5]}
    assert [left.candidates_of(index) for index in range(2)] == [[3, 6], [5]]
    assert _numbers(hosts) == {"a": [2], "b": [0, 3, 6], "c": [5]}


def test_candidates_can_be_left_out_again(hosts: HostBatch) -> None:
    left = hosts.take_candidates(hosts.candidates.numbers != 0)
    left = left.take([2, 1, 0])
    left = left.take_candidates(left.candidates.numbers < 5)
    assert _numbers(left) == {"b": [3], "a": [2]}


def test_mappings_are_placements_own(hosts: HostBatch) -> None:
    candidates = hosts.take([1]).candidates
    mapped = [candidates.mappings_of(i)["_child"] for i in range(3)]
    assert mapped == [[node_uuid(f"b child {number}")] for number in (0, 3, 6)]


def test_host_state_has_the_candidates_unchanged(hosts: HostBatch) -> None:
    [state] = hosts.take([1])
    mapped = [each["mappings"]["_child"] for each in state.allocation_candidates]
    assert mapped == [[node_uuid(f"b child {number}")] for number in (0, 3, 6)]


def test_host_without_candidates_has_one_that_maps_nothing() -> None:
    batch = table(host(host="a"), host(host="b")).batch()
    assert batch.candidates.rows.tolist() == [0, 1]
    assert [batch.candidates.mappings_of(i) for i in range(2)] == [{}, {}]
    left = batch.take_candidates(np.array([False, True]))
    assert list(left.host) == ["b"]
    assert left.candidates_of(0) is None
    assert left[0].allocation_candidates == []
