# SPDX-License-Identifier: Apache-2.0
"""Hosts with two places of a level, and levels that do not nest, are found."""

from __future__ import annotations

from pathlib import Path

from moorage.scheduler.hosts import HostAggregate
from moorage.scheduler.locality import conflicts_of_table

from ...conftest import aggregate, host, table

LEVELS = ["rack", "row"]


def _place(number: int, level: str, *names: str) -> HostAggregate:
    return aggregate(number, *names, **{"moorage:level": level})


def test_tree_has_no_conflict() -> None:
    hosts = table(
        host(host="a"),
        host(host="b", places=(("rack", "r2"), ("row", "aggregate2"))),
        host(host="nowhere"),
        aggregates=[_place(1, "rack", "a"), _place(2, "row", "a", "b")],
    )
    assert conflicts_of_table(hosts, LEVELS) == []


def test_conflicts_are_named() -> None:
    hosts = table(
        host(host="a"),
        host(host="b"),
        host(host="c", places=(("rack", "r1"),)),
        aggregates=[
            _place(1, "rack", "a", "b", "c"),
            _place(2, "row", "a"),
            _place(3, "row", "b"),
            _place(4, "shelf", "a"),
        ],
    )
    assert conflicts_of_table(hosts, LEVELS) == [
        "aggregate aggregate4 is a place of level shelf, which is none of [locality] "
        "levels: rack, row",
        "host c has 2 places of level rack, aggregate1, r1, so that it counts in none",
        "rack aggregate1 has hosts in 2 places of level row: aggregate2, aggregate3",
    ]


def test_reported_places_of_unknown_levels_are_named_once_a_level() -> None:
    places = (("rack", "r1"), ("rak", "r1"))
    hosts = table(host(host="a", places=places), host(host="b", places=places))
    assert conflicts_of_table(hosts, LEVELS) == [
        "2 host(s) report places of level rak, which is none of [locality] levels, "
        "rack, row: a, b"
    ]


def test_places_of_the_distance_file_that_no_host_has_are_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "distances.csv"
    path.write_text("level,from,to,distance\nrow,a,b,1\nrow,a,rwo-c,2\nrack,r8,r9,1\n")
    hosts = table(
        host(host="a", places=(("row", "a"), ("rack", "r8"))),
        host(host="b", places=(("row", "b"), ("rack", "r9"))),
    )
    assert conflicts_of_table(hosts, LEVELS, str(path)) == [
        "[locality] distance_file has 1 place(s) of level row without a host: rwo-c"
    ]
    assert conflicts_of_table(table(), LEVELS, str(path)) == []
    [unreadable] = conflicts_of_table(hosts, LEVELS, str(tmp_path / "none"))
    assert unreadable.startswith("[locality] distance_file: ")


def test_without_levels_nothing_is_a_conflict() -> None:
    assert conflicts_of_table(table(host(host="a")), []) == []
