# SPDX-License-Identifier: Apache-2.0
"""Aggregates are found by host and by metadata; values are lists with commas."""

from __future__ import annotations

import pytest

from moorage.scheduler.hosts import AggregateMap, metadata_values

from ...conftest import aggregate


def test_replaced_aggregate_affects_its_old_and_new_hosts() -> None:
    aggregates = AggregateMap()
    assert aggregates.put(aggregate(1, "a", "b")) == {"a", "b"}
    assert aggregates.put(aggregate(1, "b", "c")) == {"a", "b", "c"}
    assert aggregates.of_host("a") == ()
    assert aggregates.of_host("c") == (aggregate(1, "b", "c"),)


def test_dropping_an_unknown_aggregate_affects_no_host() -> None:
    assert AggregateMap().drop(7) == frozenset()


def test_metadata_is_matched_exactly() -> None:
    aggregates = AggregateMap()
    east, both = aggregate(1, zone="east"), aggregate(2, zone="east,west")
    for each in (east, both):
        aggregates.put(each)
    assert aggregates.uuids_with_metadata("zone", "east") == {east.uuid}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param([], set(), id="none"),
        pytest.param(["a", "b"], {"a", "b"}, id="of several aggregates"),
        pytest.param(["a, b ,c"], {"a", "b", "c"}, id="split at commas"),
    ],
)
def test_metadata_values(values: list[str], found: set[str]) -> None:
    mine = [aggregate(i, key=value) for i, value in enumerate(values)]
    assert metadata_values([*mine, aggregate(9, other="x")], "key") == found
