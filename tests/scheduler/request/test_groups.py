# SPDX-License-Identifier: Apache-2.0
"""What a flavor's extra specs require of Placement directly."""

from __future__ import annotations

import pytest

from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.request.groups import QueryGroup, flavor_groups

ONE, TWO, THREE = (f"7d0c2d42-0d39-4a5b-8f3c-7c3a3f3d9b0{n}" for n in range(1, 4))


def groups(extra_specs: dict[str, str]) -> list[QueryGroup]:
    found = flavor_groups(extra_specs)
    assert not found.ignored
    return list(found.groups.values())


@pytest.mark.parametrize(
    ("extra_specs", "group"),
    [
        pytest.param(
            {"trait:ANY": "in:CUSTOM_A,CUSTOM_B"},
            QueryGroup(required_any={frozenset({"CUSTOM_A", "CUSTOM_B"})}),
            id="one of two traits",
        ),
        pytest.param(
            {"trait1:X": "in:A, B", "trait1:Y": "in:C,D", "trait1:Z": "in:B,A"},
            QueryGroup("1", required_any={frozenset("AB"), frozenset("CD")}),
            id="one of each set, and a set but once",
        ),
        pytest.param(
            {"trait:ANY": "in:CUSTOM_A"},
            QueryGroup(required={"CUSTOM_A"}),
            id="one of one trait",
        ),
        pytest.param(
            {"member_of": ONE},
            QueryGroup(member_of=[frozenset({ONE})]),
            id="aggregate",
        ),
        pytest.param(
            {"member_of_a-1": f"in:{ONE},{TWO}", "member_of_a-1:b": f"in:{THREE}"},
            QueryGroup("_a-1", member_of=[frozenset({ONE, TWO}), frozenset({THREE})]),
            id="one aggregate of each set",
        ),
        pytest.param(
            {"member_of:a": f"!{ONE}", "member_of:b": f"!in:{TWO},{THREE}"},
            QueryGroup(forbidden_aggregates={ONE, TWO, THREE}),
            id="none of the aggregates",
        ),
        pytest.param(
            {"in_tree2": ONE.upper(), "in_tree2:again": ONE.replace("-", "")},
            QueryGroup("2", in_tree=ONE),
            id="tree, however its UUID is written",
        ),
    ],
)
def test_words_of_placement(extra_specs: dict[str, str], group: QueryGroup) -> None:
    assert groups(extra_specs) == [group]


@pytest.mark.parametrize(
    ("extra_specs", "named"),
    [
        ({"trait:X": "in:"}, "trait:X"),
        ({"trait:X": "in:CUSTOM_A,"}, "trait:X"),
        ({"trait1:X": "in:CUSTOM_A,!CUSTOM_B"}, "trait1:X"),
        ({"trait:X": "in:custom_a,CUSTOM_B"}, "trait:X"),
        ({"member_of": "gold"}, "member_of"),
        ({"member_of": ""}, "member_of"),
        ({"member_of1": f"in:{ONE},"}, "member_of1"),
        ({"member_of": f"{ONE},!{TWO}"}, "member_of"),
        ({"in_tree": f"in:{ONE},{TWO}"}, "in_tree"),
        ({"in_tree": "host"}, "in_tree"),
        ({"in_tree": ONE, "in_tree:b": TWO}, "in_tree:b"),
    ],
    ids=str,
)
def test_what_is_malformed_is_named(extra_specs: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        flavor_groups(extra_specs)

    assert f"flavor.extra_specs['{named}'] is {extra_specs[named]!r}" in str(
        raised.value
    )


@pytest.mark.parametrize(
    "key", ["member", "member_of!", "xmember_of", "in_tree!", "in:tree", "hw:in_tree"]
)
def test_other_extra_specs_mean_nothing(key: str) -> None:
    assert groups({key: "anything"}) == []
