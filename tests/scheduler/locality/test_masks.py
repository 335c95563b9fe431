# SPDX-License-Identifier: Apache-2.0
"""Which of the instances that break a rule together leave a place."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from moorage.scheduler.hosts import Consumption
from moorage.scheduler.locality import Masks, Resolution
from moorage.scheduler.request.locality import AtMost, Rule, Spread, WithInstances

from ...conftest import batch, host

RACKS = {"a": "r1", "b": "r2", "c": "r3"}
#: In the order of their UUIDs; the one that asks is in the middle.
LOW, LOWER, MINE, HIGHER, HIGH = (f"{n}" * 8 + "-0000" * 3 for n in range(1, 6))
EVERYONE = frozenset({LOW, LOWER, MINE, HIGHER, HIGH})


def _resolution(
    rule: Rule, located: Mapping[str, str], known: Mapping[str, list[str]]
) -> Resolution:
    """The resolution of an instance that claims host a."""
    hosts = batch(
        *(host(host=name, places=(("rack", rack),)) for name, rack in RACKS.items()),
        instances={name: list(uuids) for name, uuids in known.items()},
    )
    node_of = {each.host: each.uuid for each in hosts}
    nodes = {uuid: [node_of[name]] for uuid, name in located.items()}
    [index] = [i for i, each in enumerate(hosts) if each.host == "a"]
    masks = Masks([rule], hosts, ["rack"], MINE, nodes)
    return masks.resolution([rule], index, MINE)


def test_instance_does_not_follow_one_of_its_own_request_that_was_released() -> None:
    hosts = batch(
        *(host(host=name, places=(("rack", rack),)) for name, rack in RACKS.items()),
        instances={"b": [HIGH]},
    )
    names = [each.host for each in hosts]
    placed = hosts.with_instance(names.index("a"), LOW, Consumption(1, 1, 1))
    masks = Masks([SAME], placed, ["rack"], MINE, {})
    assert masks.resolution([SAME], names.index("a"), MINE) is Resolution.MOVE


def _at_most(limit: int) -> AtMost:
    return AtMost("", "rack", EVERYONE, is_group=True, limit=limit)


SPREAD = Spread("", "rack", EVERYONE, max_skew=1)
SAME = WithInstances("", "rack", EVERYONE, is_group=True)


@pytest.mark.parametrize(
    ("rule", "located", "known", "resolution"),
    [
        (_at_most(1), {}, {}, Resolution.KEEP),
        (_at_most(1), {LOW: "b"}, {}, Resolution.KEEP),
        (_at_most(1), {LOW: "a"}, {}, Resolution.MOVE),
        (_at_most(1), {HIGH: "a"}, {}, Resolution.WAIT),
        (_at_most(2), {LOW: "a", HIGH: "a"}, {}, Resolution.WAIT),
        (_at_most(2), {LOW: "a", LOWER: "a"}, {}, Resolution.MOVE),
        (_at_most(1), {}, {"a": [HIGH]}, Resolution.MOVE),
        (_at_most(2), {HIGHER: "a"}, {"a": [HIGH]}, Resolution.WAIT),
        (_at_most(1), {HIGHER: "a"}, {"a": [HIGH]}, Resolution.MOVE),
        (SPREAD, {HIGH: "a"}, {}, Resolution.WAIT),
        (SPREAD, {LOW: "a", HIGH: "b"}, {}, Resolution.MOVE),
        (SPREAD, {LOW: "a", HIGH: "b"}, {"c": [LOWER]}, Resolution.KEEP),
        (SAME, {HIGH: "b"}, {}, Resolution.WAIT),
        (SAME, {LOW: "b"}, {}, Resolution.MOVE),
        (SAME, {}, {"b": [HIGH]}, Resolution.MOVE),
        (SAME, {LOW: "b"}, {"a": [HIGH]}, Resolution.KEEP),
    ],
    ids=lambda value: getattr(value, "name", ""),  # sets have no fixed order
)
def test_as_many_leave_as_must_and_those_with_the_highest_uuids(
    rule: Rule,
    located: Mapping[str, str],
    known: Mapping[str, list[str]],
    resolution: Resolution,
) -> None:
    assert _resolution(rule, located, known) is resolution
